"""What passes of lowering tell those behind them: attributes of ops and entries of schedules."""

from __future__ import annotations

from xdsl.dialects.builtin import MemRefType
from xdsl.ir import Attribute
from xdsl.utils.hints import isa

from fuse_opt.dialects.fused import KernelOp
from fuse_opt.dialects.fused.knobs import STORES
from fuse_opt.dialects.types.dtypes import dtype_of

UNROLL = "fused.unroll"
"""Attribute of a loop that is to be unrolled whole: its buffers can be registers then; or so many times, where it is a number."""


ROLLED = "fused.rolled"
"""Attribute of a loop that is not to be unrolled: clang takes a loop over accumulators in memory apart, element by element,
where the one around it is unrolled."""


STREAMED = "fused.streamed"
"""Attribute of a loop over what memory holds, which no compiler is to unroll: some processors tell by the instruction that reads
what to fetch next."""


SCALAR = "fused.scalar"
"""Attribute of a loop that compilers are to make no vectors of: it has few iterations."""


SIDE_BY_SIDE = "fused.side_by_side"
"""Attribute of a loop of independent iterations: how many of them are to be a vector, where nobody knows how many there are."""


REGISTER = "fused.register"
"""Attribute of memory of a function's own that is a vector of the machine: a variable of that type is kept in a register by
compilers that keep an array in memory, where they do not know how many iterations there are."""


PADDED = "fused.padded"
"""Attribute of memory of a function's own: there are more elements in it than are ever asked for, as many as a vector has."""


FILLED = "fused.filled"
"""Attribute of such memory: loops over it alone, which go to the end of a whole vector, write it before others load from it."""


LASTING = "fused.lasting"
"""Attribute of memory of a function's own that is there once for all of its calls, zeros at first."""


OF_THREAD = "fused.of_thread"
"""Attribute of such memory that is there once for each thread, as a stack has no room for it."""
MOST_ON_STACK = 3 << 19
"""Bytes of all arrays that a function has on a stack: some threads have 2 MiB, and are somewhere in it already."""


def array_bytes(kind: Attribute) -> int:
    """Of a function's own memory of a type, as it is aligned."""
    assert isa(kind, MemRefType) and kind.has_static_shape()
    element = dtype_of(kind.element_type)
    itemsize = 8 if element is None else element.itemsize  # of an index
    return -(-kind.element_count() * itemsize // 64) * 64


VECTOR_BITS = "fused.vector"
"""Attribute of a function: how wide vectors a compiler is to prefer in it."""


HALF_LINES = "fused.half_lines"
"""Attribute of such a function: the reason is stores within two cache lines, which cost some processors no more than others."""


LIMITS = "fused.limits"
"""What a kernel's function says of sizes: pairs of one and the largest number that it has room for."""

WORK = "fused.work"
"""What a kernel's function says of its tasks, where only a call knows it: operations of one, and how many are worth a thread."""


SMALL_BUFFERS = "fused.small_buffers"
"""Attribute of a function: none of its buffers of unknown extents has as many elements as `LARGE_BUFFER`."""
LARGE_BUFFER = 2**30
"""Elements from which on positions in a buffer are numbers of 64 bits."""


WRITTEN = "fused.written"
"""What a kernel's function says of the one buffer that it writes: of how many elements, where these are not all."""


NONPOSITIVE = "fused.nonpositive"
"""Attribute of a `math.exp` whose operand is never greater than zero."""


ONCE = "fused.once"
"""Attribute of a load or store of what lies in a device's memory and is neither read nor written again by the kernel."""


MODERATE = "fused.moderate"
"""Attribute of a division of 1 whose divisor is NaN or lies between 2**-100 and 2**100, and of a `math.rsqrt` whose operand is
NaN or 2**-100 at least."""


def is_nontemporal(kernel: KernelOp) -> bool:
    """Whether the kernel's schedule asks for stores past the caches."""
    return STORES.word(kernel) in ("nontemporal", "deferred")


def is_requested(kernel: KernelOp) -> bool:
    """Whether lines are to be asked for before they are stored to."""
    return STORES.word(kernel) == "requested"


def is_deferred(kernel: KernelOp) -> bool:
    """Whether a row's are to be made while the next row is computed."""
    return STORES.word(kernel) == "deferred"
