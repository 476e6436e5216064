"""Calls of NVIDIA's libraries by programs on a CUDA device: on the stand-ins, which check every argument, and on a GPU."""

from __future__ import annotations

import ctypes
import os
import re
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from cuda_running import Array, compiled, counters, normal, on_device

from fuse_opt.lowering.program import LibraryCall
from fuse_opt.lowering.program.float_formats import narrow, widen
from fuse_opt.runtime.backends.registry import unavailable_backends
from fuse_opt.runtime.cuda.program import CudaProgram
from fuse_opt.tools.compiler.api import evaluate
from fuse_opt.tools.compiler.pipeline import DEFAULT_PIPELINE


def implementations(program: CudaProgram) -> list[str]:
    """What the program's library calls name, in order."""
    return [step.implementation for step in program.program.steps if isinstance(step, LibraryCall)]


def stand_in(variable: str) -> Any:
    """The stand-in of a library, with its counts; None on a GPU."""
    return ctypes.CDLL(os.environ[variable]) if counters() is not None else None


def check_workspace(program: CudaProgram, library: Any, name: str) -> None:
    """The last workspace that a stand-in was given lies in the program's arena."""
    if library is None:
        return
    last = getattr(library, name)
    last.restype = ctypes.c_void_p
    arena = int(program._arena)  # pyright: ignore[reportPrivateUsage]
    assert arena <= last() < arena + program.program.arena_bytes, (arena, last())


CHAINS: list[tuple[str, str, str, str]] = [
    # the chain, its promise, the element type, what runs it
    ("", "", "f32", "cublas.matmul"),
    ("add", "", "f32", "cublaslt.matmul"),
    ("add", "", "bf16", "cublas.matmul"),
    ("add", "", "f64", "cublas.matmul"),
    ("add relu", "", "f32", "cublas.matmul"),
    ("add relu", "cublaslt.matmul_fast", "f32", "cublaslt.matmul_fast"),
    ("add gelu", "cublaslt.matmul_fast", "f16", "cublaslt.matmul_fast"),
    ("relu", "cublaslt.matmul_fast", "bf16", "cublaslt.matmul_fast"),
    ("gelu", "cublaslt.matmul_fast", "f32", "cublaslt.matmul_fast"),
]
_Shapes = tuple[tuple[int, ...], tuple[int, ...], bool, bool]
SHAPES: list[_Shapes] = [
    ((16, 24), (24, 8), False, False),
    ((24, 16), (8, 24), True, True),
    ((3, 7, 5), (3, 5, 9), False, False),
    ((2, 3, 5), (7, 5), False, True),
]


def chain_text(shapes: _Shapes, steps: str, promise: str, dtype: str) -> str:
    """A product with steps behind it, by matrices of an element type."""
    a, b, ta, tb = shapes
    out = np.matmul(*(np.zeros(s).swapaxes(-1, -2) if t else np.zeros(s) for s, t in ((a, ta), (b, tb)))).shape
    x, y, r, v = (f"tensor<{''.join(f'{n}x' for n in s)}{dtype}>" for s in (a, b, out, out[-1:]))
    wish = f', use_implementation = "{promise}"' if promise else ""
    flags = f"transpose_lhs = {str(ta).lower()}, transpose_rhs = {str(tb).lower()}{wish}"
    lines = [f"%r = graph.matmul %x, %y {{{flags}}} : ({x}, {y}) -> {r}"]
    last = "%r"
    for number, step in enumerate(steps.split()):
        read = f"{last}, %v : ({r}, {v})" if step == "add" else f"{last} : ({r})"
        attribute = read if step != "gelu" else f'{last} {{approximate = "tanh"}} : ({r})'
        lines.append(f"%s{number} = graph.{step} {attribute} -> {r}")
        last = f"%s{number}"
    head = f"func.func @main(%x: {x}, %y: {y}, %v: {v}) -> {r} {{"
    return "\n".join([head, *lines, f"func.return {last} : {r}", "}"])


def _given(array: Array, dtype: str) -> Array:
    return narrow(array, "bf16") if dtype == "bf16" else array.astype(f"f{int(dtype[1:]) // 8}")


def product_chains() -> str:
    """Products with what a library does behind them, launched, captured and replayed: as the reference has them."""
    assert not {"cublas", "cublaslt"} & unavailable_backends("cuda").keys()
    library = stand_in("FUSE_OPT_CUBLASLT")
    faults: list[str] = []
    for steps, promise, dtype, named in CHAINS:
        for shapes in SHAPES:
            try:
                _product_chain(shapes, (steps, promise, dtype, named), library)
            except Exception as error:  # all that a library takes otherwise than its stand-in, in one go
                faults.append(f"{steps} {promise} {dtype} {named} {shapes}: {type(error).__name__}: {error}")
    assert not faults, "\n".join(faults)
    return f"{len(CHAINS) * len(SHAPES)} programs"


def _product_chain(shapes: _Shapes, case: tuple[str, str, str, str], library: Any) -> None:
    steps, promise, dtype, named = case
    text = chain_text(shapes, steps, promise, dtype)
    before = library.fake_cublaslt_heuristics() if library else 0
    program = compiled(text, _FAST if promise else "default")
    assert implementations(program) == [named], (implementations(program), named, text)
    asked = 2 * named.startswith("cublaslt")
    assert library is None or library.fake_cublaslt_heuristics() == before + asked
    inputs = [_given(normal(*s, seed=k), dtype) for k, s in enumerate((*shapes[:2], _vector(text)))]
    expected = evaluate(text, *inputs)
    for _ in range(3):
        _compare(program(*inputs), expected, dtype, text, bool(promise))
    assert program.stats.host_ops == 0 and program.stats.graph_launches == 2, program.stats
    if asked:
        check_workspace(program, library, "fake_cublaslt_workspace")
    assert library is None or library.fake_cublaslt_heuristics() == before + asked, "asked again in a run"


_FAST = ",".join(DEFAULT_PIPELINE).replace("select-implementation", "select-implementation{numerics=fast}")


def _vector(text: str) -> tuple[int, ...]:
    return (int(text.split("%v: tensor<")[1].split("x")[0]),)


def _compare(found: Array, expected: Array, dtype: str, what: str, fast: bool) -> None:
    a, b = (widen(each) if dtype == "bf16" else each for each in (found, expected))
    f32 = 1e-2 if fast and counters() is None else 2e-5  # operands rounded to TF32
    bound = {"bf16": 3e-2, "f16": 5e-3, "f32": f32}.get(dtype, 1e-12)
    np.testing.assert_allclose(a, b, bound, bound, err_msg=what)


def odd_product_addresses() -> str:
    """Operands that begin at any element: the algorithm for those is taken."""
    program = compiled(chain_text(SHAPES[0], "add", "", "f32"))
    x, y, v = normal(16, 24), normal(24, 8, seed=1), normal(8, seed=2)
    with on_device() as (_, gpuarray):
        for skipped in (0, 1, 2):
            arrays: list[Any] = []
            for array in (x, y, v):
                flat = gpuarray.empty(array.size + skipped, np.float32)
                view = flat[skipped:].reshape(array.shape)
                view.set(array)
                arrays.append(view)
            for _ in range(3):
                np.testing.assert_allclose(program(*arrays).get(), x @ y + v, 2e-5, 2e-5)
    return "3 offsets"


CONVOLUTIONS: list[tuple[tuple[int, ...], tuple[int, ...], dict[str, tuple[int, ...]], int]] = [
    # x, weight, attributes with pads of one side, groups
    ((2, 3, 7, 6), (4, 3, 3, 2), {}, 1),
    ((1, 4, 9, 8), (6, 2, 3, 3), {"pads": (1, 2), "strides": (2, 1)}, 2),
    ((2, 3, 9), (5, 3, 3), {"pads": (2,), "dilations": (2,)}, 1),
    ((1, 2, 5, 4, 6), (3, 2, 2, 3, 2), {"pads": (1, 0, 1), "strides": (2, 2, 1)}, 1),
]


_MATH = {("f32", False): 3, ("f16", False): 1, ("bf16", False): 1}
"""The type of arithmetic that cuDNN is allowed, else the default one: f32 is never rounded to TF32 in strict mode."""


def convolution_texts(case: int, dtype: str) -> dict[str, str]:
    """By op: a convolution and its gradients, of an element type."""
    x, w, given, groups = CONVOLUTIONS[case]
    axes = len(x) - 2
    lists = {name: given.get(name, (one,) * axes) for name, one in (("strides", 1), ("dilations", 1), ("pads", 0))}
    along = zip(x[2:], w[2:], lists["pads"], lists["strides"], lists["dilations"], strict=True)
    y = (x[0], w[0], *((n + 2 * p - d * (k - 1) - 1) // s + 1 for n, k, p, s, d in along))
    along = zip(y[2:], w[2:], lists["pads"], lists["strides"], lists["dilations"], strict=True)
    covered = (x[0], x[1], *((n - 1) * s + d * (k - 1) + 1 - 2 * p for n, k, p, s, d in along))
    lists["pads"] *= 2
    shared = [f"{name} = array<i64: {_listed(numbers)}>" for name, numbers in lists.items()] + [
        f"groups = {groups} : i64"
    ]
    cases: dict[str, tuple[tuple[int, ...], tuple[int, ...], tuple[int, ...], list[str]]] = {
        "graph.conv": (x, w, y, []),
        "graph.conv_backward_data": (y, w, x, [f"shape = array<i64: {_listed(x[2:])}>"]),
        "graph.conv_backward_weight": (y, x, w, [f"kernel_shape = array<i64: {_listed(w[2:])}>"]),
        "graph.conv_transpose": (y, w, covered, []),
    }
    return {op: _convolution_text(op, shapes, dtype, [*shared, *more]) for op, (*shapes, more) in cases.items()}


def _listed(numbers: tuple[int, ...]) -> str:
    return ", ".join(map(str, numbers))


def _convolution_text(op: str, shapes: Sequence[tuple[int, ...]], dtype: str, attributes: list[str]) -> str:
    a, b, r = (f"tensor<{''.join(f'{n}x' for n in shape)}{dtype}>" for shape in shapes)
    line = f"%r = {op} %a, %b {{{', '.join(attributes)}}} : ({a}, {b}) -> {r}"
    return f"func.func @main(%a: {a}, %b: {b}) -> {r} {{\n{line}\nfunc.return %r : {r}\n}}"


def convolutions() -> str:
    """Convolutions and their gradients by cuDNN, launched, captured and replayed: as the reference has them."""
    if problem := unavailable_backends("cuda").get("cudnn"):
        assert counters() is None, problem
        return f"none: {problem}"
    library = stand_in("FUSE_OPT_CUDNN")
    count = 0
    for case, dtype in [*((case, "f32") for case in range(len(CONVOLUTIONS))), (0, "f64"), (1, "f16"), (1, "bf16")]:
        for op, text in convolution_texts(case, dtype).items():
            for fast in (False, True) if dtype == "f32" else (False,):
                before = library.fake_cudnn_asked() if library else 0
                name = f"cudnn.{op.partition('.')[2]}{'_fast' if fast else ''}"
                program = compiled(text, _preferring(name) if fast else None)
                assert implementations(program) == [name], (implementations(program), name)
                inputs = [_given(normal(*shape, seed=k), dtype) for k, shape in enumerate(_shapes(text))]
                expected = evaluate(text, *inputs)
                for _ in range(3):
                    _compare(program(*inputs), expected, dtype, text, fast)
                assert program.stats.host_ops == 0 and program.stats.graph_launches == 2, program.stats
                check_workspace(program, library, "fake_cudnn_workspace")
                assert library is None or library.fake_cudnn_math() == _MATH.get((dtype, fast), 0), (dtype, fast)
                assert library is None or library.fake_cudnn_asked() == before + 1, "asked in a run"
                count += 1
    return f"{count} programs"


STEPS: list[tuple[str, str, str, list[str]]] = [
    # the chain, the element type, a promise, what the library runs
    ("bias", "f32", "", ["cudnn.conv"]),
    ("bias relu", "f32", "", ["cudnn.conv"]),
    ("bias tensor relu", "f32", "", ["cudnn.conv"]),
    ("tensor bias", "f32", "", ["cudnn.conv"]),
    ("bias relu", "f16", "cudnn.conv_fast", ["cudnn.conv_fast"]),
]
_OF_STEPS = {"bias": "graph.add", "tensor": "graph.add", "relu": "graph.relu"}


def convolution_steps_text(case: int, steps: str, dtype: str, promise: str = "") -> str:
    """A convolution with steps behind it, a tensor that is added being the caller's to overwrite."""
    head, op, *_ = convolution_texts(case, dtype)["graph.conv"].splitlines()
    result = head.partition("->")[2].rstrip(" {").strip()
    axes = result.count("x") - 2
    channels = CONVOLUTIONS[case][1][0]
    bias = f"tensor<{channels}{'x1' * axes}x{dtype}>"
    given = {"bias": ("%v", bias), "tensor": ("%z", result)}
    lines, last = [op.replace("{", f'{{use_implementation = "{promise}", ', 1) if promise else op], "%r"
    for number, step in enumerate(steps.split()):
        read, types = (f", {given[step][0]}", f", {given[step][1]}") if step in given else ("", "")
        lines.append(f"%s{number} = {_OF_STEPS[step]} {last}{read} : ({result}{types}) -> {result}")
        last = f"%s{number}"
    more = f", %v: {bias}, %z: {result} {{graph.donated}}) ->"
    return "\n".join([head.replace(") ->", more), *lines, f"func.return {last} : {result}", "}"])


def convolution_steps() -> str:
    """Convolutions with what cuDNN does behind them, NaN included; the result lies over the tensor that is added."""
    library = stand_in("FUSE_OPT_CUDNN")
    for case in (0, 1, 2):
        for steps, dtype, promise, named in STEPS:
            text = convolution_steps_text(case, steps, dtype, promise)
            program = compiled(text, _FAST if promise else None)
            assert implementations(program) == named and program.stats.launches == 0, (implementations(program), text)
            inputs = [_given(normal(*shape, seed=k), dtype) for k, shape in enumerate(_shapes(text))]
            if not promise:
                inputs[0].reshape(-1)[0] = np.nan
            expected = evaluate(text, *(array.copy() for array in inputs))
            before = library.fake_cudnn_in_place() if library else 0
            for _ in range(3):
                _compare(program(*(array.copy() for array in inputs)), expected, dtype, text, bool(promise))
            assert library is None or library.fake_cudnn_in_place() == before + 2 * ("tensor" in steps)
            check_workspace(program, library, "fake_cudnn_workspace")
    return f"{3 * len(STEPS)} programs"


def channels_last_text(case: int, dtype: str) -> str | None:
    """A convolution whose channels lie innermost, between conversions; None where the library has none."""
    head, op, *_ = convolution_texts(case, dtype)["graph.conv"].splitlines()
    axes = op.split("strides = array<i64: ")[1].split(">")[0].count(",") + 1
    if axes < 2 or "groups = 1 " not in op:
        return None
    x, w, result = re.findall(r"tensor<[^>]*>", op)
    order = ", ".join(map(str, (0, *range(2, axes + 2), 1)))
    lying = [each.replace(">", f", #graph.order<{order}>>") for each in (x, w, result)]
    body, _ = op.split(" : (")
    names = re.findall(r"%\w+", head)
    body = re.sub(r"%r = graph.conv %\w+, %\w+", "%s = graph.conv %x0, %w0", body)
    return "\n".join([
        head,
        f"%x0 = graph.to_layout {names[0]} : ({x}) -> {lying[0]}",
        f"%w0 = graph.to_layout {names[1]} : ({w}) -> {lying[1]}",
        f"{body} : ({lying[0]}, {lying[1]}) -> {lying[2]}",
        f"%r = graph.to_layout %s : ({lying[2]}) -> {result}",
        f"func.return %r : {result}",
        "}",
    ])  # fmt: skip


def channels_last() -> str:
    """Convolutions of arrays whose channels lie innermost, which programs get where that is faster."""
    texts = [channels_last_text(case, dtype) for case in range(len(CONVOLUTIONS)) for dtype in ("f16", "bf16")]
    for text in filter(None, texts):
        program = compiled(text)
        assert implementations(program) == ["cudnn.conv"] and program.stats.host_ops == 0, text
        dtype = "bf16" if "xbf16" in text else "f16"
        inputs = [_given(normal(*shape, seed=k), dtype) for k, shape in enumerate(_shapes(text))]
        expected = evaluate(text, *inputs)
        for _ in range(3):
            _compare(program(*inputs), expected, dtype, text, fast=False)
    return f"{sum(map(bool, texts))} programs"


def _preferring(name: str) -> str:
    chosen = f'select-implementation{{numerics=fast prefer="{name}"}}'
    return ",".join(DEFAULT_PIPELINE).replace("select-implementation", chosen)


def _shapes(text: str) -> list[tuple[int, ...]]:
    found = [part.split(">")[0].split("x")[:-1] for part in text.partition(")")[0].split("tensor<")[1:]]
    return [tuple(map(int, extents)) for extents in found]


LIBRARY_SCENARIOS: list[Callable[[], str]] = [
    product_chains,
    odd_product_addresses,
    convolutions,
    convolution_steps,
    channels_last,
]
