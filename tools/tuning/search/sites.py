"""The kernels of a program that may be tuned, each as a program of its own, and where the program's time goes."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from xdsl.dialects.builtin import ModuleOp
from xdsl.dialects.func import FuncOp
from xdsl.ir import Operation
from xdsl.passes import ModulePass

from fuse_opt.dialects.analysis.storage import functions_of
from fuse_opt.dialects.fused import KernelOp
from fuse_opt.dialects.fused.knobs import ASKED
from fuse_opt.dialects.interfaces.layouts import encoding
from fuse_opt.dialects.interfaces.shapes import shape
from fuse_opt.lowering.kernel.naming import kernel_name
from fuse_opt.lowering.reference.interpreter import entry_function, evaluate_function
from fuse_opt.passes.devices.device import HOST
from fuse_opt.passes.devices.gpu_attach_device import make_for
from fuse_opt.passes.scheduling.tuned_lookup import KernelKeys, is_tunable
from fuse_opt.passes.scheduling.tuned_schedules import settings_of
from fuse_opt.tools.commands.measuring import example_inputs, fresh_arguments
from fuse_opt.tools.compiler.api import compile as compile_program
from fuse_opt.tools.compiler.pipeline import DEFAULT_PIPELINE, make_passes, run_pipeline
from fuse_opt.tools.compiler.registry import make_context
from fuse_opt.tools.compiler.specialization import is_dynamic
from fuse_opt.tools.source.diagnostics import format_position, source_position
from fuse_opt.tools.source.located import located
from fuse_opt.tools.steering.tuned_plan import Plan
from fuse_opt.tools.tuning.search.candidates import Array, Candidate, Site, Target
from fuse_opt.tools.watching.kernel_files import kernel_module

_CALLS, _SECONDS, _BATCH_SECONDS = 3, 0.3, 100e-6


def find_sites(
    source: ModuleOp,
    passes: Sequence[ModulePass] | None = None,
    plan: Plan | None = None,
    target: Target = "c",
    arguments: Sequence[Array] | None = None,
) -> list[Site]:
    """
    The kernels that have something to choose, those that are the same once, in the order of the program. `passes` are the default
    ones where None; they run as a plan of the program says where it has one; the source is changed. With `arguments` of the
    program each kernel has what it is given of these. Raises InputError, and ValueError where extents are unknown.
    """
    plan = plan or Plan()
    passes = plan.edited(make_passes(DEFAULT_PIPELINE) if passes is None else passes)
    last = next(number for number, pass_ in enumerate(passes) if pass_.name == "schedule-kernels")
    with located(source, source):
        if is_dynamic(entry_function(source, None)):
            raise ValueError(
                "expected known extents of arguments, got `?`: times are of shapes; give them as --extents"
            )
        if target == "cuda":
            make_for(source, target)
        with plan.steering():
            run_pipeline(source, passes[: last + 1], make_context())
    found: dict[str, Site] = {}
    names: dict[str, int] = {}
    operands = {} if arguments is None else _operands(entry_function(source, None), arguments)
    for site in _sites(source, target, operands, getattr(passes[last], "device", HOST)):
        if (known := found.setdefault(site.key.key, site)) is not site:
            known.count += 1
            continue
        names[site.name] = names.get(site.name, -1) + 1
        site.name = f"{site.name}_{names[site.name]}"
    return list(found.values())


def _operands(function: FuncOp, arguments: Sequence[Array]) -> dict[KernelOp, list[Array]]:
    """What each kernel of a function is given, by the reference; the same for those that are the same is the first one's."""
    found: dict[KernelOp, list[Array]] = {}

    def watch(op: Operation, operands: Sequence[Any]) -> None:
        if isinstance(op, KernelOp) and all(isinstance(each, np.ndarray) for each in operands):
            found[op] = [np.ascontiguousarray(each) for each in operands]

    with np.errstate(all="ignore"):
        evaluate_function(function, arguments, watch)
    return found


def _sites(
    module: ModuleOp, target: Target, operands: Mapping[KernelOp, Sequence[Array]], device: str
) -> Iterator[Site]:
    for function in functions_of(module):
        keys = KernelKeys(function)
        for kernel in function.body.block.ops:
            if not isinstance(kernel, KernelOp) or kernel.schedule is None or not is_tunable(kernel.schedule_kind()):
                continue
            values = (*kernel.operands, *kernel.results)
            if any(encoding(value) is not None or -1 in shape(value) for value in values):
                continue
            settings = settings_of(kernel.schedule, target == "cuda")
            given = {knob.name: str(settings.pop(knob.name)) for knob in ASKED if knob.name in settings}
            position = source_position(kernel)
            alone = kernel_module(kernel, keys.overwritten(kernel))
            alone.attributes |= module.attributes
            yield Site(
                kernel_name(kernel),
                keys.key(kernel, given),
                alone,
                given,
                Candidate.of(settings),
                "-" if position is None else format_position(*position),
                target=target,
                inputs=operands.get(kernel),
                device=device,
            )


def program_seconds(source: str | Path | ModuleOp, threads: int, arguments: Sequence[Array] | None = None) -> float:
    """
    The least time of a call of the whole program by its defaults, on drawn numbers where there are no `arguments`: of this
    thread's processor where it is alone.
    """
    program = compile_program(source, tuned="", whole=True)
    inputs = example_inputs(source) if arguments is None else arguments
    program.freeze({n: inputs[n] for n, value in enumerate(program.signature.arguments) if value.frozen})
    clock = time.thread_time if threads == 1 else time.perf_counter
    donates = any(value.donated for value in program.signature.arguments)
    found: list[float] = []
    batch, begin = 1, time.perf_counter()
    while len(found) < _CALLS or time.perf_counter() - begin < _SECONDS:
        given: list[Any] = fresh_arguments(program, inputs)
        start = clock()
        for _ in range(batch):
            program(*given)
        found.append((clock() - start) / batch)
        if len(found) == _CALLS and not donates:
            batch = max(round(_BATCH_SECONDS / max(min(found), 1e-9)), 1)
    return min(found)
