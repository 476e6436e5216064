"""Who computes a product for `products.py`: each gives a call without arguments, and what it gives as an array."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from importlib import import_module
from importlib.util import find_spec
from typing import Any

import numpy as np
from cpu_peer_base import in_room, room

import fuse_opt
from fuse_opt.tools.compiler.pipeline import DEFAULT_PIPELINE

Array = np.ndarray[Any, Any]
Call = Callable[[], Any]
OWN = ("ours", "fast", "frozen")
NUMPY: dict[str, Any] = {"f32": np.float32, "f64": np.float64, "f16": np.float16, "i8": np.int8, "ui8": np.uint8}


def module(name: str) -> Any:
    """One that may not be installed."""
    return import_module(name)


def dtype(name: str) -> Any:
    """NumPy's of an element type."""
    return module("ml_dtypes").bfloat16 if name == "bf16" else NUMPY[name]


@dataclass(frozen=True, slots=True)
class Shape:
    """`count` products of `rows` x `columns` over `depth`; the right operand may be given transposed."""

    count: int
    rows: int
    depth: int
    columns: int
    transposed: bool = False
    element: str = "f32"
    """Of the left operand; the right one has it, too, but for ui8, beside which it is i8."""

    def __str__(self) -> str:
        many = f"{self.count} x " * (self.count > 1)
        extents = f"{self.rows}x{self.columns}x{self.depth}"
        return f"{many}{extents}{' transposed' * self.transposed}{f' {self.element}' * (self.element != 'f32')}"

    @property
    def operations(self) -> float:
        return 2.0 * self.count * self.rows * self.depth * self.columns

    @property
    def is_integer(self) -> bool:
        return self.element in ("i8", "ui8")

    @property
    def right(self) -> str:
        return "i8" if self.is_integer else self.element

    def operands(self) -> tuple[Array, Array]:
        rng = np.random.default_rng(0)
        many = (self.count,) if self.count > 1 else ()
        right = (self.columns, self.depth) if self.transposed else (self.depth, self.columns)
        shapes = (*many, self.rows, self.depth), (*many, *right)
        if self.is_integer:
            low = 0 if self.element == "ui8" else -128
            values = rng.integers(low, low + 256, shapes[0]), rng.integers(-128, 128, shapes[1])
        else:
            values = rng.standard_normal(shapes[0]), rng.standard_normal(shapes[1])
        return in_room(values[0], dtype(self.element)), in_room(values[1], dtype(self.right))


def text_of(shape: Shape, x: Array, w: Array) -> str:
    result = "i32" if shape.is_integer else shape.element
    extents = (*x.shape[:-1], shape.columns)
    types = [
        f"tensor<{'x'.join(map(str, (*each, name)))}>"
        for each, name in ((x.shape, shape.element), (w.shape, shape.right), (extents, result))
    ]
    flags = ["transpose_rhs = true"] * shape.transposed + [f"dtype = {result}"] * shape.is_integer
    return (
        f"func.func @main(%x: {types[0]}, %w: {types[1]}) -> {types[2]} {{\n"
        f"  %0 = graph.matmul %x, %w {{{', '.join(flags)}}} : ({types[0]}, {types[1]}) -> {types[2]}\n"
        f"  func.return %0 : {types[2]}\n}}"
    )


def own_call(shape: Shape, x: Array, w: Array, fast: bool = False) -> Call:
    """Ours, into memory that is there."""
    passes = [text.replace("schedule-kernels", "schedule-kernels{math=fast}") for text in DEFAULT_PIPELINE]
    program = fuse_opt.compile(text_of(shape, x, w), pipeline=passes if fast else None)
    out = room((*x.shape[:-1], shape.columns), np.int32 if shape.is_integer else x.dtype)
    return lambda: program(x, w, out=out)


def own_frozen_call(shape: Shape, x: Array, w: Array) -> Call:
    """Ours, with the right operand as a weight, which is packed before."""
    program = fuse_opt.compile(text_of(shape, x, w))
    out = room((*x.shape[:-1], shape.columns), np.int32 if shape.is_integer else x.dtype)
    program.freeze({1: in_room(w, w.dtype)})
    return lambda: program(x, out=out)


def _numpy(shape: Shape, x: Array, w: Array) -> Call:
    right = w.swapaxes(-1, -2) if shape.transposed else w
    out = room((*x.shape[:-1], shape.columns), x.dtype)
    return lambda: np.matmul(x, right, out=out)


def _torch(shape: Shape, x: Array, w: Array) -> Call:
    torch = module("torch")

    def tensor(array: Array) -> Any:
        if shape.element == "bf16":
            return torch.from_numpy(array.view(np.int16)).view(torch.bfloat16)
        return torch.from_numpy(array)

    a, b = tensor(x), tensor(w).transpose(-1, -2) if shape.transposed else tensor(w)
    if shape.is_integer:
        return lambda: torch._int_mm(a, b)
    out = torch.matmul(a, b)
    return lambda: torch.matmul(a, b, out=out)


def _onnxruntime(shape: Shape, x: Array, w: Array) -> Call:
    """With the right operand as a weight, which the session packs once, where it is one matrix."""
    onnxruntime, helper, numpy_helper = module("onnxruntime"), module("onnx.helper"), module("onnx.numpy_helper")
    kinds = module("onnx").TensorProto
    types = {"f32": kinds.FLOAT, "f64": kinds.DOUBLE, "i8": kinds.INT8, "ui8": kinds.UINT8}
    result = kinds.INT32 if shape.is_integer else types[shape.element]
    frozen = shape.count == 1
    right = np.ascontiguousarray(w.swapaxes(-1, -2)) if shape.transposed and frozen else w
    nodes = [helper.make_node("MatMulInteger" if shape.is_integer else "MatMul", ["x", "w"], ["y"])]
    if shape.transposed and not frozen:
        nodes = [helper.make_node("Transpose", ["v"], ["w"], perm=[0, 2, 1]), *nodes]
    name = "v" if shape.transposed and not frozen else "w"
    inputs = [helper.make_tensor_value_info("x", types[shape.element], x.shape)]
    inputs += [] if frozen else [helper.make_tensor_value_info(name, types[shape.right], right.shape)]
    output = helper.make_tensor_value_info("y", result, (*x.shape[:-1], shape.columns))
    weights = [numpy_helper.from_array(right, "w")] if frozen else []
    model = helper.make_model(
        helper.make_graph(nodes, "product", inputs, [output], weights),
        opset_imports=[helper.make_opsetid("", 17)],
        ir_version=9,
    )
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads, options.inter_op_num_threads = threads(), 1
    options.add_session_config_entry("session.intra_op.allow_spinning", "0")
    session = onnxruntime.InferenceSession(model.SerializeToString(), options, providers=["CPUExecutionProvider"])
    feeds = {"x": x} if frozen else {"x": x, name: right}
    return lambda: session.run(None, feeds)[0]


def _xla(shape: Shape, x: Array, w: Array) -> Call:
    jax, jnp = module("jax"), module("jax.numpy")

    def product(a: Any, b: Any) -> Any:
        right = b.swapaxes(-1, -2) if shape.transposed else b
        return jnp.matmul(a, right, preferred_element_type=jnp.int32 if shape.is_integer else None)

    jax.config.update("jax_enable_x64", True)
    compiled, a, b = jax.jit(product), jnp.asarray(x), jnp.asarray(w)
    return lambda: compiled(a, b).block_until_ready()


def threads() -> int:
    """How many each may use."""
    return int(os.environ.get("FUSE_OPT_NUM_THREADS", "1"))


def makers(shape: Shape) -> dict[str, Callable[[], Call]]:
    """By name, what makes a call; the first is ours. Who lacks the element type, or is not installed, is left out."""
    x, w = shape.operands()
    torch_there, jax_there = find_spec("torch") is not None, find_spec("jax") is not None
    onnx_there = find_spec("onnxruntime") is not None and find_spec("onnx") is not None
    found: dict[str, tuple[Callable[..., Call], bool]] = {
        "ours": (own_call, True),
        "fast": (partial(own_call, fast=True), shape.element == "bf16"),
        "frozen": (own_frozen_call, shape.count == 1),
        "NumPy": (_numpy, shape.element in ("f32", "f64")),
        "PyTorch": (_torch, torch_there and shape.element != "ui8"),
        "ORT": (_onnxruntime, onnx_there and shape.element not in ("bf16", "f16")),
        "XLA": (_xla, jax_there and shape.element != "ui8"),
    }
    return {name: partial(make, shape, x, w) for name, (make, can) in found.items() if can}


def contenders(shape: Shape) -> dict[str, Call]:
    """The calls of all of them, in this process."""
    return {name: make() for name, make in makers(shape).items()}


def right_call(shape: Shape, name: str) -> Call:
    """The call of one of them; raises ValueError where its values are wrong."""
    call = makers(shape)[name]()
    if wrong(shape, {name: call}):
        raise ValueError("wrong values")
    return call


def wrong(shape: Shape, calls: dict[str, Call]) -> list[str]:
    """Peers whose values are not NumPy's in wide numbers. Raises AssertionError for one of ours."""
    x, w = shape.operands()
    wide = np.float64 if not shape.is_integer else np.int64
    right = w.swapaxes(-1, -2) if shape.transposed else w
    exact = x.astype(wide) @ right.astype(wide)
    room = {"f32": 1e-4, "f64": 1e-12, "f16": 4e-3, "bf16": 3e-2}.get(shape.element, 0.0)
    found: list[str] = []
    for name, call in calls.items():
        given = call()
        actual = given.float().numpy() if str(getattr(given, "dtype", "")) == "torch.bfloat16" else np.asarray(given)
        error = np.abs(actual.astype(wide) - exact).max()
        if error > room * np.abs(exact).max():
            assert name not in OWN, f"{name} {shape}: error {error}"
            found.append(name)
    return found
