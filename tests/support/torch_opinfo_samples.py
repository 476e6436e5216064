"""The first samples of every operator of PyTorch's OpInfo, forward and backward, through the torch backend's compiler.

    python tests/support/torch_opinfo_samples.py [--samples 3] [--dtypes float32,int64] [--gradients] [--ops add,sum] [--jobs 2]

Where `torch_opinfo.py` looks for overloads that are claimed, this one takes whatever there is: each sample is traced as
torch.compile traces it, compiled whole, run, and compared with eager: values, shapes, element types and strides. A value may
differ by more than rounding only where it is at least as near to the one in f64, or where PyTorch's own run of the traced
graph gives it, too (its decompositions round in other places); strides may be those of that run. With `--gradients` the
gradients of all floating operands are compared in the same way. Prints the share of graphs that run only by PyTorch, what was
right, wrong and skipped with reasons; exit status 1 when something is wrong.
"""

from __future__ import annotations

import argparse
import sys
import traceback
import warnings
from collections import Counter
from collections.abc import Callable, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, field
from functools import partial
from importlib import import_module
from multiprocessing import get_context
from typing import Any

from torch_opinfo import as_function, beside, difference, exact, operators, random_or_undefined, samples

from fuse_opt.frontends.torch.backend import compile_graph
from fuse_opt.frontends.torch.fx.api import torch
from fuse_opt.frontends.torch.operators.decompositions import decompositions
from fuse_opt.frontends.torch.report import collect_reports


@dataclass
class Found:
    """What became of the samples."""

    right: int = 0
    wrong: list[str] = field(default_factory=list[str])
    skipped: Counter[str] = field(default_factory=Counter[str])
    graphs: int = 0
    left: int = 0
    """Graphs that have no node of ours, views apart."""

    def add(self, other: Found) -> None:
        self.right += other.right
        self.wrong += other.wrong
        self.skipped += other.skipped
        self.graphs += other.graphs
        self.left += other.left


class DrawsError(Exception):
    """A graph draws random numbers, in another order than eager: OpInfo seeds within the operator."""


def compiled(run: Callable[..., Any], plain: list[list[Any]], may_draw: bool = True) -> Callable[..., Any]:
    """The function by AOTAutograd with the backend's compiler; `plain` gets what PyTorch's own run of each graph gives."""

    def compiler(kind: str, graph_module: Any, inputs: list[Any]) -> Any:
        tags = [tag for node in graph_module.graph.nodes for tag in getattr(node.target, "tags", ())]
        if not may_draw and torch.Tag.nondeterministic_seeded in tags:
            raise DrawsError
        return beside(compile_graph(graph_module, inputs, kind=kind), graph_module, plain)

    partition = import_module("torch._functorch.partitioners").min_cut_rematerialization_partition
    aot_function: Any = import_module("functorch.compile").aot_function
    return aot_function(
        run,
        fw_compiler=partial(compiler, "forward"),
        bw_compiler=partial(compiler, "backward"),
        inference_compiler=partial(compiler, "inference"),
        decompositions=decompositions(),
        partition_fn=partition,
    )


def strides_differ(given: Sequence[Any], wanted: Sequence[Any], plain: Sequence[Any]) -> str | None:
    """The first result whose strides are neither eager's nor those of PyTorch's run of the graph."""
    for number, (a, b) in enumerate(zip(given, wanted, strict=True)):
        if not isinstance(b, torch.Tensor) or b.layout != torch.strided or b.numel() < 2:
            continue
        others = [b, *(p for p in plain[number : number + 1] if isinstance(p, torch.Tensor))]
        if not any(same_strides(a, other) for other in others):
            return f"result {number} has the strides {a.stride()}, expected {b.stride()} for {tuple(b.shape)}"
    return None


def same_strides(a: Any, b: Any) -> bool:
    return all(n == 1 or s == t for n, s, t in zip(a.shape, a.stride(), b.stride(), strict=True))


def check(op: Any, sample: Any, gradients: bool, found: Found) -> str | None:
    """What is wrong with a sample."""
    tensors, run = as_function(op, sample)
    plain: list[list[Any]] = []
    torch.manual_seed(0)
    with collect_reports() as reports:
        if gradients:
            given, wanted = (differentiated(call, tensors) for call in (compiled(run, plain, may_draw=False), run))
        else:
            wanted = run(*(t.clone() for t in tensors))
            given = compiled(run, plain)(*(t.clone() for t in tensors))
    for graph in reports.graphs:
        found.graphs += 1
        found.left += graph.counts.native == 0 and bool(graph.counts.external)
    last = plain[-1] if plain else []
    problem = difference(given, wanted)
    if problem is not None and not gradients and difference(given, last[: len(wanted)] or wanted) is None:
        problem = None
    if problem is not None and all(t.dtype != torch.complex64 for t in tensors):
        precise = (
            differentiated(run, [t.double() if t.is_floating_point() else t for t in tensors])
            if gradients
            else exact(op, sample)
        )
        problem = difference(given, wanted, precise)
    return problem or (None if gradients else strides_differ(given, wanted, last))


def differentiated(call: Callable[..., Any], tensors: Sequence[Any]) -> list[Any]:
    """The results, and the gradients of all floating operands for a fixed gradient of the results."""
    torch.manual_seed(0)
    given = [t.clone().requires_grad_(t.is_floating_point()) for t in tensors]
    results = [r for r in call(*given) if isinstance(r, torch.Tensor)]
    roots = [r for r in results if r.requires_grad]
    if not roots:
        return [r.detach() for r in results]
    weights = [torch.linspace(-1, 1, r.numel()).to(r.dtype).reshape(r.shape) for r in roots]
    torch.autograd.backward(roots, weights)
    empty = torch.zeros(0)
    return [*(r.detach() for r in results), *(empty if t.grad is None else t.grad for t in given)]


def skip_reason(op: Any, dtype: Any, gradients: bool) -> str | None:
    if dtype not in op.supported_dtypes("cpu"):
        return "not for this element type"
    if random_or_undefined(op):
        return "random or undefined results"
    if gradients and (not op.supports_autograd or dtype not in op.supported_backward_dtypes("cpu")):
        return "has no gradient"
    return None


def run_op(op: Any, dtype: Any, count: int, gradients: bool) -> Found:
    found = Found()
    if (reason := skip_reason(op, dtype, gradients)) is not None:
        found.skipped[reason] += 1
        return found
    try:
        given = [s for s, _ in zip(samples(op, dtype), range(count), strict=False)]
    except Exception as error:
        found.skipped[f"no samples ({type(error).__name__})"] += 1
        return found
    for number, sample in enumerate(given):
        if sample.kwargs.get("dropout_p"):
            found.skipped["random or undefined results"] += 1
            continue
        try:
            problem = check(op, sample, gradients, found)
        except DrawsError:
            found.skipped["random or undefined results"] += 1
            continue
        except Exception as error:
            if is_theirs(error):
                found.skipped[f"PyTorch does not trace or run it ({type(error).__name__})"] += 1
                continue
            problem = traceback.format_exc(limit=-5).replace("\n", " | ")[-600:]
        if problem is None:
            found.right += 1
        else:
            found.wrong.append(f"{op.name} {op.variant_test_name} {dtype} sample {number}: {problem}")
            print("WRONG", found.wrong[-1], flush=True)
    return found


def is_theirs(error: BaseException) -> bool:
    """Whether no code of this project had a part in an error."""
    frames = traceback.extract_tb(error.__traceback__)
    ours = [frame for frame in frames if "/frontends/" in frame.filename or "<fuse_opt" in frame.filename]
    return not ours


def share(number: int, jobs: int, given: argparse.Namespace) -> Found:
    warnings.filterwarnings("ignore")
    torch.set_num_threads(1)
    found = Found()
    for op in operators(set(filter(None, given.ops.split(","))))[number::jobs]:
        for name in given.dtypes.split(","):
            found.add(run_op(op, getattr(torch, name), given.samples, given.gradients))
    return found


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--ops", default="", help="names of OpInfo, separated by commas")
    parser.add_argument("--dtypes", default="float32,int64,bool,bfloat16,float16")
    parser.add_argument("--samples", type=int, default=3, help="of each operator and element type")
    parser.add_argument("--gradients", action="store_true", help="gradients, too")
    parser.add_argument("--jobs", type=int, default=1, help="processes that share the operators")
    given = parser.parse_args()
    total = Found()
    if given.jobs == 1:
        total = share(0, 1, given)
    else:
        with ProcessPoolExecutor(given.jobs, mp_context=get_context("spawn")) as pool:
            for done in [pool.submit(share, number, given.jobs, given) for number in range(given.jobs)]:
                total.add(done.result())
    print(
        f"{given.dtypes}{' with gradients' if given.gradients else ''}: {total.right} right, {len(total.wrong)} wrong"
    )
    print(f"graphs {total.graphs}, only by PyTorch {total.left} ({100 * total.left / max(total.graphs, 1):.1f} %)")
    for reason, count in total.skipped.most_common():
        print(f"skipped {count}: {reason}")
    return 1 if total.wrong else 0


if __name__ == "__main__":
    sys.exit(main())
