"""What models become on CUDA, without a device: ops on the host, launches, arenas; with --check their values by emulation.

    python benchmarks/gpu_models.py [--models bert,llama] [--training] [--check | --device]

The models are those of fuse_opt.frontends.torch.models, of batch 1, ResNet-50 on images of 64 by 64 (resnet50), and GPT-2 with
its loss (gpt2_loss: embedding to cross entropy); needs PyTorch, transformers. --check compiles the CUDA C for the CPU (g++), runs
it on random arguments, library calls by NumPy, and gives the largest difference from the reference, relative to the largest
element of each result; --device runs them on the GPU that is there, twice, by launches and by a replayed graph.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable
from typing import Any

import numpy as np
import torch

import fuse_opt
from fuse_opt.frontends.torch.export import export
from fuse_opt.frontends.torch.models import MODELS, Make, Sample, gpt2
from fuse_opt.lowering.emit.cuda import build_cuda_program
from fuse_opt.runtime.emulation.program import EmulatedProgram
from fuse_opt.tools.compiler.api import evaluate

Runs = Callable[[list[Any]], list[list[Any]]]
"""Of a program on arrays: the results of each of its runs."""
_WORDS = 2
"""Integers are below it: positions in every table of the models."""
_TOLERANCE = 1e-3
"""Above which a model is wrong, relative to its largest result."""


class _Bottleneck(torch.nn.Module):
    """A block of ResNet-50 (He et al. 2015)."""

    def __init__(self, given: int, inner: int, stride: int) -> None:
        super().__init__()
        nn, out = torch.nn, 4 * inner

        def conv(a: int, b: int, size: int, step: int = 1) -> list[Any]:
            return [nn.Conv2d(a, b, size, step, size // 2, bias=False), nn.BatchNorm2d(b)]

        self.body = nn.Sequential(
            *conv(given, inner, 1), nn.ReLU(), *conv(inner, inner, 3, stride), nn.ReLU(), *conv(inner, out, 1)
        )
        self.short = nn.Sequential(*conv(given, out, 1, stride)) if stride > 1 or given != out else nn.Identity()

    def forward(self, x: Any) -> Any:
        return torch.relu(self.body(x) + self.short(x))


def resnet50(batch: int) -> Sample:
    nn = torch.nn
    layers: list[Any] = [nn.Conv2d(3, 64, 7, 2, 3, bias=False), nn.BatchNorm2d(64), nn.ReLU(), nn.MaxPool2d(3, 2, 1)]
    given = 64
    for stage, count in enumerate((3, 4, 6, 3)):
        for block in range(count):
            layers.append(_Bottleneck(given, 64 << stage, 2 if stage and not block else 1))
            given = 256 << stage
    head = [nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(2048, 1000)]
    return Sample(nn.Sequential(*layers, *head).eval(), (torch.randn(batch, 3, 64, 64),))


class _Loss(torch.nn.Module):
    """What a model of words is trained by."""

    def __init__(self, model: Any) -> None:
        super().__init__()
        self.model = model

    def forward(self, tokens: Any, next_tokens: Any) -> Any:
        scores = self.model(tokens)
        return torch.nn.functional.cross_entropy(scores.flatten(0, 1), next_tokens.flatten())


def gpt2_loss(batch: int) -> Sample:
    sample = gpt2(batch)
    return Sample(_Loss(sample.model), (*sample.arguments, torch.randint(0, 1000, (batch, 128))))


ALL: dict[str, Make] = {**MODELS, "resnet50": resnet50, "gpt2_loss": gpt2_loss}


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


def emulated(module: Any) -> Runs:
    program = EmulatedProgram(build_cuda_program(module))
    return lambda arrays: [program.run(arrays)]


def on_device(compiled: fuse_opt.CompiledProgram) -> Runs:
    def run(arrays: list[Any]) -> list[list[Any]]:
        results = [compiled(*(array.copy() for array in arrays)) for _ in range(3)]
        return [[*each] if isinstance(each, tuple) else [each] for each in results]

    return run


def difference(text: str, module: Any, runs: Runs) -> float:
    arrays = arguments_of(build_cuda_program(module))
    wanted = evaluate(text, *arrays)
    wanted = wanted if isinstance(wanted, tuple) else (wanted,)
    worst = 0.0
    for found in runs(arrays):
        for a, b in zip(found, wanted, strict=True):
            assert np.isfinite(b).all(), "the reference is not finite: choose other arguments"
            size = max(float(np.abs(b).max(initial=0)), 1e-6)
            gap = float(np.abs(a.reshape(b.shape).astype(np.float64) - b).max(initial=0)) / size
            worst = max(worst, gap if gap == gap else np.inf)
    return worst


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--models", default="resnet50,bert,gpt2_loss,llama", help=f"of {', '.join(ALL)}")
    parser.add_argument("--training", action="store_true", help="forward and backward graphs")
    parser.add_argument("--check", action="store_true", help="run them by emulation, too")
    parser.add_argument("--device", action="store_true", help="run them on the GPU that is there, too")
    options = parser.parse_args()
    checks = options.check or options.device
    print("| model | graph | host ops | launches | arena | bound |" + (" error |" if checks else ""))
    print("|---" * (7 if checks else 6) + "|")
    wrong = 0
    for name in options.models.split(","):
        sample = ALL[name](1)
        for number, text in enumerate(export(sample.model, sample.arguments, training=options.training)):
            compiled = fuse_opt.compile(text, target="cuda")
            stats = compiled.stats
            cells = [name, ("forward", "backward")[number], stats.host_ops, stats.launches, stats.arena_bytes]
            cells.append(stats.lower_bound_bytes)
            if checks:
                runs = on_device(compiled) if options.device else emulated(compiled.module)
                cells.append(f"{(error := difference(text, compiled.module, runs)):.1e}")
                wrong += error > _TOLERANCE
            print("| " + " | ".join(map(str, cells)) + " |", flush=True)
    if wrong:
        sys.exit(f"gpu_models.py: {wrong} graphs are further than {_TOLERANCE} from the reference")


if __name__ == "__main__":
    main()
