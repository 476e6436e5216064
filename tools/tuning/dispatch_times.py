"""What the implementations of a module's opaque ops take on this machine: each site as a program of its own, in turns."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
from xdsl.dialects.builtin import FunctionType, ModuleOp, StringAttr
from xdsl.dialects.func import FuncOp, ReturnOp
from xdsl.ir import Block, Region, SSAValue

from fuse_opt.dialects.analysis.kernel_access import dispatched_ops
from fuse_opt.dialects.analysis.numerics import Numerics
from fuse_opt.dialects.analysis.prepared import freeze_arguments, unchanging_arguments
from fuse_opt.dialects.analysis.storage import functions_of
from fuse_opt.dialects.fused import KernelOp
from fuse_opt.dialects.implementation.cost_table import site_name
from fuse_opt.dialects.implementation.selection import candidates
from fuse_opt.passes.devices.device import HOST, find_device
from fuse_opt.tools.commands.measuring import example_inputs, fresh_arguments
from fuse_opt.tools.compiler.api import compile as compile_program

SLOTS = 9
_SLOT_SECONDS = 4e-3
_LARGER_THAN_CACHES = 64 << 20


@dataclass(frozen=True)
class SiteTimes:
    """A site, and of each implementation the seconds of a call: with operands in caches, and from memory."""

    site: str
    warm: dict[str, float]
    cold: dict[str, float]
    refused: dict[str, str]
    """Why others do not run it."""


def measure_sites(
    module: ModuleOp, numerics: Numerics = "strict", processor_time: bool = True, device: str = HOST
) -> Iterator[SiteTimes]:
    """
    Times of every distinct site of a module whose ops are in kernels, in the order of the text, by what runs it on the device.
    Processor time is less disturbed by what else runs, and right for one thread alone.
    """
    machine = find_device(device)
    seen = set[str]()
    for function in functions_of(module):
        frozen: set[SSAValue] = {function.body.block.args[number] for number in unchanging_arguments(function)}
        for kernel in function.body.block.ops:
            if not isinstance(kernel, KernelOp) or not dispatched_ops(kernel) or kernel.schedule_kind() == "reference":
                continue
            site = site_name(kernel, frozen)
            if site in seen:
                continue
            seen.add(site)
            found = candidates(kernel, machine, numerics, frozen)
            able = [one.offer.name for one in found if not one.refusal]
            warm, cold = _times(kernel, frozen, able, time.process_time if processor_time else time.perf_counter)
            yield SiteTimes(site, warm, cold, {one.offer.name: one.refusal for one in found if one.refusal})


def _times(
    kernel: KernelOp, frozen: set[SSAValue], names: Sequence[str], clock: Callable[[], float]
) -> tuple[dict[str, float], dict[str, float]]:
    """Lower quartiles of slots in rotation, so that what else happens on the machine meets all alike."""
    calls = {name: _call(kernel, frozen, name) for name in names}
    repeats = {name: _repeats(call, clock) for name, call in calls.items()}
    flushed = np.zeros(_LARGER_THAN_CACHES, np.uint8)
    warm: dict[str, list[float]] = {name: [] for name in names}
    cold: dict[str, list[float]] = {name: [] for name in names}
    for _ in range(SLOTS):
        for name, call in calls.items():
            flushed += 1
            cold[name].append(_spent(call, 1, clock))
            call()
            warm[name].append(_spent(call, repeats[name], clock))
    return {name: _lower_quartile(found) for name, found in warm.items()}, {
        name: _lower_quartile(found) for name, found in cold.items()
    }


def _spent(call: Callable[[], object], repeats: int, clock: Callable[[], float]) -> float:
    start = clock()
    for _ in range(repeats):
        call()
    return (clock() - start) / repeats


def _repeats(call: Callable[[], object], clock: Callable[[], float]) -> int:
    call()
    once = max(_spent(call, 1, clock), 1e-7)
    return max(1, round(_SLOT_SECONDS / once))


def _lower_quartile(seconds: Sequence[float]) -> float:
    return statistics.quantiles(seconds, n=4, method="inclusive")[0]


def _call(kernel: KernelOp, frozen: set[SSAValue], name: str) -> Callable[[], object]:
    """A call of a program of the kernel alone, run by that implementation, with random arguments."""
    module = _module_of(kernel, frozen, name)
    inputs = example_inputs(module)
    program = compile_program(module, pipeline="pack-weights,schedule-kernels", whole=True)
    program.freeze({number: inputs[number] for number, value in enumerate(program.signature.arguments) if value.frozen})
    results: Any = program(*(arguments := fresh_arguments(program, inputs)))
    return partial(program, *arguments, out=results)


def _module_of(kernel: KernelOp, frozen: set[SSAValue], name: str) -> ModuleOp:
    operands = list(dict.fromkeys(kernel.operands))
    block = Block(arg_types=[value.type for value in operands])
    copy = kernel.clone(dict(zip(operands, block.args, strict=True)))
    copy.implementation, copy.schedule, copy.inplace, copy.slots = StringAttr(name), None, None, None
    block.add_ops((copy, ReturnOp(*copy.results)))
    types = FunctionType.from_lists([value.type for value in operands], [value.type for value in copy.results])
    function = FuncOp("main", types, Region(block))
    freeze_arguments(function, [number for number, value in enumerate(operands) if value in frozen])
    top: ModuleOp | None = None
    parent = kernel.parent_op()
    while parent is not None:
        top, parent = (parent if isinstance(parent, ModuleOp) else top), parent.parent_op()
    return ModuleOp([function], attributes={} if top is None else dict(top.attributes))
