"""Generated gradients of convolutions beside a library's and PyTorch's: `python benchmarks/convolution_gradients.py`.

    FUSE_OPT_NUM_THREADS=1 OPENBLAS_NUM_THREADS=1 OMP_NUM_THREADS=1 MKL_NUM_THREADS=1 python benchmarks/convolution_gradients.py

By the input and by the weight, of batches of four; figures are as in convolutions.py. A gradient for which no code is generated
is named, and left out.
"""

from __future__ import annotations

import argparse
import time
from dataclasses import replace
from importlib import import_module
from typing import Any

import numpy as np
from convolutions import CASES, SLOT_OPERATIONS, Call, Case, measure, tensor

import fuse_opt
from fuse_opt.runtime.host import thread_pool

BATCH = 4
ODD = (Case("3x3 61 to 67 of 57x57", 1, 61, 57, 57, 67, 3), Case("3x3/2 61 to 67 of 57x57", 1, 61, 57, 57, 67, 3, 2))


def source(case: Case, by_weight: bool) -> str:
    """The program as text."""
    name, extra, given, result = (
        ("weight", "kernel_shape", case.x, case.weight) if by_weight else ("data", "shape", case.weight, case.x)
    )
    g, a, y = map(tensor, (case.result, given, result))
    attributes = (
        f"strides = array<i64: {case.stride}, {case.stride}>, pads = array<i64: {', '.join([str(case.pad)] * 4)}>, "
        f"groups = {case.groups} : i64, {extra} = array<i64: {', '.join(map(str, result[2:]))}>"
    )
    op = f"graph.conv_backward_{name} %g, %a {{{attributes}}} : ({g}, {a}) -> {y}"
    return f"func.func @main(%g: {g}, %a: {a}) -> {y} {{\n  %y = {op}\n  func.return %y : {y}\n}}"


def contenders(case: Case, by_weight: bool, threads: int) -> dict[str, Call] | None:
    """What is measured; None where no code is generated."""
    name = "weight" if by_weight else "data"
    library = ("wrap-kernels", f'select-implementation{{prefer="blas.conv_backward_{name}"}}', "default")
    programs = [fuse_opt.compile(source(case, by_weight), pipeline=each) for each in (None, library)]
    if programs[0].stats.library_calls:
        return None
    rng, result = np.random.default_rng(0), case.weight if by_weight else case.x
    x, w, g = (rng.standard_normal(shape).astype(np.float32) for shape in (case.x, case.weight, case.result))
    found: dict[str, Call] = {}
    for who, program in zip(("ours", "library"), programs, strict=True):
        out = np.zeros(result, np.float32)
        found[who] = lambda program=program, out=out: program(g, x if by_weight else w, out=out)
    torch: Any = import_module("torch")
    torch.set_num_threads(threads)
    tensors = [torch.from_numpy(array) for array in (g, x, w)]
    rest = [
        None,
        [case.stride] * 2,
        [case.pad] * 2,
        [1, 1],
        False,
        [0, 0],
        case.groups,
        [not by_weight, by_weight, False],
    ]
    found["PyTorch"] = lambda: torch.ops.aten.convolution_backward(*tensors, *rest)
    expected: Any = torch.ops.aten.convolution_backward(*tensors, *rest)[int(by_weight)].numpy()
    error = float(np.abs(np.asarray(found["ours"]()) - expected).max() / np.abs(expected).max())
    assert error < 1e-4, (case.name, error)
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", default="", help="cases whose name has this text")
    parser.add_argument("--threads", type=int, default=1, help="of all that are called (default: 1)")
    options = parser.parse_args()
    thread_pool.set_num_threads(options.threads)
    clock = time.process_time if options.threads == 1 else time.perf_counter
    cases = [replace(case, batch=BATCH) for case in (*CASES, *ODD) if not case.is_block and options.only in case.name]
    for case in {case.name: case for case in cases}.values():
        for by_weight in (False, True):
            title = f"{case.name} by {'weight' if by_weight else 'input'}"
            if (found := contenders(case, by_weight, options.threads)) is None:
                print(f"{title:44} no code is generated")
                continue
            times = measure(list(found.values()), max(1, int(SLOT_OPERATIONS / case.operations)), clock)
            rates = case.operations / np.quantile(times, 0.25, axis=0) / 1e9
            ratios = times[:, 1:] / times[:, :1]
            print(
                f"{title:44} GF/s:",
                "  ".join(f"{who} {rate:6.1f}" for who, rate in zip(found, rates, strict=True)),
                "  ".join(
                    f"{who}/ours {least:.2f} {middle:.2f} {most:.2f}"
                    for who, least, middle, most in zip(
                        list(found)[1:], ratios.min(0), np.median(ratios, 0), ratios.max(0), strict=True
                    )
                ),
                flush=True,
            )


if __name__ == "__main__":
    main()
