"""Steps of a compiled graph that are not the program's own code, and the tensors that they work on."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from math import prod
from typing import Any

from xdsl.ir import BlockArgument, Operation, SSAValue

from fuse_opt.dialects.interfaces.shapes import dtype, is_static
from fuse_opt.dialects.torch import AtenOp
from fuse_opt.dialects.types.size import SizeRefusal
from fuse_opt.frontends.builder import Emitter
from fuse_opt.frontends.torch.fx.api import DTYPES, torch
from fuse_opt.frontends.torch.fx.strides import View
from fuse_opt.lowering.program import ProgramStats
from fuse_opt.tools.compiler import api

_guards: Any = torch._C._dynamo.guards


class _Threads:
    """PyTorch's number of threads as it was when a program last ran."""

    def __init__(self) -> None:
        self.seen = 0

    def follow(self) -> None:
        """Programs use no more threads than `torch.set_num_threads` allows now."""
        if (count := torch.get_num_threads()) != self.seen:
            self.seen = count
            api.limit_threads(count)


follow_threads = _Threads().follow


POOLED = 2 << 20
"""
Bytes from which on a result lies in memory of dropped ones, in huge pages: PyTorch gives large blocks back to the system,
and a page fault for each page of a fresh one takes ten times as long as writing to it.
"""


def pooled(nbytes: int, dtype: Any) -> Any:
    """A tensor of one axis, no view of another, in such memory, which comes back with its last reference."""
    return torch.frombuffer(api.result_memory(nbytes), dtype=dtype)


@dataclass
class NoStats(ProgramStats):
    """The counts of a program that is none, as those of one."""

    lower_bound_bytes: int | None = 0
    compile_s: float = 0.0
    compiled: int = 0
    cached: int = 0


@dataclass(frozen=True)
class NoProgram:
    """What a graph has in the place of a compiled program where it only hands out arguments, or views of them."""

    module: Any
    source: str = ""
    stats: NoStats = field(default_factory=NoStats)
    buffers: tuple[Any, ...] = ()
    steps: tuple[Any, ...] = ()
    results: tuple[Any, ...] = ()
    run: None = None
    compiled_calls: tuple[frozenset[int], bool] = (frozenset(), False)

    @property
    def native(self) -> NoProgram:
        return self

    @property
    def program(self) -> NoProgram:
        return self


@dataclass(frozen=True)
class FrameView:
    """A tensor over a frame's arena, or over a constant."""

    buffer: int
    offset: int
    """In bytes, from the beginning of the buffer."""
    view: View
    dtype: Any


@dataclass(frozen=True)
class Site:
    """A step of the program that is a call of PyTorch's kernel."""

    number: int
    inputs: tuple[Any, ...]
    """By operand of the op, where it is in the program, or a tensor that never changes."""
    outputs: tuple[Any, ...]


def call_site(step: Any) -> Site | None:
    """The call that a step makes; None for other steps."""
    if not hasattr(step, "operation"):
        return None
    if step.operation == AtenOp.name:
        return Site(step.config["number"], tuple(step.inputs), tuple(step.outputs))
    if "function" not in step.config:
        return None
    # Tensors made from nothing are in the kernel of what reads them, and a kernel of several ops is left to the reference.
    block = step.run.args[0].body.block
    call = next((op for op in block.ops if isinstance(op, AtenOp)), None)
    if call is None:
        return None
    inputs = [step.inputs[v.index] if isinstance(v, BlockArgument) else created(v) for v in call.operands]
    return Site(call.number.value.data, tuple(inputs), tuple(step.outputs))


def created(value: SSAValue) -> Any:
    """The tensor that an op without operands makes."""
    op = value.owner
    assert isinstance(op, Operation) and not op.operands
    emit = Emitter()
    copy = op.clone()
    emit.block.add_op(copy)
    if not is_static(value):
        raise SizeRefusal(f"PyTorch's kernel is given a tensor made from nothing, of type '{value.type}'")
    array = api.evaluate(emit.finish([copy.results[0]]))
    dtype_name = dtype(value).name
    flat = torch.from_numpy(array.copy(order="C").reshape(-1).view("uint8"))
    return flat.view(DTYPES[dtype_name]).reshape(array.shape)


def frame_tensor(binding: Any, program: Any, found: FrameView) -> Any:
    """A tensor over an arena or a constant, which it keeps alive."""
    size = found.dtype.itemsize
    shape, strides, offset = found.view.shape, found.view.strides, found.view.offset
    last = offset + sum((n - 1) * s for n, s in zip(shape, strides, strict=True)) if prod(shape) else -1
    if last < 0:
        return torch.empty_strided(shape, strides, dtype=found.dtype)
    if program.buffers[found.buffer].kind == "arena":
        memory = torch.from_numpy(binding.arena.view(found.offset, ((last + 1) * size,), "uint8"))
        flat = memory.view(found.dtype) if found.dtype is not torch.uint8 else memory
    else:
        flat = flat_memory(None, program.buffers[found.buffer], found.dtype)
    return torch.as_strided(flat, shape, strides, offset)


def flat_memory(arena: Any, buffer: Any, dtype: Any) -> Any:
    """All of an arena, or of a copy of a constant, as a tensor of one axis, which keeps it alive."""
    if buffer.kind == "arena":
        nbytes = arena.nbytes // dtype.itemsize * dtype.itemsize
        memory = torch.from_numpy(arena.view(0, (nbytes,), "uint8"))
    else:
        memory = torch.from_numpy(buffer.data.reshape(-1).view("uint8").copy())
    return memory.view(dtype) if dtype is not torch.uint8 else memory


def library_step(step: Any) -> Callable[[Any], None]:
    """A call of a routine on NumPy arrays over the memory of a frame."""

    def run(binding: Any) -> None:
        inputs = [binding.array(ref) for ref in step.inputs]
        step.run(inputs, [binding.array(ref) for ref in step.outputs], step.config)

    return run


def fitted(value: Any, shape: tuple[int, ...], strides: tuple[int, ...], dtype: Any, name: str) -> Any:
    """What a kernel of PyTorch returned, in the layout and element type that its description promises."""
    if tuple(value.shape) != shape:
        raise RuntimeError(f"{name} returned the shape {tuple(value.shape)}, expected {shape} as its description says")
    if value.dtype is dtype and all(a == b or n == 1 for a, b, n in zip(value.stride(), strides, shape, strict=True)):
        return _guards._reinterpret_tensor(value, shape, strides, 0)
    return torch.empty_strided(shape, strides, dtype=dtype, device=value.device).copy_(value)


def restrided(value: Any, shape: tuple[int, ...], strides: tuple[int, ...]) -> None:
    """Gives memory that a kernel of PyTorch wrote to the layout back that it had; some kernels give it that of their operand."""
    found = value.clone()
    value.as_strided_(shape, strides).copy_(found)
