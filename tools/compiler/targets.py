"""What a target is: the devices that there are, and the passes that run for it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from xdsl.dialects.builtin import ModuleOp
from xdsl.passes import ModulePass

from fuse_opt.passes.devices.gpu_attach_device import attach_found, make_for
from fuse_opt.runtime.backends.registry import load_problem, unavailable_backends
from fuse_opt.runtime.device.driver import device_problem, open_device
from fuse_opt.tools.compiler.backend_switch import backend_passes, with_dispatch_table, with_host_device, with_tuned
from fuse_opt.tools.compiler.pipeline import FOR_CPUS, LAUNCH_BY_LAUNCH, UNFUSED_PIPELINE, make_passes

TARGETS = ("cpu", "cuda", "reference")


def check_target(target: str) -> tuple[str, int | None]:
    """A target without the number of a device, and that number, None without one. Raises ValueError for an unknown one."""
    kind, colon, number = target.partition(":")
    known = kind == "cuda" and number.isascii() and number.isdecimal() if colon else kind in TARGETS
    if not known:
        raise ValueError(f"unknown target '{target}'; expected one of {', '.join(TARGETS)}, or cuda:0 and so on")
    return kind, int(number) if colon else None


def place_of(target: str) -> tuple[str, int | None]:
    """A target, and the number of a device: of the one that "cuda" is now."""
    kind, number = check_target(target)
    if kind == "cuda" and number is None and device_problem() is None:
        number = open_device().number
    return kind, number


def cuda_problem(number: int | None = None) -> str | None:
    """Why no program for "cuda", or for the device of a number, can run here; None where one can."""
    from fuse_opt.runtime.device.compiler import find_cuda_compiler

    if (problem := device_problem(number)) is None and find_cuda_compiler() is None:
        return "there is no nvcc (name it in FUSE_OPT_NVCC) and no NVRTC"
    return problem


def attach(module: ModuleOp, target: str, number: int | None) -> None:
    """The module is for a target from now on, and for the device that is there."""
    if target == "cuda" and device_problem(number) is None:
        found = open_device(number)
        attach_found(module, found.name, found.figures())
    make_for(module, target)


def all_passes(
    target: str,
    pipeline: str | Sequence[str] | None,
    backend: str | None,
    poison: bool,
    tuned: str | Path | None,
    device: int | None = None,
) -> list[ModulePass]:
    """What runs for a target, with what a caller says of backends and schedules."""
    chosen = backend_passes(
        backend, _unavailable(target, device), load_problem if target == "cpu" else lambda name: None
    )
    passes = with_dispatch_table([*chosen, *_passes(target, pipeline, poison)])
    passes = with_host_device(passes) if target == "cpu" else passes
    return passes if target == "reference" else with_tuned(passes, tuned)


def _unavailable(target: str, device: int | None) -> Mapping[str, str]:
    """The backends that a target lacks here, and why. Text for CUDA is the same on all machines that cannot run it."""
    if target == "cuda" and device_problem(device) is not None:
        return {}
    return unavailable_backends(target)


def _passes(target: str, pipeline: str | Sequence[str] | None, poison: bool) -> list[ModulePass]:
    """What runs for a target: the pipeline, what completes one of the caller's, and what poisoned memory needs."""
    if poison and target != "cpu":
        raise ValueError(f"poison=True fills the arena of target 'cpu' between steps; got target '{target}'")
    if target == "reference" and pipeline is None:
        return []
    passes = make_passes(pipeline)
    if pipeline is not None:
        passes += _completion(passes, target)
    else:
        passes = _for_target(passes, target)
    return passes + (make_passes(LAUNCH_BY_LAUNCH) if poison else [])


def _completion(passes: Sequence[ModulePass], target: str) -> list[ModulePass]:
    """
    The passes that bring what others left over into kernels with schedules and memory, with the options that the caller
    gave to them last; none where they ran just now.
    """
    given = {each.name: each for each in passes}
    completion = [given.get(each.name, each) for each in unfused(target)]
    return [] if passes[-len(completion) :] == completion else completion


def unfused(target: str) -> list[ModulePass]:
    """The passes that bring what is left into kernels with schedules and memory."""
    return _for_target(make_passes(UNFUSED_PIPELINE), target)


def _for_target(passes: Sequence[ModulePass], target: str) -> list[ModulePass]:
    return [each for each in passes if target == "cpu" or each.name not in FOR_CPUS]
