"""PyTorch's own samples (OpInfo) of every operator that the torch backend claims, run by it and compared with eager.

    python tests/support/torch_opinfo.py [--ops add,sum] [--per-overload 8] [--seconds 600] [--jobs 4]

Each sample is traced to aten operators as torch.compile does, with the backend's decompositions; the graph is compiled when it
holds a claimed overload that has not had enough samples of its element type. Overloads that no OpInfo calls have samples here.
Where a result differs from eager's by more than the tolerance, it must be nearer to the result in f64. Prints what was claimed,
passed, failed and skipped, with reasons; exit status 1 when a result is wrong.
"""

from __future__ import annotations

import argparse
import sys
import time
import traceback
import warnings
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, field
from functools import partial, reduce
from importlib import import_module
from multiprocessing import get_context
from types import SimpleNamespace
from typing import Any

from fuse_opt.frontends.torch.backend import compile_graph
from fuse_opt.frontends.torch.fx.api import torch
from fuse_opt.frontends.torch.operators.decompositions import decompositions
from fuse_opt.frontends.torch.operators.table import claims

_TOLERANCES = {
    "torch.float32": (2e-5, 2e-5),
    "torch.bfloat16": (2e-2, 2e-2),
    "torch.float16": (4e-3, 4e-3),
    "torch.float64": (1e-9, 1e-9),
    "torch.complex64": (2e-5, 2e-5),
}
_RANDOM = (
    "rand",
    "bernoulli",
    "dropout",
    "multinomial",
    "normal",
    "cauchy",
    "exponential",
    "geometric",
    "uniform",
    "rrelu",
)
_UNDEFINED = ("empty", "new_empty", "empty_like", "empty_strided", "new_empty_strided", "empty_permuted", "resize")
"""Operators whose results are random or not defined: nothing to compare."""


@dataclass
class Tally:
    """Samples by overload."""

    passed: Counter[str] = field(default_factory=Counter[str])
    failed: dict[str, list[str]] = field(default_factory=dict[str, list[str]])
    skipped: Counter[str] = field(default_factory=Counter[str])
    """By reason."""
    by_dtype: Counter[tuple[str, str]] = field(default_factory=Counter[tuple[str, str]])
    decomposed: int = 0
    """Passed samples that differ from eager as PyTorch's own decompositions do."""
    nearer: int = 0
    """Passed samples that differ from eager and are at least as near to the result in f64."""


def operators(names: set[str]) -> list[Any]:
    database: Any = import_module("torch.testing._internal.common_methods_invocations").op_db
    return [op for op in database if not names or op.name in names]


def leaves(sample: Any) -> tuple[list[Any], Any]:
    """The tensors of a sample, and a function that puts others in their place."""
    pytree: Any = import_module("torch.utils._pytree")
    flat, spec = pytree.tree_flatten((sample.input, sample.args, sample.kwargs))
    places = [number for number, value in enumerate(flat) if isinstance(value, torch.Tensor)]

    def rebuilt(tensors: Any) -> Any:
        values = list(flat)
        for place, tensor in zip(places, tensors, strict=True):
            values[place] = tensor
        return pytree.tree_unflatten(values, spec)

    return [flat[place].detach().clone() for place in places], rebuilt


def as_function(op: Any, sample: Any) -> tuple[list[Any], Callable[..., list[Any]]]:
    """The tensors of a sample, and what the operator gives for others in their place, as a list."""
    tensors, rebuilt = leaves(sample)
    pytree: Any = import_module("torch.utils._pytree")

    def run(*given: Any) -> list[Any]:
        first, args, kwargs = rebuilt(given)
        return pytree.tree_leaves(op(first, *args, **kwargs))

    return tensors, run


def beside(call: Callable[[list[Any]], Any], graph_module: Any, plain: list[list[Any]]) -> Any:
    """The compiled graph's function; `plain` gets what PyTorch's own run of the graph gives. Both draw what eager draws."""

    def run(args: list[Any]) -> Any:
        torch.manual_seed(0)
        plain.append(list(graph_module(*(a.clone() if isinstance(a, torch.Tensor) else a for a in args))))
        torch.manual_seed(0)
        return call(args)

    run._boxed_call = True  # pyright: ignore[reportFunctionMemberAccess]
    return run


def traced(op: Any, sample: Any, compiler: Callable[[Any, list[Any]], Any]) -> tuple[list[Any], list[Any]]:
    """What the compiler's function gives for a sample, and what eager does."""
    tensors, run = as_function(op, sample)
    torch.manual_seed(0)
    wanted = run(*tensors)
    aot_function: Any = import_module("functorch.compile").aot_function
    options = {"fw_compiler": compiler, "inference_compiler": compiler, "decompositions": decompositions()}
    return aot_function(run, **options)(*(tensor.clone() for tensor in tensors)), wanted


def overloads(graph_module: Any) -> set[str]:
    return {str(node.target) for node in graph_module.graph.nodes if node.op == "call_function"}


def samples(op: Any, dtype: Any) -> Iterator[Any]:
    if dtype in op.supported_dtypes("cpu"):
        yield from op.sample_inputs("cpu", dtype, requires_grad=False)


def random_or_undefined(op: Any) -> bool:
    return any(part in op.name for part in (*_RANDOM, *_UNDEFINED))


def check(op: Any, dtype: Any, claimed: set[str], enough: int, tally: Tally) -> None:
    if random_or_undefined(op):
        tally.skipped[f"{op.name}: random or undefined results"] += 1
        return
    try:
        found = list(samples(op, dtype))
    except Exception as error:
        tally.skipped[f"{op.name}: no samples ({type(error).__name__})"] += 1
        return
    for sample in found[:40]:
        check_sample(op, sample, dtype, claimed, enough, tally)


def check_sample(op: Any, sample: Any, dtype: Any, claimed: set[str], enough: int, tally: Tally) -> None:
    if sample.kwargs.get("dropout_p"):
        tally.skipped[f"{op.name}: random or undefined results"] += 1
        return
    fresh: set[str] = set()
    held: set[str] = set()
    plain: list[list[Any]] = []

    def compiler(graph_module: Any, inputs: list[Any]) -> Any:
        held.update(overloads(graph_module) & claimed)
        fresh.update(name for name in held if tally.by_dtype[name, str(dtype)] < enough)
        if not fresh:
            raise NothingNew
        return beside(compile_graph(graph_module, inputs), graph_module, plain)

    problem = None
    try:
        given, wanted = traced(op, sample, compiler)
        problem = difference(given, wanted)
        if problem is not None and plain and difference(given, plain[-1]) is None:
            # The decompositions are PyTorch's: what they give counts, too, where narrow floats are rounded at each step.
            problem = None
            tally.decomposed += 1
        if problem is not None and dtype.is_floating_point and difference(given, wanted, exact(op, sample)) is None:
            problem = None
            tally.nearer += 1
    except NothingNew:
        return
    except Exception as error:
        if not held:
            tally.skipped[f"{op.name}: not traced ({type(error).__name__})"] += 1
            return
        problem = traceback.format_exc(limit=-6).replace("\n", " | ")[-500:]
    for name in held:
        tally.by_dtype[name, str(dtype)] += 1
        if problem is None:
            tally.passed[name] += 1
    if problem is not None:
        shapes = [tuple(t.shape) for t in leaves(sample)[0]]
        shown = f"{op.name} {dtype} {shapes} {sorted(fresh)}: {problem}"
        tally.failed.setdefault(op.name, []).append(shown)
        print("FAILED", shown, flush=True)


class NothingNew(Exception):
    """A sample has no overload that needs more of them."""


_IN_DIGITS: dict[str, Callable[[Any, Any], Any]] = {
    **{f"special.bessel_j{n}": lambda mp, x, n=n: mp.besselj(n, x) for n in (0, 1)},
    **{f"special.bessel_y{n}": lambda mp, x, n=n: mp.bessely(n, x) if x > 0 else mp.nan for n in (0, 1)},
    "special.airy_ai": lambda mp, x: mp.airyai(x),
}
"""By operator whose results in f64 are off by more than the tolerance (3e-8 was seen): what mpmath makes of an element."""


def exact(op: Any, sample: Any) -> list[Any]:
    """The results in f64."""
    if (precise := _IN_DIGITS.get(op.name)) is not None:
        mp: Any = import_module("mpmath").mp
        found = [float(precise(mp, mp.mpf(x))) for x in sample.input.double().flatten().tolist()]
        return [torch.tensor(found, dtype=torch.float64).reshape(sample.input.shape)]
    tensors, rebuilt = leaves(sample)
    first, args, kwargs = rebuilt([t.double() if t.is_floating_point() else t for t in tensors])
    return import_module("torch.utils._pytree").tree_leaves(op(first, *args, **kwargs))


def difference(given: Any, wanted: list[Any], precise: list[Any] | None = None) -> str | None:
    """What is wrong with the first result that is; with `precise`, elements may be nearer to that than what is wanted."""
    for position, (a, b) in enumerate(zip(given, wanted, strict=True)):
        if not isinstance(b, torch.Tensor):
            continue
        if a.dtype != b.dtype or a.shape != b.shape:
            return f"result {position} is {a.dtype} {tuple(a.shape)}, expected {b.dtype} {tuple(b.shape)}"
        rtol, atol = _TOLERANCES.get(str(b.dtype), (0.0, 0.0))
        close = torch.isclose(a, b, rtol=rtol, atol=atol, equal_nan=True)
        if precise is not None:
            close |= (a.double() - precise[position]).abs() <= (b.double() - precise[position]).abs()
        if not close.all():
            worst = (~close).nonzero()[0].tolist()
            return f"result {position} at {worst}: {a[tuple(worst)].item()}, expected {b[tuple(worst)].item()}"
    return None


def check_direct(claimed: set[str], tally: Tally) -> None:
    """Samples of overloads that OpInfo's functions do not call."""
    x, whole = torch.randn(2, 3), torch.randint(0, 9, (2, 3))
    count = {"start": 1, "step": 2, "dtype": torch.int64, "device": "cpu", "requires_grad": False}
    calls: list[tuple[str, tuple[Any, ...], dict[str, Any]]] = [
        *((f"aten.{name}.Scalar", (whole, 3), {}) for name in ("__lshift__", "__rshift__", "bitwise_and")),
        *((f"aten.{name}.Scalar", (whole, 3), {}) for name in ("bitwise_or", "bitwise_xor")),
        *((f"aten.bitwise_{name}_shift.Tensor_Scalar", (whole, 2), {}) for name in ("left", "right")),
        ("aten._reshape_alias.default", (x, [6], [1]), {}),
        ("aten.clamp_max.default", (x, 0.5), {}),
        ("aten.div.Scalar_mode", (x, 0.7), {"rounding_mode": "floor"}),
        ("aten.fmod.Scalar", (x, 0.7), {}),
        *(("aten.gelu_backward.default", (x, x + 1), {"approximate": mode}) for mode in ("none", "tanh")),
        ("aten.remainder.Scalar_Tensor", (3.0, x), {}),
        ("prims.iota.default", (5,), count),
    ]
    for name, args, kwargs in calls:
        namespace, packet, overload = name.split(".")
        op: Any = getattr(getattr(getattr(torch.ops, namespace), packet), overload)
        called = SimpleNamespace(input=args[0], args=args[1:], kwargs=kwargs)
        dtype = next((a.dtype for a in args if isinstance(a, torch.Tensor)), torch.float32)
        check_sample(_Named(name, op), called, dtype, claimed, len(calls), tally)


@dataclass
class _Named:
    """An overload that is called like an OpInfo."""

    name: str
    function: Any

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return self.function(*args, **kwargs)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--ops", default="", help="names of OpInfo, separated by commas")
    parser.add_argument("--dtypes", default="float32,int64,bool,bfloat16")
    parser.add_argument("--per-overload", type=int, default=6, help="samples of each element type, in each job")
    parser.add_argument("--seconds", type=float, default=3600.0)
    parser.add_argument("--jobs", type=int, default=1, help="processes that share the operators")
    given = parser.parse_args()
    warnings.filterwarnings("ignore")
    jobs = [partial(run, given, number) for number in range(given.jobs)]
    if given.jobs == 1:
        return report(set(claims()), jobs[0]())
    with ProcessPoolExecutor(given.jobs, mp_context=get_context("spawn")) as pool:
        tallies = [done.result() for done in [pool.submit(job) for job in jobs]]
    return report(set(claims()), reduce(joined, tallies))


def run(given: argparse.Namespace, number: int) -> Tally:
    """Every n-th operator."""
    warnings.filterwarnings("ignore")
    torch.manual_seed(0)
    claimed, tally, started = set(claims()), Tally(), time.monotonic()
    for op in operators(set(filter(None, given.ops.split(","))))[number :: given.jobs]:
        for name in given.dtypes.split(","):
            if time.monotonic() - started > given.seconds:
                tally.skipped[f"{op.name}: out of time"] += 1
                continue
            check(op, getattr(torch, name), claimed, given.per_overload, tally)
    if not given.ops and number == 0:
        check_direct(claimed, tally)
    return tally


def joined(a: Tally, b: Tally) -> Tally:
    return Tally(
        a.passed + b.passed,
        {**a.failed, **b.failed},
        a.skipped + b.skipped,
        a.by_dtype + b.by_dtype,
        a.decomposed + b.decomposed,
        a.nearer + b.nearer,
    )


def report(claimed: set[str], tally: Tally) -> int:
    unreached = sorted(claimed - set(tally.passed))
    failures = sum(map(len, tally.failed.values()))
    print(f"claimed {len(claimed)} overloads; with passing samples {len(tally.passed)}, without any {len(unreached)}")
    print(f"samples passed {sum(tally.passed.values())}, failed {failures}, skipped {sum(tally.skipped.values())}")
    print(f"of the passed, not within the tolerance of eager: at least as near to f64 {tally.nearer}", end=", ")
    print(f"equal to PyTorch's decomposition run by eager {tally.decomposed}")
    print("without samples:", ", ".join(unreached) or "none")
    reasons = Counter(reason.partition(": ")[2] for reason in tally.skipped.elements())
    for reason, count in reasons.most_common():
        print(f"skipped {count}: {reason}")
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
