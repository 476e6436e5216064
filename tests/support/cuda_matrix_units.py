"""The units of `cuda_matrix.py`: programs under each schedule, with arguments and a check of what they give."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import islice

import numpy as np
from cuda_matrix_programs import FAMILIES, FLOATS, OF_FLOATS, ON_VIEWS
from graph_op_table import Case, arguments_of, check_all, program_text, rows
from ir_testing import Array, apply, evaluate, graph_ops, kernels, parse, random_arguments
from narrow_floats import decode, name_of
from xdsl.dialects.builtin import DictionaryAttr, IntegerAttr, ModuleOp, StringAttr, i64
from xdsl.ir import Attribute

from fuse_opt.dialects.analysis.kernel_access import GENERATED_KINDS
from fuse_opt.dialects.fused import KernelOp
from fuse_opt.dialects.fused.gpu_schedule import ENTRY, VARIANTS
from fuse_opt.passes.scheduling.schedule_kernels import SCHEMES
from fuse_opt.tools.compiler.pipeline import DEFAULT_PIPELINE, make_passes

KINDS = tuple(kind for kind in SCHEMES if kind in GENERATED_KINDS)
"""The schedules by which code is generated."""


def _form(kind: str, **on_gpu: int | str) -> dict[str, Attribute]:
    """A schedule with what it says of the GPU."""
    entries: dict[str, Attribute] = {
        name: StringAttr(value) if isinstance(value, str) else IntegerAttr(value, i64) for name, value in on_gpu.items()
    }
    return {"kind": StringAttr(kind), **({ENTRY: DictionaryAttr(entries)} if entries else {})}


FORMS: dict[str, dict[str, Attribute]] = {
    **{kind: _form(kind) for kind in KINDS},
    **{f"row {variant}": _form("row", variant=variant, splits=1) for variant in VARIANTS},
    "row in 3 parts": _form("row", splits=3),
    "column in 3 parts": _form("column", splits=3),
    "split": {"kind": StringAttr("split"), "splits": IntegerAttr(3, i64)},
    "pointwise by vectors": _form("pointwise", vector=4, unroll=2),
    "row by vectors": _form("row", vector=4),
    "tile of 64": _form("tile", tile=64),
}
"""Schedules that a person may write: each kind, and what can be said besides it."""
TOLERANCES = {"float16": 4e-3, "bf16": 3e-2, "float32": 1e-4, "float64": 1e-10}
"""Of the largest magnitude of a result: sums in other orders, and functions of the C library."""


@dataclass(frozen=True)
class Unit:
    """A function with its schedules chosen, arguments for it, and a check of what it gives."""

    name: str
    module: ModuleOp
    kinds: tuple[str, ...]
    """Of its kernels, in order."""
    arguments: Callable[[], list[Array]]
    check: Callable[[list[Array]], None]
    cases: int = 1
    """What is checked in one run."""


def variants(
    name: str, text: str, pipeline: Sequence[str], forms: Sequence[str] = ("", *FORMS)
) -> Iterator[tuple[str, ModuleOp, tuple[str, ...]]]:
    """The program with the schedules that are chosen for it (""), and by each of FORMS that can run kernels of it."""
    passes = make_passes(pipeline)
    at = next((k for k, pass_ in enumerate(passes) if pass_.name == "schedule-kernels"), len(passes))
    fused, seen = apply(parse(text), passes[:at]), set[tuple[str, ...]]()
    chosen = apply(fused.clone(), "schedule-kernels")
    own = [kernel.schedule_kind() for kernel in kernels(chosen)]
    for form in forms:
        schedule = FORMS.get(form, {})
        fits = [_can_run(kernel, schedule) for kernel in kernels(fused)]
        found = tuple(k for k in (form if fit else k for fit, k in zip(fits, own, strict=True)) if k and k in FORMS)
        if found and found not in seen:
            seen.add(found)
            module = fused.clone()
            for kernel in (kernel for kernel, fit in zip(kernels(module), fits, strict=True) if fit):
                kernel.schedule = DictionaryAttr(schedule)
            yield f"{name}{f' as {form}' * bool(form)}", apply(module, passes[at:] or "schedule-kernels"), found


def _can_run(kernel: KernelOp, schedule: dict[str, Attribute]) -> bool:
    kind = schedule.get("kind")
    return isinstance(kind, StringAttr) and SCHEMES[kind.data](kernel) is None


def ops() -> Iterator[Unit]:
    """All cases of the op table, each op a kernel, by each kind of schedule."""
    for row in rows():
        cases = row.cases()
        for start in range(0, len(cases), 60):
            yield from _op_units(row.op, cases[start : start + 60], ("", *KINDS, "pointwise by vectors"))


def sampled_ops(count: int) -> Iterator[Unit]:
    """Of each row at most so many cases, evenly spread, by one schedule; another one and other cases in the next row."""
    for number, row in enumerate(rows()):
        cases = row.cases()
        step = max(1, len(cases) // count)
        form = ("", *KINDS, "pointwise by vectors")[number % (len(KINDS) + 2)]
        yield from _op_units(row.op, cases[number % step :: step][:count], (form,))


def _op_units(op: str, cases: Sequence[Case], forms: Sequence[str]) -> Iterator[Unit]:
    text = program_text(cases)
    bounds = [op.error_bound() for op in graph_ops(parse(text))]
    for name, module, found in variants(op, text, ("decompose", "wrap-kernels"), forms):
        check = partial(check_all, cases, bounds=bounds)
        yield Unit(name, module, found, partial(arguments_of, cases), check, len(cases))


Source = tuple[str, str]
"""A program's name and text."""


def schedules(sizes: Sequence[int], dtypes: Sequence[str]) -> Iterator[Source]:
    """Programs of each family at each size and type."""
    for dtype in dtypes:
        for make in FAMILIES:
            if dtype in FLOATS or make not in OF_FLOATS:
                yield from ((f"{make.__name__} {size} {dtype}", make(size, dtype)) for size in sizes)


def views(sizes: Sequence[int], offsets: Sequence[int], dtypes: Sequence[str]) -> Iterator[Source]:
    """Programs on memory that begins and ends anywhere."""
    for dtype in dtypes:
        for make in ON_VIEWS:
            for size in sizes:
                for offset in offsets:
                    yield f"{make.__name__} {size} at {offset} {dtype}", make(size, offset, dtype)


def by_all(sources: Iterable[Source]) -> Iterator[Unit]:
    """The programs by each schedule."""
    for name, text in sources:
        yield from _units(name, text, ("", *FORMS))


def by_some(sources: Iterable[Source], every: int, count: int) -> Iterator[Unit]:
    """One program of so many, as it is scheduled and by `count` other schedules: in turns, all of them after some."""
    forms = list(FORMS)
    for number, (name, text) in enumerate(islice(sources, 0, None, every)):
        chosen = [forms[(number * count + k) * 5 % len(forms)] for k in range(count)]
        yield from _units(name, text, ("", *chosen))


def _units(name: str, text: str, forms: Sequence[str]) -> Iterator[Unit]:
    module = parse(text)
    expected = evaluate(module, random_arguments(module, 1))
    for variant, scheduled, kinds in variants(name, text, DEFAULT_PIPELINE, forms):
        yield Unit(variant, scheduled, kinds, partial(random_arguments, module, 1), partial(_check_values, expected))


def _check_values(expected: Sequence[Array], results: list[Array]) -> None:
    for number, (a, b) in enumerate(zip(results, expected, strict=True)):
        assert (a.dtype, a.shape) == (b.dtype, b.shape), f"result {number}: {a.dtype} {a.shape}"
        tolerance = TOLERANCES.get(name_of(a.dtype), 0.0)
        a, b = decode(a), decode(b)
        if tolerance:
            a, b = a.astype(np.float64), b.astype(np.float64)
        size = float(np.nan_to_num(np.abs(b)).max(initial=1.0)) if tolerance else 0.0
        np.testing.assert_allclose(a, b, tolerance, tolerance * size, err_msg=f"result {number}")
