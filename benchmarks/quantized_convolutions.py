"""QLinearConv against ONNX Runtime, on shapes of quantised networks: one image, u8 x i8, scales by filter and a bias.

ResNet-50's, those of ResNeXt-50 with its 32 groups, and depthwise ones of MobileNetV2.

    python benchmarks/quantized_convolutions.py [--turns 11] [--only 3x3] [--backend onednn]

Prints processor time of a call, the lower quartile of turns in rotation, and the ratios' smallest, middle and largest. Threads
are those of FUSE_OPT_NUM_THREADS (1 when it is not set) for all; results are compared byte by byte before. With a backend it
takes turns, too, behind ours: its ratios are to ONNX Runtime, and in the last column is what runs the sums.
"""

from __future__ import annotations

import argparse
import os
import statistics
import time
from collections.abc import Callable
from importlib import import_module
from typing import Any

import numpy as np

from fuse_opt.frontends.onnx import load

onnx: Any = import_module("onnx")
onnxruntime: Any = import_module("onnxruntime")

Shape = tuple[int, int, int, int, int, int]
SHAPES: list[Shape] = [
    # channels, filters, size, window, stride, groups
    (64, 64, 56, 3, 1, 1),
    (128, 128, 28, 3, 1, 1),
    (128, 128, 56, 3, 2, 1),
    (256, 256, 14, 3, 1, 1),
    (512, 512, 7, 3, 1, 1),
    (64, 256, 56, 1, 1, 1),
    (256, 64, 56, 1, 1, 1),
    (512, 128, 28, 1, 1, 1),
    (256, 1024, 14, 1, 1, 1),
    (1024, 256, 14, 1, 1, 1),
    (512, 2048, 7, 1, 1, 1),
    (256, 512, 56, 1, 2, 1),
    (128, 128, 56, 3, 1, 32),
    (256, 256, 28, 3, 1, 32),
    (512, 512, 14, 3, 1, 32),
    (1024, 1024, 7, 3, 1, 32),
    (32, 32, 112, 3, 1, 32),
    (96, 96, 112, 3, 2, 96),
    (144, 144, 56, 3, 1, 144),
    (192, 192, 28, 3, 1, 192),
    (384, 384, 14, 3, 1, 384),
    (576, 576, 14, 3, 2, 576),
    (960, 960, 7, 3, 1, 960),
    (240, 240, 14, 5, 1, 240),
]
CALLS = 3
"""Of a turn."""
Run = Callable[[], Any]


def model(channels: int, filters: int, size: int, window: int, stride: int, groups: int) -> Any:
    """A model of one QLinearConv."""
    rng = np.random.default_rng(0)
    weight = rng.integers(-127, 128, (filters, channels // groups, window, window)).astype(np.int8)
    given = {
        "xs": np.float32(0.02),
        "xz": np.uint8(121),
        "w": weight,
        "ws": (rng.random(filters) * 0.01 + 1e-3).astype(np.float32),
        "wz": np.zeros(filters, np.int8),
        "ys": np.float32((channels / groups) ** 0.5 * window * 0.02),
        "yz": np.uint8(118),
        "b": rng.integers(-1000, 1000, filters).astype(np.int32),
    }
    pads = [window // 2] * 4
    node = onnx.helper.make_node(
        "QLinearConv", ["x", *given], ["y"], pads=pads, strides=[stride] * 2, kernel_shape=[window] * 2, group=groups
    )
    result = -(-size // stride)
    x = onnx.helper.make_tensor_value_info("x", onnx.TensorProto.UINT8, [1, channels, size, size])
    y = onnx.helper.make_tensor_value_info("y", onnx.TensorProto.UINT8, [1, filters, result, result])
    initializers = [onnx.numpy_helper.from_array(np.asarray(value), name) for name, value in given.items()]
    graph = onnx.helper.make_graph([node], "convolution", [x], [y], initializers)
    return onnx.helper.make_model(graph, opset_imports=[onnx.helper.make_opsetid("", 17)], ir_version=9)


def seconds(run: Run) -> float:
    start = time.process_time()
    for _ in range(CALLS):
        run()
    return (time.process_time() - start) / CALLS


def our_call(proto: Any, x: Any, backend: str = "") -> tuple[Run, str]:
    """The model by us, with a backend, compiled; and what runs the sums of its convolution."""
    before = os.environ.pop("FUSE_OPT_BACKEND", None)
    os.environ |= {"FUSE_OPT_BACKEND": backend} if backend else {}
    program = load(onnx.load_from_string(proto.SerializeToString()))
    program(x)
    os.environ.pop("FUSE_OPT_BACKEND", None)
    os.environ |= {} if before is None else {"FUSE_OPT_BACKEND": before}
    (compiled,) = program._programs.values()  # pyright: ignore[reportPrivateUsage]
    return lambda: program(x)[0], " ".join(compiled.implementations)


def compare(shape: Shape, threads: int, turns: int, backend: str) -> str:
    """A line about a shape."""
    channels, filters, size, window, stride, groups = shape
    found = model(*shape)
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = threads
    session = onnxruntime.InferenceSession(found.SerializeToString(), options, providers=["CPUExecutionProvider"])
    x = np.random.default_rng(1).integers(0, 256, (1, channels, size, size)).astype(np.uint8)
    calls = [our_call(found, x, name) for name in (["", backend] if backend else [""])]
    runs: list[Run] = [*(run for run, _ in calls), lambda: session.run(None, {"x": x})[0]]
    results = [np.asarray(run()) for run in runs]
    differing = max(int((each.reshape(results[-1].shape) != results[-1]).sum()) for each in results)
    times: list[list[float]] = [[] for _ in runs]
    for _ in range(turns):
        for number, run in enumerate(runs):
            times[number].append(seconds(run))
    low = " ".join(f"{statistics.quantiles(each, n=4)[0] * 1e3:8.3f}" for each in times)
    name = f"{channels} to {filters} of {size}x{size}, {window}x{window}" + (f" by {stride}" if stride > 1 else "")
    name += f", {groups} groups" if groups > 1 else ""
    spreads = "   ".join(_spread(each, times[-1]) for each in times[:-1])
    return f"{name:48s} {low}   {spreads}   {differing} bytes differ" + (f"   {calls[-1][1]}" if backend else "")


def _spread(ours: list[float], theirs: list[float]) -> str:
    ratios = sorted(a / b for a, b in zip(ours, theirs, strict=True))
    return f"{ratios[0]:.2f} {statistics.median(ratios):.2f} {ratios[-1]:.2f}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--turns", type=int, default=11)
    parser.add_argument("--only", default="", help="shapes whose window is this, as 3x3")
    parser.add_argument("--grouped", action="store_true", help="those in groups alone")
    parser.add_argument("--backend", default="", help="another call of ours, with it")
    arguments = parser.parse_args()
    threads = int(os.environ.setdefault("FUSE_OPT_NUM_THREADS", "1"))
    known = {k: v for k, v in sorted(os.environ.items()) if k.startswith(("OPENBLAS_", "MKL_", "OMP_", "FUSE_OPT_"))}
    print(f"threads {threads}, onnxruntime {onnxruntime.__version__}, {known}")
    columns = " ".join(f"{name:>8s}" for name in ("ours", *([arguments.backend] if arguments.backend else []), "ORT"))
    print(f"{'milliseconds of processor time':48s} {columns}   ratios: least, median, most")
    for shape in SHAPES:
        if arguments.only in ("", f"{shape[3]}x{shape[3]}") and (shape[-1] > 1 or not arguments.grouped):
            print(compare(shape, threads, arguments.turns, arguments.backend), flush=True)


if __name__ == "__main__":
    main()
