"""What ops of convolutions share: where windows lie, their attributes, and pads that differ between two sides."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import prod
from typing import ClassVar, cast

from xdsl.dialects.builtin import DYNAMIC_INDEX, DenseArrayBase, IntegerAttr, IntegerType, TensorType
from xdsl.ir import Attribute, SSAValue
from xdsl.irdl import opt_prop_def, result_def
from xdsl.utils.exceptions import VerifyException

from fuse_opt.dialects.graph.movement.pad_roll_tile import PadOp
from fuse_opt.dialects.graph.movement.views import SliceOp
from fuse_opt.dialects.interfaces.layouts import encoding
from fuse_opt.dialects.interfaces.op import GraphBuilder
from fuse_opt.dialects.interfaces.opaque_op import OpaqueOp
from fuse_opt.dialects.interfaces.properties import IntArray, int_array, ints
from fuse_opt.dialects.interfaces.shapes import dtype, is_static, shape, shape_text
from fuse_opt.dialects.interfaces.window_contraction import WindowContraction
from fuse_opt.dialects.types.extents import at_least_none, may_exceed


@dataclass(frozen=True)
class Windows:
    """Where windows lie along each spatial axis: their steps, pads before and behind, and gaps inside."""

    strides: tuple[int, ...]
    begins: tuple[int, ...]
    ends: tuple[int, ...]
    dilations: tuple[int, ...]

    def are_single(self) -> bool:
        """Whether windows lie at each element, and none is added around."""
        return all(step == 1 for step in self.strides) and not any((*self.begins, *self.ends))

    def positions(self, extents: Sequence[int], kernel: Sequence[int]) -> list[int]:
        """How many windows fit, `?` where an extent is; raises VerifyException when none does."""
        along = zip(extents, kernel, self.strides, self.begins, self.ends, self.dilations, strict=True)
        found = [
            n if n == DYNAMIC_INDEX else cast(int, at_least_none((n + begin + end - d * (k - 1) - 1) // s + 1))
            for n, k, s, begin, end, d in along
        ]
        if any(n != DYNAMIC_INDEX and not may_exceed(n, 0) for n in found):
            padded = [n + begin + end for n, begin, end in zip(extents, self.begins, self.ends, strict=True)]
            reach = [d * (k - 1) + 1 for d, k in zip(self.dilations, kernel, strict=True)]
            raise VerifyException(
                f"the window is larger than the padded input: it reaches over {shape_text(reach)} of "
                f"{shape_text(padded)} spatial elements, and no output element is left; pad more or dilate less"
            )
        return found

    def covered(self, positions: Sequence[int], kernel: Sequence[int]) -> list[int]:
        """The least extents of which there are so many windows, `?` where that is."""
        along = zip(positions, kernel, self.strides, self.begins, self.ends, self.dilations, strict=True)
        return [
            n if n == DYNAMIC_INDEX else (n - 1) * s + d * (k - 1) + 1 - begin - end for n, k, s, begin, end, d in along
        ]


def windows_of(spatial: int, strides: IntArray | None, pads: IntArray | None, dilations: IntArray | None) -> Windows:
    """What attributes say of so many spatial axes; raises VerifyException when they do not fit that number."""
    around = integers("pads", pads, 2 * spatial, 0, 0)
    steps, gaps = (integers(*of, spatial, 1, 1) for of in (("strides", strides), ("dilations", dilations)))
    return Windows(steps, around[:spatial], around[spatial:], gaps)


def integers(
    name: str, attribute: IntArray | None, count: int, least: int, default: int | None = None
) -> tuple[int, ...]:
    """An attribute's integers, the default where it is absent; raises VerifyException for another count, or less than `least`."""
    values = ints(attribute, [] if default is None else [default] * count)
    if len(values) != count or any(v < least for v in values):
        kind = {0: "integers >= 0", 1: "positive integers"}[least]
        raise VerifyException(f"attribute '{name}': expected {count} {kind}, got {list(values)}")
    return values


class Convolution(OpaqueOp):
    """What convolutions share: two operands of floats of one type, and their attributes."""

    SLACK: ClassVar[float] = 64.0
    result = result_def(TensorType)
    strides = opt_prop_def(DenseArrayBase[IntegerType])
    pads = opt_prop_def(DenseArrayBase[IntegerType])
    dilations = opt_prop_def(DenseArrayBase[IntegerType])
    groups = opt_prop_def(IntegerAttr)

    def operand_shapes(
        self, layout: str, static: int = 0, known: int | None = None
    ) -> tuple[tuple[int, ...], tuple[int, ...]]:
        """The operands' shapes; raises VerifyException when they are no tensors for a convolution.

        All extents must be known, of the second operand those from `static` on, of the first those behind the batch, as many as
        `known` says.
        """
        a, b = (shape(value) for value in self._operands)
        needed = a[1:] if known is None else a[1 : 1 + known]
        if len(a) not in (3, 4, 5) or len(b) != len(a) or DYNAMIC_INDEX in (*needed, *b[static:]):
            axes = "spatial axes" if known is not None else "static spatial axes"
            raise VerifyException(f"expected {layout} with 1 to 3 {axes}, got {shape_text(a)} and {shape_text(b)}")
        first, second = (dtype(value) for value in self._operands)
        if first is not second or not first.is_float:
            raise VerifyException(f"expected floats of one type, got {first} and {second}")
        return a, b

    def windows(self, spatial: int) -> Windows:
        """The attributes; raises VerifyException when they do not fit the number of spatial axes."""
        return windows_of(spatial, self.strides, self.pads, self.dilations)

    def over_windows(
        self, x: Sequence[int], weight: Sequence[int], positions: Sequence[int], x_last: bool, result_last: bool
    ) -> WindowContraction:
        """The convolution of operands of these shapes."""
        windows, groups = self.windows(len(x) - 2), self.group_count()
        filters, taps = weight[0] // groups, prod(weight[2:])
        row = weight[1] * taps
        return WindowContraction(
            x[0], groups, filters, weight[1], tuple(x[2:]), tuple(positions), tuple(weight[2:]), windows.strides,
            windows.dilations, windows.begins, filters * row, row, taps, False, x_last, result_last,
        )  # fmt: skip

    def gathered(self) -> WindowContraction | None:
        """The sums that a convolution's gradient comes to for each element of the input; None where a stride leaves gaps.

        The element reads what each tap of a window added to it: a convolution, with the taps in reverse order.
        """
        (given, weight), result = (shape(value) for value in self._operands), shape(self.results[0])
        windows, groups, window = self.windows(len(given) - 2), self.group_count(), weight[2:]
        along = zip(windows.dilations, window, windows.begins, strict=True)
        begins = tuple(d * (k - 1) - begin for d, k, begin in along)
        if any(s > 1 for s in windows.strides) or min(begins) < 0:
            return None
        taps, channels = prod(window), weight[0] // groups
        return WindowContraction(
            given[0], groups, weight[1], channels, given[2:], result[2:], window, windows.strides, windows.dilations,
            begins, channels * weight[1] * taps, taps, weight[1] * taps, flipped=True,
        )  # fmt: skip

    def scattered(self) -> WindowContraction:
        """The convolution whose gradient by its input a convolution's transposed one is."""
        (given, weight), result = (shape(value) for value in self._operands), shape(self.results[0])
        return self.over_windows(result, weight, given[2:], False, False)

    def with_even_pads(self, builder: GraphBuilder, x: SSAValue) -> tuple[SSAValue, IntArray] | None:
        """
        Zeros put around what a convolution reads so that its windows have as many on both sides, which are the pads. None where
        that is so already, or not all is known and lies in rows.
        """
        values = (*self._operands, self.results[0])
        begins, ends = (windows := self.windows(len(shape(x)) - 2)).begins, windows.ends
        if begins == ends or not all(map(is_static, values)) or any(map(encoding, values)):
            return None
        even = tuple(map(min, begins, ends))
        added = [[0, 0, *(n - least for n, least in zip(side, even, strict=True))] for side in (begins, ends)]
        return builder(PadOp, x, pads=int_array([*added[0], *added[1]])), int_array([*even, *even])

    def over_larger(self, builder: GraphBuilder, added: Sequence[int], **stated: Attribute) -> SSAValue | None:
        """
        The same of what reads a larger array with as many pads on both sides, without what the smaller one has not; `added` are
        elements behind what windows reach, `stated` properties of the op. None as of `with_even_pads`.
        """
        values, result = (*self._operands, self.results[0]), shape(self.results[0])
        windows = self.windows(len(result) - 2)
        begins, ends = windows.begins, tuple(n - more for n, more in zip(windows.ends, added, strict=True))
        if begins == ends or not all(map(is_static, values)) or any(map(encoding, values)):
            return None
        even = tuple(max(0, min(pair)) for pair in zip(begins, ends, strict=True))
        kept = {**self._kept(), "pads": int_array([*even, *even]), **stated}
        made = builder(type(self), *self._operands, **kept)
        starts = [0, 0, *(n - least for n, least in zip(begins, even, strict=True))]
        stops = [min(a + n, most) for a, n, most in zip(starts, result, shape(made), strict=True)]
        found = builder(SliceOp, made, starts=int_array(starts), stops=int_array(stops))
        missing = [n - there for n, there in zip(result, shape(found), strict=True)]
        return builder(PadOp, found, pads=int_array([*[0] * len(result), *missing])) if any(missing) else found

    def _kept(self) -> dict[str, Attribute]:
        """Its attributes but for what a larger one has not."""
        left = ("use_implementation", "output_padding")
        return {name: value for name, value in self.properties.items() if name not in left}

    def group_count(self) -> int:
        return 1 if self.groups is None else self.groups.value.data

    def check_groups(self, channels: int, taken: int, given: int) -> None:
        """Raises VerifyException unless so many channels are what `given` filters of `taken` channels read."""
        groups = self.group_count()
        if groups < 1 or channels != taken * groups or given % groups:
            raise VerifyException(
                f"x has {channels} channels, weight takes {taken} in each of {groups} group(s) and gives {given}; "
                f"expected {taken * max(groups, 1)} channels and outputs divisible by the groups"
            )
