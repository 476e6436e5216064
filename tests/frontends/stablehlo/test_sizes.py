"""Programs of unknown extents: dynamic ops, bounds and conditions on extents, as jax.export writes them, are one program."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from lowered_programs import needs_compiler

import fuse_opt
from fuse_opt.frontends.stablehlo.importer import StableHLOError, load
from fuse_opt.tools.compiler.specialization import SpecializedPrograms

Array = np.ndarray[Any, Any]
# A padded part of x from n - 2 on, in a row, beside counted rows; the leading half of a bounded row.
_OPS = """"builtin.module"() ({
  "func.func"() <{sym_name = "main", function_type = (tensor<?x4xf32>, tensor<?xf32, #stablehlo.bounds<9>>)
                  -> (tensor<?x6xf32>, tensor<?xf32>, tensor<2x4xf32>)}> ({
  ^entry(%x: tensor<?x4xf32>, %y: tensor<?xf32, #stablehlo.bounds<9>>):
    %zero = "stablehlo.constant"() <{value = dense<0> : tensor<i32>}> : () -> tensor<i32>
    %two = "stablehlo.constant"() <{value = dense<2> : tensor<i32>}> : () -> tensor<i32>
    %none = "stablehlo.constant"() <{value = dense<0> : tensor<2xi32>}> : () -> tensor<2xi32>
    %one = "stablehlo.constant"() <{value = dense<1> : tensor<2xi32>}> : () -> tensor<2xi32>
    %wide = "stablehlo.constant"() <{value = dense<[0, 2]> : tensor<2xi32>}> : () -> tensor<2xi32>
    %columns = "stablehlo.constant"() <{value = dense<6> : tensor<1xi32>}> : () -> tensor<1xi32>
    %four = "stablehlo.constant"() <{value = dense<4> : tensor<1xi32>}> : () -> tensor<1xi32>
    %fill = "stablehlo.constant"() <{value = dense<1.5> : tensor<f32>}> : () -> tensor<f32>
    %n = "stablehlo.get_dimension_size"(%x) <{dimension = 0 : i64}> : (tensor<?x4xf32>) -> tensor<i32>
    %m = "stablehlo.get_dimension_size"(%y) <{dimension = 0 : i64}> : (tensor<?xf32, #stablehlo.bounds<9>>) -> tensor<i32>
    %ok = "stablehlo.compare"(%n, %two) <{comparison_direction = #stablehlo<comparison_direction GE>}>
      : (tensor<i32>, tensor<i32>) -> tensor<i1>
    "stablehlo.custom_call"(%ok, %n) <{call_target_name = "shape_assertion", error_message = "Expected 2 rows"}>
      : (tensor<i1>, tensor<i32>) -> ()
    %padded = "stablehlo.dynamic_pad"(%x, %fill, %none, %wide, %none)
      : (tensor<?x4xf32>, tensor<f32>, tensor<2xi32>, tensor<2xi32>, tensor<2xi32>) -> tensor<?x6xf32>
    %rows = "stablehlo.reshape"(%n) : (tensor<i32>) -> tensor<1xi32>
    %shape = "stablehlo.concatenate"(%rows, %columns) <{dimension = 0 : i64}>
      : (tensor<1xi32>, tensor<1xi32>) -> tensor<2xi32>
    %counted = "stablehlo.dynamic_iota"(%shape) <{iota_dimension = 0 : i64}> : (tensor<2xi32>) -> tensor<?x6xf32>
    %added = "stablehlo.add"(%padded, %counted) : (tensor<?x6xf32>, tensor<?x6xf32>) -> tensor<?x6xf32>
    %half = "stablehlo.divide"(%m, %two) : (tensor<i32>, tensor<i32>) -> tensor<i32>
    %single = "stablehlo.constant"() <{value = dense<1> : tensor<i32>}> : () -> tensor<i32>
    %more = "stablehlo.add"(%half, %single) : (tensor<i32>, tensor<i32>) -> tensor<i32>
    %lead = "stablehlo.set_dimension_size"(%y, %more) <{dimension = 0 : i64}>
      : (tensor<?xf32, #stablehlo.bounds<9>>, tensor<i32>) -> tensor<?xf32>
    %behind = "stablehlo.subtract"(%n, %two) : (tensor<i32>, tensor<i32>) -> tensor<i32>
    %last = "stablehlo.dynamic_slice"(%x, %behind, %zero) <{slice_sizes = array<i64: 2, 4>}>
      : (tensor<?x4xf32>, tensor<i32>, tensor<i32>) -> tensor<2x4xf32>
    "func.return"(%added, %lead, %last) : (tensor<?x6xf32>, tensor<?xf32>, tensor<2x4xf32>) -> ()
  }) : () -> ()
}) : () -> ()
"""


def one_program(program: fuse_opt.CompiledProgram) -> bool:
    return isinstance(native := program.native, SpecializedPrograms) and not native.made


@needs_compiler
def test_dynamic_ops_bounds_and_assertions():
    program = fuse_opt.compile(load(_OPS), "cpu")
    for n, m in ((2, 9), (7, 2), (33, 4), (5, 6)):
        x, y = np.random.default_rng(n).standard_normal((n, 4), np.float32), np.arange(m, dtype=np.float32)
        rows, lead, last = program(x, y)
        padded = np.pad(x, [(0, 0), (0, 2)], constant_values=1.5)
        np.testing.assert_array_equal(rows, padded + np.arange(n, dtype=np.float32)[:, None])
        np.testing.assert_array_equal(lead, y[: m // 2 + 1])
        np.testing.assert_array_equal(last, x[-2:])
    assert one_program(program)
    with pytest.raises(ValueError, match=r"extent 'x\.0': argument 0, axis 0 has 1; expected 2 to"):
        program(np.zeros((1, 4), np.float32), np.zeros(2, np.float32))
    with pytest.raises(ValueError, match=r"extent 'y\.0': argument 1, axis 0 has 10; expected 1 to 9"):
        program(np.zeros((2, 4), np.float32), np.zeros(10, np.float32))


def test_numbers_for_extents_and_what_data_decides():
    module = load(_OPS, extents={"x.0": 3, "y.0": 4})
    assert "tensor<3x6xf32>, tensor<3xf32>, tensor<2x4xf32>" in str(module)
    with pytest.raises(StableHLOError, match=r"expected names among \['x\.0', 'y\.0'\], got 'z'"):
        load(_OPS, extents={"z": 3})
    with pytest.raises(StableHLOError, match="a condition on extents never holds: Expected 2 rows"):
        load(_OPS, extents={"x.0": 1, "y.0": 4})
    by_data = """"builtin.module"() ({
      "func.func"() <{sym_name = "main", function_type = (tensor<f32>, tensor<1xi32>) -> tensor<?xf32>}> ({
      ^entry(%x: tensor<f32>, %n: tensor<1xi32>):
        %0 = "stablehlo.dynamic_broadcast_in_dim"(%x, %n) <{broadcast_dimensions = array<i64>}>
          : (tensor<f32>, tensor<1xi32>) -> tensor<?xf32>
        "func.return"(%0) : (tensor<?xf32>) -> ()
      }) : () -> ()
    }) : () -> ()
    """
    with pytest.raises(
        StableHLOError, match="'stablehlo.dynamic_broadcast_in_dim': operand 1: expected what follows from"
    ):
        load(by_data)


@needs_compiler
def test_symbolic_dimensions_of_jax():
    """A block of attention and reductions by jax.export: names of dimensions, equal ones, and six sets of sizes."""
    jax = pytest.importorskip("jax")
    jnp: Any = jax.numpy
    export = pytest.importorskip("jax.export")

    def attention(x: Any, w: Any, mask: Any) -> Any:
        q, k = (part.reshape(*x.shape[:2], 2, 4).transpose(0, 2, 1, 3) for part in (x @ w, x))
        seen = jnp.tril(jnp.ones((x.shape[1], x.shape[1]), bool)) & mask[:, None, None, :]
        scores = jax.nn.softmax(jnp.where(seen, q @ k.transpose(0, 1, 3, 2), -1e9), -1)
        y = (scores @ k).transpose(0, 2, 1, 3).reshape(x.shape)
        return jnp.mean(y, 1) + jnp.var(x, 1), jnp.concatenate([y[:, :1], y], 1) + x.shape[1]

    batch, seq = export.symbolic_shape("batch, seq")
    shapes = ((batch, seq, 8), jnp.float32), ((8, 8), jnp.float32), ((batch, seq), jnp.bool_)
    exported = export.export(jax.jit(attention))(*(jax.ShapeDtypeStruct(*each) for each in shapes))
    module = load(exported.mlir_module())
    assert "#graph.shape<batch, seq + 1, 8>" in str(module)
    program = fuse_opt.compile(module, "cpu")
    for b, s in ((1, 1), (2, 7), (3, 16), (1, 33), (5, 2), (2, 64)):
        rng = np.random.default_rng(s)
        arrays = (
            rng.standard_normal((b, s, 8), np.float32),
            rng.standard_normal((8, 8), np.float32),
            rng.random((b, s)) < 0.7,
        )
        for found, wanted in zip(program(*arrays), jax.jit(attention)(*arrays), strict=True):
            np.testing.assert_allclose(found, wanted, rtol=2e-4, atol=2e-5)
    assert one_program(program)
    with pytest.raises(ValueError, match="extent 'batch': argument 0, axis 0 has 2, argument 2, axis 0 has 3"):
        program(arrays[0], arrays[1], np.ones((3, 64), bool))


@needs_compiler
def test_convolutions_of_jax():
    """Of a batch and images of any extents, with a bias and pooling, by jax.export: one program for all."""
    jax = pytest.importorskip("jax")
    jnp, lax = jax.numpy, jax.lax
    export = pytest.importorskip("jax.export")

    def block(x: Any, w: Any, b: Any, v: Any) -> Any:
        y = lax.conv_general_dilated(x, w, (1, 1), ((1, 1), (1, 1)))
        y = jax.nn.relu(y + b[None, :, None, None])
        pooled = lax.reduce_window(y, -jnp.inf, lax.max, (1, 1, 2, 2), (1, 1, 2, 2), "VALID")
        return lax.conv_general_dilated(pooled, v, (1, 1), ((1, 1), (0, 0)))

    batch, height, width = export.symbolic_shape("batch, height, width", constraints=["height >= 2", "width >= 6"])
    shapes = (batch, 3, height, width), (8, 3, 3, 3), (8,), (4, 8, 3, 3)
    exported = export.export(jax.jit(block))(*(jax.ShapeDtypeStruct(each, jnp.float32) for each in shapes))
    program = fuse_opt.compile(load(exported.mlir_module()), "cpu")
    for b, h, w in ((1, 2, 6), (2, 9, 7), (1, 33, 70), (3, 16, 8), (1, 5, 131)):
        rng = np.random.default_rng(h)
        arrays = [rng.standard_normal(s, np.float32) for s in ((b, 3, h, w), (8, 3, 3, 3), (8,), (4, 8, 3, 3))]
        np.testing.assert_allclose(program(*arrays), jax.jit(block)(*arrays), rtol=1e-4, atol=1e-4)
    assert one_program(program)
