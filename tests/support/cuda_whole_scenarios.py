"""Attention and norms by cuDNN on a CUDA device: on its stand-in, which checks every argument, and on a GPU."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np
from cuda_library_scenarios import check_workspace, implementations, stand_in
from cuda_running import Array, compiled, counters, on_device

from fuse_opt.lowering.program.float_formats import narrow, widen
from fuse_opt.runtime.backends.nvidia.cudnn_graph import plan_problem
from fuse_opt.runtime.backends.nvidia.cudnn_library import library_version
from fuse_opt.runtime.backends.nvidia.cudnn_operations import OperationGraph, graph_of
from fuse_opt.runtime.backends.registry import unavailable_backends
from fuse_opt.tools.compiler.api import evaluate
from fuse_opt.tools.compiler.pipeline import DEFAULT_PIPELINE

_Shapes = list[tuple[int, ...]]
CASES: list[tuple[str, str, _Shapes, tuple[int, ...], str]] = [
    # the op, its attributes, operands, the result, the element type
    ("scaled_dot_product_attention", "", [(2, 3, 9, 16), (2, 3, 11, 16), (2, 3, 11, 8)], (2, 3, 9, 8), "f16"),
    (
        "scaled_dot_product_attention",
        "enable_gqa = true, scale = 0.3 : f64",
        [(2, 4, 5, 8), (2, 2, 7, 8), (2, 2, 7, 8)],
        (2, 4, 5, 8),
        "bf16",
    ),
    ("scaled_dot_product_attention", "", [(33, 24), (130, 24), (130, 24)], (33, 24), "bf16"),
    (
        "scaled_dot_product_attention",
        "is_causal = true",
        [(2, 4, 9, 16), (2, 4, 11, 16), (2, 4, 11, 16)],
        (2, 4, 9, 16),
        "f16",
    ),
    # what it keeps of its sums is as large as what the library may work in
    ("scaled_dot_product_attention", "is_causal = true", [(512, 256, 2, 8)] * 3, (512, 256, 2, 8), "bf16"),
    (
        "scaled_dot_product_attention",
        "is_causal = true, enable_gqa = true, scale = 0.3 : f64",
        [(2, 4, 9, 8), (2, 2, 7, 8), (2, 2, 7, 8)],
        (2, 4, 9, 8),
        "bf16",
    ),
    ("layer_norm", "", [(5, 4, 12), (12,), (12,)], (5, 4, 12), "f32"),
    ("layer_norm", "axis = 1 : i64, epsilon = 0.01 : f64", [(5, 4, 6), (4, 6), (4, 6)], (5, 4, 6), "bf16"),
    ("rms_norm", "epsilon = 0.5 : f64", [(7, 10), (10,)], (7, 10), "f32"),
    ("rms_norm", "", [(3, 10), (10,)], (3, 10), "f16"),
    ("batch_norm", "", [(2, 3, 5, 4), (3,), (3,), (3,), (3,)], (2, 3, 5, 4), "f32"),
    ("batch_norm", "epsilon = 0.1 : f64", [(4, 3), (3,), (3,), (3,), (3,)], (4, 3), "f64"),
]


ODD = CASES[-4]
"""What is run with arrays that begin anywhere, too."""


def whole_text(op: str, attributes: str, operands: _Shapes, result: tuple[int, ...], dtype: str, name: str = "") -> str:
    """A program of one op, which a promise says the implementation of."""
    types = [f"tensor<{'x'.join(map(str, shape))}x{dtype}>" for shape in (*operands, result)]
    given = ", ".join(f"%a{k}: {each}" for k, each in enumerate(types[:-1]))
    wish = f'use_implementation = "{name}"' if name else ""
    said = ", ".join(filter(None, (attributes, wish)))
    names = ", ".join(f"%a{k}" for k in range(len(operands)))
    line = f"%r = graph.{op} {names} {{{said}}} : ({', '.join(types[:-1])}) -> {types[-1]}"
    return f"func.func @main({given}) -> {types[-1]} {{\n{line}\nfunc.return %r : {types[-1]}\n}}"


PIPELINE = f"attach-backends{{backends=cudnn_graph}},{','.join(DEFAULT_PIPELINE)}"


def whole_ops() -> str:
    """Attention and norms by cuDNN, launched, captured and replayed: as the reference has them."""
    if problem := unavailable_backends("cuda").get("cudnn_graph"):
        assert counters() is None, problem
        return f"none: {problem}"
    library = stand_in("FUSE_OPT_CUDNN")
    ran, has_attention = 0, (library_version() or 0) >= 91300
    for number, case in enumerate(CASES):
        op, *_, dtype = case
        if "attention" in op and not (has_attention and (library is not None or _has_plan(case))):
            continue
        ran += 1
        name = f"{'cudnn' if op == 'batch_norm' else 'cudnn_graph'}.{op}"
        text = whole_text(*case, name)
        program = compiled(text, PIPELINE)
        assert implementations(program) == [name], (implementations(program), text)
        inputs = [_drawn(shape, dtype, 7 * number + k) for k, shape in enumerate(case[2])]
        expected = _wide(evaluate(text, *inputs), dtype)
        bound = {"bf16": 2e-2, "f16": 3e-3, "f32": 2e-5}.get(dtype, 1e-12)
        for _ in range(3):
            np.testing.assert_allclose(_wide(program(*inputs), dtype), expected, bound, bound, err_msg=text)
        assert program.stats.host_ops == 0 and program.stats.graph_launches == 2, program.stats
        if op != "batch_norm":
            check_workspace(program, library, "fake_cudnn_workspace")
    assert library is None or library.fake_cudnn_live_packs() == 0, "packs of runs are left"
    assert library is None or library.fake_cudnn_lost_logs() == 0, "what graphs keep lay in other memory"
    if library is not None:
        _without_logarithms()
    _odd_addresses()
    return f"{ran} of {len(CASES)} programs"


def _has_plan(case: tuple[str, str, _Shapes, tuple[int, ...], str]) -> bool:
    """Whether the library that is here has attention on a device: older ones know fewer forms under a causal mask."""
    op, attributes, operands, result, dtype = case
    config = {"is_causal": "is_causal = true" in attributes}
    graph = graph_of(f"graph.{op}", [*operands, result], [dtype] * (len(operands) + 1), config)
    return isinstance(graph, OperationGraph) and plan_problem(graph) is None


def _without_logarithms() -> None:
    """Causal attention that keeps no logarithms of its sums is a graph that the library has no plan for."""
    shape = (2, 3, 9, 16)
    graph = graph_of(f"graph.{CASES[0][0]}", [shape] * 4, ["f16"] * 4, {"is_causal": True})
    assert isinstance(graph, OperationGraph) and plan_problem(graph) is None and graph.kept_bytes == 256
    kept = next(number for number, piece in enumerate(graph.pieces) if piece.is_kept)
    fewer = tuple(each for each in graph.operations if kept not in [number for _, number in each.tensors])
    assert len(fewer) == len(graph.operations) - 1
    virtual = tuple(replace(piece, is_kept=False) for piece in graph.pieces)
    assert plan_problem(replace(graph, pieces=virtual)) == "no-plan"
    assert plan_problem(replace(graph, operations=fewer)) == "no-plan"


def _odd_addresses() -> None:
    """What does not begin as the library wants it is copied, results back."""
    text = whole_text(*ODD, "cudnn_graph.rms_norm")
    program = compiled(text, PIPELINE)
    inputs = [_drawn(shape, "f32", k) for k, shape in enumerate(ODD[2])]
    with on_device() as (_, gpuarray):
        flat, scale = (
            gpuarray.to_gpu(np.concatenate([inputs[0].reshape(-1)[:1], inputs[0].reshape(-1)])),
            gpuarray.to_gpu(inputs[1]),
        )
        for _ in range(3):
            found = program(flat[1:].reshape(7, 10), scale).get()
            np.testing.assert_allclose(found, evaluate(text, *inputs), 2e-5, 2e-5)


def _drawn(shape: tuple[int, ...], dtype: str, seed: int) -> Array:
    found = np.random.default_rng(seed).uniform(0.1, 2, shape)
    return narrow(found.astype(np.float32), "bf16") if dtype == "bf16" else found.astype(f"f{int(dtype[1:]) // 8}")


def _wide(array: Array, dtype: str) -> Array:
    return widen(array) if dtype == "bf16" else array


WHOLE_SCENARIOS: list[Callable[[], str]] = [whole_ops]
