"""Functions of PyTorch, one at a time, through torch.compile beside eager: which are slower, and whether results agree.

    python benchmarks/torch_ops.py [--elements 250000 4000000] [--inductor] [--dynamic] [--only TEXT] [--rounds 15] [--all]

Calls are in turn, each behind one of its own: results lie where its last one lay, in caches or not, for each alike. What
Dynamo and the call cost is that of adding 1 to four numbers behind a call of eager, as caches are cold then; it is taken away
before ratios are built. Functions whose ratio is above 1.1, or whose
results have other types, shapes, strides or values than eager's, are printed, worst first. One thread.
"""

from __future__ import annotations

import argparse
import statistics
import sys
import time
import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, cast

from function_table import environment
from torch_op_cases import arguments, cases, function

from fuse_opt.frontends.torch.fx.api import torch

SHOWN = 1.1
"""Ratios to eager from which on a function is printed."""
TOLERANCE = {"torch.float16": 4e-3, "torch.bfloat16": 3e-2, "torch.float32": 1e-4, "torch.float64": 1e-9}


@dataclass(frozen=True)
class Measured:
    """Microseconds of a call: eager's, ours, Inductor's where asked for; less the cost of a call through torch.compile."""

    text: str
    times: Mapping[str, float]
    difference: str

    def ratio(self, peer: str = "eager") -> float:
        return self.times["ours"] / self.times[peer]


def compiled(call: Callable[..., Any], backend: str, dynamic: bool) -> Callable[..., Any]:
    torch._dynamo.reset()
    return torch.compile(call, backend=backend, dynamic=dynamic)


def add_one(x: Any) -> Any:
    return x + 1


def difference(ours: Any, eager: Any) -> str:
    """What is not as eager has it: empty where all is."""
    if isinstance(eager, tuple):
        pairs = zip(ours, cast("tuple[Any, ...]", eager), strict=True)
        return next((found for pair in pairs if (found := difference(*pair))), "")
    if (ours.dtype, ours.shape, ours.stride()) != (eager.dtype, eager.shape, eager.stride()):
        return f"{ours.dtype} {tuple(ours.shape)} {ours.stride()}, eager {eager.dtype} {tuple(eager.shape)} {eager.stride()}"
    bound = TOLERANCE.get(str(eager.dtype), 0.0)
    return "" if torch.allclose(ours.double(), eager.double(), bound, bound, equal_nan=True) else "other values"


def measure(text: str, given: Mapping[str, Any], peers: Sequence[str], rounds: int, dynamic: bool) -> Measured:
    call, values = function(text, given)
    one = torch.ones(4)
    calls: dict[str, Callable[[], Any]] = {"eager": lambda: call(*values)}
    for name in peers:
        made = compiled(call, "fuse_opt" if name == "ours" else name, dynamic)
        calls[name] = lambda made=made: made(*values)
    found = difference(calls["ours"](), calls["eager"]())
    small = torch.compile(add_one, backend="fuse_opt", dynamic=False)
    calls |= {"fixed": lambda: small(one), "least": lambda: one + 1}
    times: dict[str, list[float]] = {name: [] for name in calls}
    for turn in range(rounds + 2):
        for name, run in calls.items():
            calls[name if name in ("eager", *peers) else "eager"]()
            start = time.perf_counter()
            run()
            if turn >= 2:
                times[name].append(time.perf_counter() - start)
    medians = {name: statistics.median(each) * 1e6 for name, each in times.items()}
    fixed = max(0.0, medians["fixed"] - medians["least"])
    return Measured(text, {n: medians[n] - (fixed if n != "eager" else 0) for n in ("eager", *peers)}, found)


def table(elements: int, peers: Sequence[str], options: argparse.Namespace) -> list[Measured]:
    given, found = arguments(elements), list[Measured]()
    for text in cases():
        if options.only and options.only not in text:
            continue
        try:
            found.append(measure(text, given, peers, options.rounds, options.dynamic))
        except RuntimeError as error:
            print(f"  {text}: {type(error).__name__}: {str(error).splitlines()[0][:90]}", file=sys.stderr)
    return sorted(found, key=Measured.ratio, reverse=True)


def main(arguments_: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--elements", type=int, nargs="+", default=[250_000, 4_000_000])
    parser.add_argument("--inductor", action="store_true")
    parser.add_argument("--dynamic", action="store_true", help="of any extents")
    parser.add_argument("--only", default="")
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--all", action="store_true")
    options = parser.parse_args(arguments_)
    torch.set_num_threads(1)
    print(environment())
    peers = ["ours", *(["inductor"] if options.inductor else [])]
    for elements in options.elements:
        with torch.no_grad(), warnings.catch_warnings():
            warnings.simplefilter("ignore")
            found = table(elements, peers, options)
        print(f"{elements} elements, {len(found)} functions; us of eager, {', '.join(peers)}; ours / eager")
        for each in found:
            if options.all or each.ratio() > SHOWN or each.difference:
                shown = "  ".join(f"{each.times[name]:8.0f}" for name in ("eager", *peers))
                print(f"  {shown}  {each.ratio():5.2f}  {each.text}  {each.difference}")


if __name__ == "__main__":
    main()
