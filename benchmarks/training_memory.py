"""Memory of steps of training: `python benchmarks/training_memory.py [--models bert,unet] [--batch 8]`, which needs torch.

A step is forward, backward, and nothing else, of a model without dropout; one thread, and processor time of all in turns, as
parts of the first row's: least, median, largest. Rows are the default passes without `rematerialize`, the default ones, those
within a budget of half the bytes that these need (`--kinds default,budget:0.8,budget:0.6` has other parts of them), Inductor with
its own partitioner, and eager PyTorch. A last line says how many of ours no other one beats in bytes and time.

`arena` is of the forward graph and of the backward graph, `saved` what the first keeps for the second, `bytes` the larger arena
with what is saved. `process` is by how much the process grows over what it has between steps, gradients included: each row has a
process of its own for that, forked behind all compiling. `compiling` is the first step's processor time; budgets of a model go on
with what those before them have found.
"""

from __future__ import annotations

import argparse
import ctypes
import os
import re
import time
import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

os.environ.setdefault("TORCHINDUCTOR_COMPILE_THREADS", "1")

import numpy as np
from rotation import measure
from torch_models import training, without_dropout

from fuse_opt.frontends.torch.backend import collect_reports
from fuse_opt.frontends.torch.fx.api import torch
from fuse_opt.frontends.torch.models import MODELS
from fuse_opt.frontends.torch.partitioning import keep_trials
from fuse_opt.passes.recompute.trials import undominated
from fuse_opt.tools.compiler.api import limit_threads
from fuse_opt.tools.compiler.pipeline import DEFAULT_PIPELINE

WITHOUT = ",".join(name for name in DEFAULT_PIPELINE if name != "rematerialize")
NAMES = ("bert", "gpt2", "resnet", "unet")
SLOT_SECONDS = 0.3


@dataclass
class Variant:
    """A compiled step, and what our reports say of it."""

    call: Callable[[], Any]
    forward: int = 0
    backward: int = 0
    saved: int = 0
    problem: str = ""

    @property
    def nbytes(self) -> int:
        """Of intermediate values at once."""
        return self.saved + max(self.forward, self.backward)


def variant(name: str, kind: str, batch: int, budget: int = 0) -> Variant:
    """A step of a model: `kind` is without, default, budget, inductor or eager."""
    torch.manual_seed(0)
    sample = MODELS[name](batch)
    model: Any = without_dropout(sample.model)
    options: dict[str, Any] = {"strict": True}
    if kind == "without":
        options["pipeline"] = WITHOUT
    if budget:
        options["budget"] = f"{budget}B"
    if kind == "inductor":
        model = torch.compile(model, backend="inductor", dynamic=False)
    elif kind != "eager":
        model = torch.compile(model, backend="fuse_opt", dynamic=False, options=options)
    step = training(model, sample)
    with collect_reports() as reports, warnings.catch_warnings():
        warnings.simplefilter("ignore")
        step()
    found = Variant(step)
    for graph in reports.graphs:
        found.saved += graph.saved
        if graph.kind == "forward":
            found.forward += graph.stats.arena_bytes
        else:
            found.backward = max(found.backward, graph.stats.arena_bytes)
    return found


def grown(step: Callable[[], Any], model_steps: int = 3) -> int:
    """By how many bytes the process grows, at most, over what it has between steps."""
    step()
    ctypes.CDLL(None).malloc_trim(0)
    Path("/proc/self/clear_refs").write_text("5")
    before = _status("VmRSS")
    for _ in range(model_steps):
        step()
    return _status("VmHWM") - before


def _status(name: str) -> int:
    found = re.search(rf"{name}:\s+(\d+) kB", Path("/proc/self/status").read_text())
    assert found is not None
    return 1024 * int(found[1])


def apart(step: Callable[[], Any]) -> int:
    """What `grown` says in a process of its own, which has the step as it is compiled."""
    reading, writing = os.pipe()
    if not (child := os.fork()):
        try:
            os.write(writing, str(grown(step)).encode())
        finally:
            os._exit(0)
    os.close(writing)
    with os.fdopen(reading) as said:
        text = said.read()
    os.waitpid(child, 0)
    return int(text) if text else -1


def table(name: str, batch: int, kinds: Sequence[str]) -> None:
    """Prints what is known of one model."""
    torch._dynamo.reset()  # once: those that are compiled before it would be so again, at their next calls
    made: dict[str, Variant] = {}
    compiling: dict[str, float] = {}
    budgets = dict.fromkeys(kinds, 0)
    for kind in kinds:
        if kind.startswith("budget"):
            part = float(kind.partition(":")[2] or 0.5)
            budgets[kind] = int(part * made["default"].nbytes)
        before = time.process_time()
        try:
            made[kind] = variant(name, kind, batch, budgets[kind])
            compiling[kind] = time.process_time() - before
        except Exception as error:
            spent = f"{time.process_time() - before:.1f} s"
            print(
                f"{name:8} {kind:9} {type(error).__name__}: {' '.join(str(error).split())[:400]}, {spent}", flush=True
            )
    seconds = measure([each.call for each in made.values()], SLOT_SECONDS)
    for number, (kind, each) in enumerate(made.items()):
        ratios = seconds[:, number] / seconds[:, 0]
        times = f"{ratios.min():.3f} {np.median(ratios):.3f} {ratios.max():.3f}"
        figures = f"{each.forward:10} {each.backward:10} {each.saved:10} {each.nbytes:10}"
        limit = f"   budget {budgets[kind]}" if budgets[kind] else ""
        print(f"{name:8} {kind:9} {figures} {apart(each.call):10}   {times} {compiling[kind]:9.1f}{limit}", flush=True)
    ours = {kind: number for number, kind in enumerate(made) if kind not in ("inductor", "eager")}
    points = [(made[kind].nbytes, float(np.median(seconds[:, k] / seconds[:, 0]))) for kind, k in ours.items()]
    print(f"{name:8} {len(undominated(points))} of {len(points)} programs of ours are beaten by no other one")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--models", default=",".join(NAMES))
    parser.add_argument("--batch", type=int, default=8)
    parser.add_argument("--kinds", default="without,default,budget,inductor,eager")
    options = parser.parse_args()
    limit_threads(1)
    torch.set_num_threads(1)
    torch._dynamo.config.recompile_limit = 64  # all steps of a model are of one function
    print("model    passes       forward   backward      saved      bytes    process   time min median max compiling")
    for name in options.models.split(","):
        with keep_trials():
            table(name, options.batch, options.kinds.split(","))


if __name__ == "__main__":
    main()
