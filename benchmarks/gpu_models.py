"""What models become on CUDA, without a device: ops on the host, launches, arenas; with --check their values by emulation.

    python benchmarks/gpu_models.py [--models bert,llama] [--training] [--check]

The models are those of fuse_opt.frontends.torch.models, of batch 1; needs PyTorch, transformers. --check compiles the CUDA C for
the CPU (g++), runs it on random arguments, library calls by NumPy, and gives the largest difference from the reference, relative
to the largest element of each result.
"""

from __future__ import annotations

import argparse
from typing import Any

import numpy as np

import fuse_opt
from fuse_opt.frontends.torch.export import export
from fuse_opt.frontends.torch.models import MODELS
from fuse_opt.lowering.emit.cuda import build_cuda_program
from fuse_opt.runtime.emulation.program import EmulatedProgram
from fuse_opt.tools.compiler.api import evaluate

_WORDS = 2
"""Integers are below it: positions in every table of the models."""


def arguments_of(program: Any, seed: int = 0) -> list[Any]:
    """Arrays for a program: small floats, vectors of positive ones, as some are variances."""
    random = np.random.default_rng(seed)
    made: list[Any] = []
    for buffer in program.buffers:
        if buffer.kind != "argument":
            continue
        if buffer.dtype in ("f32", "f64"):
            values = 0.1 * random.standard_normal(buffer.shape)
            values = np.abs(values) + 0.5 if len(buffer.shape) == 1 else values
            made.append(values.astype(np.float32 if buffer.dtype == "f32" else np.float64))
        elif buffer.dtype == "i1":
            made.append(np.ones(buffer.shape, np.bool_))  # masks, of which no row may be empty
        else:
            made.append(random.integers(0, _WORDS, buffer.shape, np.int64).astype(f"int{buffer.dtype[1:]}"))
    return made


def difference(text: str, module: Any) -> float:
    program = build_cuda_program(module)
    arrays = arguments_of(program)
    wanted = evaluate(text, *arrays)
    wanted = wanted if isinstance(wanted, tuple) else (wanted,)
    found = EmulatedProgram(program).run(arrays)
    worst = 0.0
    for a, b in zip(found, wanted, strict=True):
        assert np.isfinite(b).all(), "the reference is not finite: choose other arguments"
        size = max(float(np.abs(b).max(initial=0)), 1e-6)
        worst = max(worst, float(np.abs(a.reshape(b.shape).astype(np.float64) - b).max(initial=0)) / size)
    return worst


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--models", default="resnet,bert,gpt2,llama", help=f"of {', '.join(MODELS)}")
    parser.add_argument("--training", action="store_true", help="forward and backward graphs")
    parser.add_argument("--check", action="store_true", help="run them by emulation, too")
    options = parser.parse_args()
    print("| model | graph | host ops | launches | arena | bound |" + (" error |" if options.check else ""))
    print("|---" * (7 if options.check else 6) + "|")
    for name in options.models.split(","):
        sample = MODELS[name](1)
        for number, text in enumerate(export(sample.model, sample.arguments, training=options.training)):
            compiled = fuse_opt.compile(text, target="cuda")
            stats = compiled.stats
            cells = [name, ("forward", "backward")[number], stats.host_ops, stats.launches, stats.arena_bytes]
            cells.append(stats.lower_bound_bytes)
            if options.check:
                cells.append(f"{difference(text, compiled.module):.1e}")
            print("| " + " | ".join(map(str, cells)) + " |", flush=True)


if __name__ == "__main__":
    main()
