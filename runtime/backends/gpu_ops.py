"""Ops on a device that no library of NVIDIA's and no generated kernel has, by kernels of our own: the backend `gpu`.

Reads and writes at positions that are data, orders and running totals; see the texts `gpu_*.cuh`. Results do not depend on how
threads run. An index that is out of range is noted in memory that the host sees: what is read there is 0, and what was to be
written there is not; who runs the program asks `check` when its results are there.
"""

from __future__ import annotations

import ctypes
import functools
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fuse_opt.dialects.implementation.site import Cost, Site
from fuse_opt.lowering.program import NUMPY_NAMES, BufferRef, LibraryCall
from fuse_opt.lowering.reference.kernels.registry import native_implementation
from fuse_opt.lowering.reference.kernels.sparse import overflow
from fuse_opt.runtime.backends.gpu_calls import Planned
from fuse_opt.runtime.backends.gpu_orders import ORDERS, searchsorted, sort_bytes
from fuse_opt.runtime.backends.gpu_patterns import PATTERNS, pattern_bytes
from fuse_opt.runtime.backends.gpu_positions import MOST_AXES, READS, WRITES, checking, reading, sorted_count, writing
from fuse_opt.runtime.backends.gpu_sparse import COSTS, HELPERS, SPARSE, csr_matmul_bytes
from fuse_opt.runtime.backends.gpu_totals import TOTALS, total_bytes
from fuse_opt.runtime.backends.nvidia.device_calls import Address, Enqueue, with_room
from fuse_opt.runtime.device.compiler import compile_kernels, find_cuda_compiler, supported_arch
from fuse_opt.runtime.device.driver import Device
from fuse_opt.runtime.device.driver_library import CudaUnavailable
from fuse_opt.runtime.device.kernels import Kernels
from fuse_opt.runtime.disk_cache import DiskCache
from fuse_opt.runtime.host.c_records import fields_of, runtime_text

_POSITIONS, _ORDERS, _TOTALS, _SPARSE, _PATTERNS = "positions", "orders", "totals", "sparse", "patterns"
PARTS: Mapping[str, tuple[str, ...]] = {
    _POSITIONS: ("elements", "positions", "near", "updates"),
    _ORDERS: ("elements", "orders"),
    _TOTALS: ("elements", "totals"),
    _SPARSE: ("elements", "sparse"),
    _PATTERNS: ("elements", "patterns"),
}
"""Texts that are compiled together: all of them take half a minute, of which most programs need little."""
_FAULT = [name for name, _ in fields_of("backends/gpu_elements.cuh", "fault")]

_Plan = Callable[[LibraryCall], Planned | None]
_PLANS: Mapping[str, tuple[_Plan, tuple[str, ...]]] = {
    **{name: (reading(find), (_POSITIONS,)) for name, find in READS.items()},
    **{name: (writing(find, how), (_POSITIONS, _ORDERS)) for name, (find, how) in WRITES.items()},
    "checked_positions": (checking, (_POSITIONS,)),
    **{name: (make, (_ORDERS,)) for name, make in ORDERS.items()},
    "searchsorted": (searchsorted, (_ORDERS,)),
    **{name: (make, (_TOTALS,)) for name, make in TOTALS.items()},
    **{name: (make, (_SPARSE,)) for name, make in SPARSE.items()},
    **{name: (make, (_PATTERNS, _ORDERS)) for name, make in PATTERNS.items()},
}
"""By op: what plans its calls, None for one that is not for these kernels; and the parts that its kernels are in."""
_STEPS: Mapping[str, tuple[_Plan, tuple[str, ...]]] = {
    **_PLANS,
    **{name: (make, (_SPARSE,)) for name, make in HELPERS.items()},
}
"""With what no op is: calls around one of a library's."""
_KERNEL = re.compile(r"__global__ void __launch_bounds__\([^)]*\) (\w+)\(")


def gpu_source(part: str) -> str:
    """The text of the kernels of a part."""
    return "\n".join(runtime_text(f"backends/gpu_{name}.cuh") for name in PARTS[part])


def kernel_names(part: str) -> list[str]:
    """The kernels of a part."""
    return _KERNEL.findall(gpu_source(part))


@dataclass(frozen=True, slots=True)
class _Checked:
    """A call whose indices may be out of range, and what its kernels note of that."""

    call: LibraryCall
    planned: Planned
    fault: NDArray[np.int64]

    def error(self) -> Exception:
        """What the run is refused with."""
        noted = {name: int(self.fault[k]) for k, name in enumerate(_FAULT)}
        number, index = noted["number"], noted["index"]
        if number == len(self.planned.limits):
            return overflow(self.call.operation, index, noted["place"])
        if number > len(self.planned.limits):
            return ValueError(
                f"'{self.call.operation}': row {index} of indptr does not follow the row before within the capacity"
            )
        axis, extent, wraps = self.planned.limits[number]
        at = [int(k) for k in np.unravel_index(noted["place"], self.planned.indices[number].shape)]
        op = self.call.config.get("op", self.call.operation)
        return IndexError(
            f"'{op}': index {index} at {at} of the indices is out of range for axis {axis} of extent "
            f"{extent}; expected {-extent if wraps else 0} <= index < {extent}"
        )


class GpuOps:
    """The calls of one program."""

    def __init__(self, device: Device) -> None:
        """Raises CudaUnavailable."""
        if (compiler := find_cuda_compiler()) is None:
            raise CudaUnavailable("there is no nvcc (name it in FUSE_OPT_NVCC) and no NVRTC")
        self._compiler, self._device = compiler, device
        self._loaded: set[str] = set()
        self._kernels: dict[str, Kernels] = {}
        """By name, where a kernel is."""
        self._records: dict[bytes, Any] = {}
        self._checked: list[_Checked] = []

    def bound(self, call: LibraryCall, address: Address) -> Enqueue:
        """What enqueues the kernels of a call. Raises CudaError, and CudaCompileError."""
        planned = plan(call)
        assert planned is not None, call
        for part in _STEPS[_op(call)][1]:
            self._load(part)
        fault = 0
        if planned.indices or planned.has_room or planned.has_shape:
            with self._device.errors(f"page-locked memory of '{call.operation}'"):
                memory = self._device.driver.pagelocked_zeros(len(_FAULT), np.int64)
            self._checked.append(_Checked(call, planned, memory))
            fault = memory.ctypes.data

        def enqueue(stream: Any) -> None:
            with self._device.errors(f"'{call.operation}'"):
                for kernel in planned.kernels(address, fault):
                    values = [self._record(kernel.record), *kernel.arguments(address)]
                    self._kernels[kernel.name].launch(kernel.name, kernel.blocks, kernel.threads, values, stream.handle)

        return enqueue

    def _load(self, part: str) -> None:
        if part in self._loaded:
            return
        arch = supported_arch(self._compiler, self._device.arch)
        cubin = compile_kernels(self._compiler, gpu_source(part), arch, DiskCache())
        with self._device.errors("the kernels of the backend 'gpu'"):
            self._kernels |= dict.fromkeys(kernel_names(part), Kernels(self._device, cubin.data))
        self._loaded.add(part)

    def check(self) -> None:
        """Raises IndexError where a run that is over had an index out of range, ValueError for too little room; once for each."""
        for each in self._checked:
            if each.fault[_FAULT.index("failed")]:
                error = each.error()
                each.fault[:] = 0
                raise error

    def _record(self, record: ctypes.Structure) -> int:
        """
        The address of a record on the device. It is there from the first run on with the same alignment, so that nothing is
        copied while a graph is captured.
        """
        content = bytes(record)
        if (memory := self._records.get(content)) is None:
            memory = self._records[content] = self._device.allocate(len(content), "a record of the backend 'gpu'")
            self._device.driver.memcpy_htod(memory, np.frombuffer(content, np.uint8))
        return int(memory)


def plan(call: LibraryCall) -> Planned | None:
    """The launches of a call; None for one that is not for these kernels."""
    found = _STEPS.get(_op(call))
    return None if found is None else found[0](call)


def _op(call: LibraryCall) -> str:
    return call.implementation.partition(".")[2]


def _as_call(name: str, site: Site) -> LibraryCall:
    """The call for an op, as if its operands were somewhere; where extents are sizes, of typical ones."""
    tensors = (*site.operands, *site.results)
    refs = tuple(BufferRef(0, 0, each.usual_shape, each.dtype) for each in tensors)
    count = len(site.operands)
    return LibraryCall(f"gpu.{name}", site.name, refs[:count], refs[count:], site.config, _never)


def _never(inputs: object, outputs: object, config: object) -> None:
    """Such a call is not made."""


def _refusal(name: str, site: Site) -> str | None:
    """Why the kernels do not run an op."""
    tensors = (*site.operands, *site.results)
    if not site.is_known:
        return "extent-unknown"
    if site.is_sized and len(site.results[0].shape) > MOST_AXES:
        return "rank"  # how many axes are left depends on the sizes
    if not all(tensor.size for tensor in tensors):
        return "empty"
    if any(tensor.dtype not in NUMPY_NAMES for tensor in tensors):
        return "dtype"
    return None if plan(_as_call(name, site)) is not None else "form"


def _cost(site: Site) -> Cost:
    assert site.device is not None
    return Cost(nbytes=site.nbytes, call=site.device.launch)


def _workspace(name: str, site: Site) -> int:
    """Of what sorts, its keys; of running totals, those of parts."""
    if not site.is_static or not all(tensor.size for tensor in (*site.operands, *site.results)):
        return 0
    if name in WRITES:
        return with_room(sort_bytes(sorted_count(WRITES[name][0], _as_call(name, site))))
    if name in TOTALS:
        return with_room(total_bytes(_as_call(name, site)))
    if name in PATTERNS:
        return with_room(pattern_bytes(_as_call(name, site)))
    if name == "csr_matmul":
        return with_room(csr_matmul_bytes(_as_call(name, site)))
    return with_room(sort_bytes(site.operands[0].size)) if name in ORDERS else 0


_WORKING = {*WRITES, *ORDERS, *TOTALS, *PATTERNS, "csr_matmul"}
"""What may need a workspace."""
_SIZED = {*READS, "checked_positions"}
"""What runs for the extents of each call."""

for _name in _PLANS:
    native_implementation(
        f"gpu.{_name}",
        f"numpy.{_name}",
        f"graph.{_name}",
        functools.partial(_refusal, _name),
        COSTS.get(_name, _cost),
        workspace=functools.partial(_workspace, _name) if _name in _WORKING else 0,
        platform="cuda",
        sized=_name in _SIZED,
    )
