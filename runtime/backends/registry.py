"""Which backends a machine lacks: what is behind them is looked for when a program is made, and by no pass."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from fuse_opt.dialects.implementation.offers import find_offer
from fuse_opt.lowering.program import LibraryCall
from fuse_opt.runtime.backends import sparse, top_k
from fuse_opt.runtime.backends.blas.offers import blas_problem
from fuse_opt.runtime.backends.gpu_ops import GpuOps
from fuse_opt.runtime.backends.nvidia import cublas, cublaslt, cudnn, cudnn_graph, cudnn_library, cusparse
from fuse_opt.runtime.backends.nvidia.device_calls import Checks, DeviceLibrary
from fuse_opt.runtime.backends.onednn.offers import onednn_load_problem, onednn_problem
from fuse_opt.runtime.backends.positions import offers
from fuse_opt.runtime.device.driver import Device

OWN = (offers, sparse, top_k)
"""What registers offers that need nothing of the machine but a C compiler."""

_Problem = Callable[[], str | None]
_PROBLEMS: Mapping[str, Mapping[str, _Problem]] = {
    "cpu": {"blas": blas_problem, "onednn": onednn_problem},
    "cuda": {
        "cublas": cublas.LIBRARY.problem,
        "cublaslt": cublaslt.LIBRARY.problem,
        "cudnn": cudnn_library.LIBRARY.problem,
        "cudnn_graph": cudnn_library.LIBRARY.problem,
        "cusparse": cusparse.LIBRARY.problem,
    },
}
"""
By platform and backend: why its functions cannot be called here; for CPUs as far as that is known without loading a library.
"""
_LOAD_PROBLEMS: Mapping[str, _Problem] = {"onednn": onednn_load_problem}
_DEVICE_LIBRARIES: Mapping[str, Callable[[Device], DeviceLibrary]] = {
    "cublas": cublas.Cublas,
    "cublaslt": cublaslt.CublasLt,
    "cudnn": cudnn.Cudnn,
    "cudnn_graph": cudnn_graph.CudnnGraphs,
    "cusparse": lambda device: cusparse.Cusparse(device, GpuOps(device)),
    "gpu": GpuOps,
}
"""By backend: what runs its calls on a device."""


def unavailable_backends(platform: str = "cpu") -> dict[str, str]:
    """By name, the backends of a platform whose functions cannot be called here, and why."""
    found = {name: problem() for name, problem in _PROBLEMS.get(platform, {}).items()}
    return {name: reason for name, reason in found.items() if reason is not None}


def load_problem(name: str) -> str | None:
    """Why a backend that a person names for programs of CPUs cannot be used here; its library is loaded."""
    problems = (_PROBLEMS["cpu"].get(name), _LOAD_PROBLEMS.get(name))
    reasons = (problem() for problem in problems if problem is not None)
    return next((reason for reason in reasons if reason is not None), None)


class DeviceLibraries:
    """The libraries that a program calls on a device, each made when a step first names it."""

    def __init__(self, device: Device) -> None:
        self._device = device
        self._made: dict[str, DeviceLibrary] = {}
        self._checked: list[Checks] = []

    def find(self, implementation: str) -> DeviceLibrary | None:
        """What runs the calls of an implementation on the device; None where that is the host. Raises CudaError."""
        backend = implementation.partition(".")[0]
        if backend not in _DEVICE_LIBRARIES:
            return None
        if backend not in self._made:
            library = self._made[backend] = _DEVICE_LIBRARIES[backend](self._device)
            if isinstance(library, Checks):
                self._checked.append(library)
        return self._made[backend]

    @staticmethod
    def is_captured(call: LibraryCall) -> bool:
        """Whether a call may be part of a CUDA graph."""
        offer = find_offer(call.operation, call.implementation)
        return offer is None or offer.captured

    def check(self) -> None:
        """Raises what a run that is over is refused with: IndexError for an index out of range."""
        for library in self._checked:
            library.check()
