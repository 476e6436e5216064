"""Generated convolutions beside a library's, PyTorch's and ONNX Runtime's: `python benchmarks/convolutions.py [--only TEXT]`.

    FUSE_OPT_NUM_THREADS=1 OPENBLAS_NUM_THREADS=1 OMP_NUM_THREADS=1 MKL_NUM_THREADS=1 python benchmarks/convolutions.py

Each is with a bias and relu; `block` is a residual block of two 3x3 convolutions with biases. Calls take turns, in slots of some
milliseconds of processor time; figures are of a lower quartile, in operations a second, and ratios of a slot's own turn: min,
median, max. `library` is this package with its functions over NumPy's BLAS. `--threads N` gives all of them so many threads,
and measures time on the clock. What a person set for BLAS libraries is used, and printed.
"""

from __future__ import annotations

import argparse
import os
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from importlib import import_module
from importlib.util import find_spec
from typing import Any

import numpy as np

import fuse_opt
from fuse_opt.runtime.host import thread_pool

Array = np.ndarray[Any, Any]
LIBRARY = ("wrap-kernels", 'select-implementation{prefer="blas.conv"}', "default")
"""Passes that have the functions over NumPy's BLAS run convolutions."""
SLOTS = 15
SLOT_OPERATIONS = 3e8
Call = Callable[[], object]


@dataclass(frozen=True)
class Case:
    """A convolution of `batch` square or oblong images."""

    name: str
    batch: int
    channels: int
    height: int
    width: int
    filters: int
    kernel: int
    stride: int = 1
    groups: int = 1

    @property
    def pad(self) -> int:
        return self.kernel // 2

    @property
    def out(self) -> tuple[int, int]:
        height, width = ((n + 2 * self.pad - self.kernel) // self.stride + 1 for n in (self.height, self.width))
        return height, width

    @property
    def x(self) -> tuple[int, ...]:
        return self.batch, self.channels, self.height, self.width

    @property
    def weight(self) -> tuple[int, ...]:
        return self.filters, self.channels // self.groups, self.kernel, self.kernel

    @property
    def result(self) -> tuple[int, ...]:
        return self.batch, self.filters, *self.out

    @property
    def operations(self) -> float:
        return 2.0 * float(np.prod(self.result)) * float(np.prod(self.weight[1:])) * (2 if self.is_block else 1)

    @property
    def is_block(self) -> bool:
        return self.name.startswith("block")


CASES = (
    Case("block 4x64x56x56", 4, 64, 56, 56, 64, 3),
    Case("3x3 4x64x56x56", 4, 64, 56, 56, 64, 3),
    Case("3x3 64 of 55x57", 1, 64, 55, 57, 64, 3),
    Case("3x3 128 of 28x28", 1, 128, 28, 28, 128, 3),
    Case("3x3 256 of 14x14", 1, 256, 14, 14, 256, 3),
    Case("3x3 512 of 7x7", 1, 512, 7, 7, 512, 3),
    Case("1x1 64 to 256 of 56x56", 1, 64, 56, 56, 256, 1),
    Case("1x1 256 to 64 of 56x56", 1, 256, 56, 56, 64, 1),
    Case("1x1 512 to 128 of 28x28", 1, 512, 28, 28, 128, 1),
    Case("1x1 1024 to 256 of 14x14", 1, 1024, 14, 14, 256, 1),
    Case("1x1 256 to 1024 of 14x14", 1, 256, 14, 14, 1024, 1),
    Case("1x1 512 to 2048 of 7x7", 1, 512, 7, 7, 2048, 1),
    Case("1x1 2048 to 512 of 7x7", 1, 2048, 7, 7, 512, 1),
    Case("7x7/2 3 to 64 of 224x224", 1, 3, 224, 224, 64, 7, 2),
    Case("3x3/2 128 of 56x56", 1, 128, 56, 56, 128, 3, 2),
    Case("1x1/2 256 to 512 of 56x56", 1, 256, 56, 56, 512, 1, 2),
    Case("depthwise 3x3 32 of 112x112", 1, 32, 112, 112, 32, 3, 1, 32),
    Case("depthwise 3x3/2 64 of 112x112", 1, 64, 112, 112, 64, 3, 2, 64),
    Case("depthwise 3x3 256 of 28x28", 1, 256, 28, 28, 256, 3, 1, 256),
    Case("depthwise 3x3 512 of 14x14", 1, 512, 14, 14, 512, 3, 1, 512),
    Case("32 groups 3x3 128 of 56x56", 1, 128, 56, 56, 128, 3, 1, 32),
)


def tensor(shape: Sequence[int]) -> str:
    return f"tensor<{'x'.join(map(str, shape))}xf32>"


def source(case: Case) -> str:
    """The program as text; weights do not change from call to call, as those of ONNX Runtime's models."""
    x, w, b, y = map(tensor, (case.x, case.weight, (case.filters, 1, 1), case.result))
    steps = ", ".join(f"{name} = array<i64: {text}>" for name, text in (
        ("strides", f"{case.stride}, {case.stride}"), ("pads", ", ".join([str(case.pad)] * 4)))
    )  # fmt: skip
    conv = f"graph.conv %{{0}}, %w {{{{{steps}, groups = {case.groups} : i64}}}} : ({x}, {w}) -> {y}"
    lines = [f"%c = {conv.format('x')}", f"%a = graph.add %c, %b : ({y}, {b}) -> {y}"]
    lines.append(f"%r = graph.relu %a : ({y}) -> {y}")
    if case.is_block:
        lines += [f"%d = {conv.format('r')}", f"%e = graph.add %d, %b : ({y}, {b}) -> {y}"]
        lines += [f"%f = graph.add %e, %x : ({y}, {y}) -> {y}", f"%s = graph.relu %f : ({y}) -> {y}"]
    last = "%s" if case.is_block else "%r"
    body = "\n  ".join(lines)
    function = f"func.func @main(%x: {x}, %w: {w} {{graph.frozen}}, %b: {b}) -> {y} {{\n  {body}\n  func.return {last} : {y}\n}}"
    return f'module attributes {{graph.numerics = "finite"}} {{\n{function}\n}}'  # as inference has it


def arrays(case: Case) -> tuple[Array, Array, Array]:
    rng = np.random.default_rng(0)
    x, w, b = (rng.standard_normal(s).astype(np.float32) for s in (case.x, case.weight, (case.filters, 1, 1)))
    return x, w / np.float32(np.sqrt(np.prod(case.weight[1:]))), b


def torch_call(case: Case, x: Array, w: Array, b: Array, threads: int) -> Call:
    torch: Any = import_module("torch")
    torch.set_num_threads(threads)
    tx, tw, tb = (torch.from_numpy(array) for array in (x, w, b.reshape(-1)))

    def run() -> object:
        with torch.inference_mode():
            y = torch.nn.functional.conv2d(tx, tw, tb, case.stride, case.pad, 1, case.groups).relu_()
            if case.is_block:
                y = torch.nn.functional.conv2d(y, tw, tb, 1, case.pad).add_(tx).relu_()
            return y

    return run


def onnx_call(case: Case, x: Array, w: Array, b: Array, threads: int) -> Call:
    onnx: Any = import_module("onnx")
    onnxruntime: Any = import_module("onnxruntime")
    helper, floats = onnx.helper, onnx.TensorProto.FLOAT
    attributes = {"strides": [case.stride] * 2, "pads": [case.pad] * 4, "group": case.groups}
    nodes = [helper.make_node("Conv", ["x", "w", "b"], ["c"], **attributes), helper.make_node("Relu", ["c"], ["r"])]
    if case.is_block:
        nodes += [helper.make_node("Conv", ["r", "w", "b"], ["d"], **attributes)]
        nodes += [helper.make_node("Add", ["d", "x"], ["e"]), helper.make_node("Relu", ["e"], ["y"])]
    weights = [onnx.numpy_helper.from_array(a, name) for name, a in (("w", w), ("b", b.reshape(-1)))]
    inputs = [helper.make_tensor_value_info("x", floats, case.x)]
    outputs = [helper.make_tensor_value_info("y" if case.is_block else "r", floats, case.result)]
    graph = helper.make_graph(nodes, "g", inputs, outputs, weights)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9)
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = threads
    options.add_session_config_entry("session.intra_op.allow_spinning", "0" if threads == 1 else "1")
    session = onnxruntime.InferenceSession(model.SerializeToString(), options, providers=["CPUExecutionProvider"])
    return lambda: session.run(None, {"x": x})


def contenders(case: Case, threads: int) -> dict[str, Call]:
    x, w, b = arrays(case)
    ours, library = (fuse_opt.compile(source(case), pipeline=pipeline).freeze({1: w}) for pipeline in (None, LIBRARY))
    assert library.stats.library_calls and not ours.stats.library_calls
    out, other = (np.zeros(case.result, np.float32) for _ in range(2))
    found: dict[str, Call] = {
        "ours": lambda: ours(x, b, out=out),
        "library": lambda: library(x, b, out=other),
    }
    if find_spec("torch") is not None:
        found["PyTorch"] = torch_call(case, x, w, b, threads)
    if find_spec("onnxruntime") is not None and find_spec("onnx") is not None:
        found["ORT"] = onnx_call(case, x, w, b, threads)
    return found


def measure(calls: Sequence[Call], repeat: int, clock: Callable[[], float]) -> Array:
    """Seconds of a call, by slot and by what is called."""
    times = np.zeros((SLOTS, len(calls)))
    for call in calls:
        call()
    for slot in range(SLOTS):
        for place in range(len(calls)):
            number = (place + slot) % len(calls)
            start = clock()
            for _ in range(repeat):
                calls[number]()
            times[slot, number] = (clock() - start) / repeat
    return times


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", default="", help="cases whose name has this text")
    parser.add_argument("--threads", type=int, default=1, help="of all that are called (default: 1)")
    options = parser.parse_args()
    thread_pool.set_num_threads(options.threads)
    clock = time.process_time if options.threads == 1 else time.perf_counter
    names = ("OPENBLAS_", "MKL_", "OMP_", "DNNL_", "ONEDNN_", "FUSE_")
    settings = {name: value for name, value in os.environ.items() if name.startswith(names)}
    print("environment:", " ".join(f"{name}={value}" for name, value in sorted(settings.items())) or "nothing set")
    print(f"threads: {options.threads}")
    for case in CASES:
        if options.only not in case.name:
            continue
        found = contenders(case, options.threads)
        times = measure(list(found.values()), max(1, int(SLOT_OPERATIONS / case.operations)), clock)
        rates = case.operations / np.quantile(times, 0.25, axis=0) / 1e9
        line = "  ".join(f"{who} {rate:6.1f}" for who, rate in zip(found, rates, strict=True))
        ratios = times[:, 1:] / times[:, :1]
        shown = "  ".join(
            f"{who}/ours {least:.2f} {middle:.2f} {most:.2f}"
            for who, least, middle, most in zip(
                list(found)[1:], ratios.min(0), np.median(ratios, 0), ratios.max(0), strict=True
            )
        )
        print(f"{case.name:30} GF/s: {line}  {shown}", flush=True)


if __name__ == "__main__":
    main()
