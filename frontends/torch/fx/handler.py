"""What a handler of the table is: an aten overload with a function that builds graph ops for a call of it."""

from __future__ import annotations

import operator
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from xdsl.dialects.builtin import FloatAttr
from xdsl.ir import SSAValue

from fuse_opt.dialects.interfaces.shapes import dtype, shape
from fuse_opt.dialects.types.dtypes import BOOL, F32, F64, I32, I64, U8, DType
from fuse_opt.dialects.types.size import Size
from fuse_opt.dialects.types.symbolic_shape import SizeAttr
from fuse_opt.frontends.builder import Emitter
from fuse_opt.frontends.torch.fx.api import ELEMENTS, as_list, fx, torch
from fuse_opt.frontends.torch.fx.symbols import known_shape

Built = SSAValue | Sequence[SSAValue | None]
"""The result, or several, of which those that are not asked for may be None."""


class NotCoveredError(ValueError):
    """A call that a handler does not cover; the message says why."""


class ImpossibleCallError(Exception):
    """A call that PyTorch refuses when it is run, so that the graph has to run as it was before it was traced."""


@dataclass(frozen=True)
class Handler:
    """How calls of an overload become graph ops."""

    name: str
    """As `aten.add.Tensor`."""
    build: Callable[[Call], Built]


Table = dict[str, Handler]


def handlers() -> tuple[Table, Callable[..., Callable[[Callable[[Call], Built]], Callable[[Call], Built]]]]:
    """An empty table and a decorator that enters the function under the names given."""
    table: Table = {}

    def handler(*names: str) -> Callable[[Callable[[Call], Built]], Callable[[Call], Built]]:
        def enter(build: Callable[[Call], Built]) -> Callable[[Call], Built]:
            for name in names:
                assert name not in table, name
                table[name] = Handler(name, build)
            return build

        return enter

    return table, handler


class Call:
    """A call of an overload: its arguments by the names of its schema, its result's type, and what builds ops."""

    def __init__(
        self,
        emit: Emitter,
        node: Any,
        metas: Callable[[Any], Any],
        values: Callable[[Any], SSAValue],
        exported: bool = False,
        libraries: bool = False,
    ) -> None:
        self.emit = emit
        self.exported = exported
        """Whether the graph is for readers and other targets, where library ops say more than what they are made of."""
        self.libraries = libraries
        """Whether products and convolutions are calls of PyTorch's, which has the device's libraries for them."""
        self.node = node
        self._metas = metas
        self._values = values
        self.arguments = bound_arguments(node)

    def __getitem__(self, name: str) -> Any:
        """The argument as the traced graph has it, with symbols that are known as numbers."""
        return fx.map_arg(self.arguments[name], self._plain)

    def _plain(self, node: Any) -> Any:
        value = self._metas(node)
        return value if isinstance(value, (int, float, bool, Size)) else node

    def has(self, name: str) -> bool:
        return self.arguments.get(name) is not None

    @property
    def out(self) -> Any:
        """The result's fake tensor, or several."""
        return self._metas(self.node)

    @property
    def shape(self) -> tuple[int, ...]:
        return self.extents(self.out)

    @property
    def dtype(self) -> DType:
        return self.element(self.out.dtype)

    def is_used(self, number: int) -> bool:
        """Whether anything reads one of several results."""
        return any(user.target is not operator.getitem or user.args[1] == number for user in self.node.users)

    def extents(self, meta: Any) -> tuple[int, ...]:
        if (found := known_shape(meta)) is None:
            raise NotCoveredError("has extents that are not known before it runs")
        return found

    def element(self, dtype: Any) -> DType:
        if (found := ELEMENTS.get(dtype)) is None:
            raise NotCoveredError(f"is of {dtype}")
        return found

    def meta(self, name: str) -> Any:
        """The fake tensor or the number of an argument."""
        value = self[name]
        return self._metas(value) if isinstance(value, fx.Node) else value

    def value(self, argument: Any) -> SSAValue:
        """The value of a tensor."""
        if not isinstance(argument, fx.Node):
            raise NotCoveredError(f"expected a tensor, got {argument!r}")
        return self._values(argument)

    def leave_to_library(self) -> None:
        """Raises NotCoveredError where PyTorch calls the device's library for it."""
        if self.libraries:
            raise NotCoveredError("is run by the device's library, which PyTorch calls")

    def tensor(self, name: str, element: DType | None = None) -> SSAValue:
        """The value of an argument that is a tensor, converted to an element type where one is given."""
        found = self.value(self[name])
        return found if element is None else self.cast(found, element)

    def tensors(self, name: str, element: DType | None = None) -> list[SSAValue]:
        found = [self.value(item) for item in self[name]]
        return found if element is None else [self.cast(value, element) for value in found]

    def operand(self, argument: str | float, element: DType) -> SSAValue:
        """A tensor or a number, as an element type."""
        given = self[argument] if isinstance(argument, str) else argument
        if isinstance(given, fx.Node):
            return self.cast(self.value(given), element)
        return self.number(given, element)

    def number(self, value: Any, element: DType, extents: Sequence[int] = ()) -> SSAValue:
        """A Python number as a tensor; also one that calls say, as extents of arguments, where numbers are computed with."""
        if isinstance(value, Size) and element is not BOOL and not element.storage_only:
            return self.emit.full(shape=list(extents), dtype=element, value=SizeAttr(value))
        if not isinstance(value, (int, float)):
            raise NotCoveredError(f"expected a number, got {value!r}")
        if element is BOOL:
            value = int(bool(value))
        elif not element.is_float:
            low, bits = (
                (0, element.bits) if element.name.startswith("u") else (-(2 ** (element.bits - 1)), element.bits)
            )
            value = (int(value) - low) % 2**bits + low
        else:
            value = FloatAttr(float(value), 64)
        return self.emit.full(shape=list(extents), dtype=element, value=value)

    def cast(self, x: SSAValue, element: DType) -> SSAValue:
        """Conversion as PyTorch's: integers that do not fit narrow ones wrap, coming from floats, too."""
        source = dtype(x)
        if source.is_float and not element.is_float and element is not BOOL and element.bits < 32:
            x = self._wrapping(x, element)
        return self.emit.cast(x, element)

    def _wrapping(self, x: SSAValue, element: DType) -> SSAValue:
        """Floats as the wider integers that PyTorch makes of them on the way to narrow ones: 0 where these do not hold them."""
        wide = I64 if dtype(x) is F64 and element is U8 else I32
        if dtype(x).bits < 32:
            x = self.emit.cast(x, F32)
        bound, zero = self.number(2.0 ** (wide.bits - 1), dtype(x)), self.number(0.0, dtype(x))
        return self.emit.cast(self.emit.where(self.emit.less(self.emit.abs(x), bound), x, zero), wide)

    def compute(self) -> DType:
        """The type in which a pointwise result is computed: narrow floats in f32, rounded at the end."""
        return F32 if self.dtype.is_float and self.dtype.bits < 32 else self.dtype

    def common(self, *names: str) -> DType:
        """The type in which operands are compared."""
        given: list[Any] = [self.meta(name) for name in names]
        kinds: list[Any] = [_kind(value) for value in given]
        first, *others = kinds
        dtype = first.dtype if not others else torch.result_type(first, others[0])
        return self.element(dtype)

    def result(self, x: SSAValue) -> SSAValue:
        """Converted to the result's element type."""
        return self.cast(x, self.dtype)

    def reshaped(self, x: SSAValue, extents: Sequence[int]) -> SSAValue:
        return self.emit.reshaped(x, extents)

    def axes(self, name: str, rank: int) -> list[int]:
        """Axes as non-negative numbers; all where none are named."""
        given = self[name]
        listed: list[int] = [] if given is None else as_list(given)
        return [axis % max(rank, 1) for axis in listed] or list(range(rank))


def _kind(value: Any) -> Any:
    """A tensor, or a number of the same kind in the place of one that is known when the graph runs."""
    return 1.0 if isinstance(value, torch.SymFloat) else 1 if isinstance(value, Size) else value


def bound_arguments(node: Any) -> dict[str, Any]:
    """A call's arguments by name, defaults included."""
    found: dict[str, Any] = {}
    for position, argument in enumerate(node.target._schema.arguments):
        if position < len(node.args):
            found[argument.name] = node.args[position]
        elif argument.name in node.kwargs:
            found[argument.name] = node.kwargs[argument.name]
        else:
            found[argument.name] = argument.default_value if argument.has_default_value() else None
    return found


def check_type(value: SSAValue, meta: Any) -> None:
    """Raises NotCoveredError unless a value has the type that PyTorch says it has."""
    if shape(value) != known_shape(meta) or dtype(value) is not ELEMENTS.get(meta.dtype):
        raise NotCoveredError(f"is {value.type} by its record and {tuple(meta.shape)} {meta.dtype} by PyTorch")
