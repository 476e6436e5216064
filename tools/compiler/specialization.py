"""Programs with unknown extents: one is compiled for each set of argument shapes that is met, when it is first met."""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from xdsl.dialects.builtin import DYNAMIC_INDEX, FunctionType, ModuleOp, TensorType
from xdsl.dialects.func import FuncOp
from xdsl.rewriter import Rewriter

from fuse_opt.dialects.analysis.prepared import prepared_arguments
from fuse_opt.dialects.analysis.symbolic_shapes import argument_dims
from fuse_opt.dialects.interfaces.shapes import shape, tensor
from fuse_opt.lowering.reference.interpreter import entry_function
from fuse_opt.runtime.frozen import Bound, FrozenCalls, wrong_count
from fuse_opt.tools.compiler.signature import Signature

Shapes = tuple[tuple[int, ...], ...]

KEPT = 64
"""Programs that are kept; the one that was not used for the longest time goes first."""


def is_dynamic(function: FuncOp) -> bool:
    """Whether an argument has an unknown extent."""
    return any(DYNAMIC_INDEX in shape(value) for value in function.body.block.args)


def specialize(module: ModuleOp, name: str | None, shapes: Shapes) -> ModuleOp:
    """A copy of the module whose entry function takes arguments of these shapes; `infer-shapes` carries them on."""
    copy = module.clone()
    function = entry_function(copy, name)
    _check_names(function, shapes)
    given = [value for value in function.args if value.index not in prepared_arguments(function)]
    for value, extents in zip(given, shapes, strict=True):
        Rewriter.replace_value_with_new_type(value, TensorType(tensor(value).element_type, extents))
    last = function.body.block.last_op
    assert last is not None
    types = ([value.type for value in values] for values in (function.body.block.args, last.operands))
    function.properties["function_type"] = FunctionType.from_lists(*types)
    return copy


def _check_names(function: FuncOp, shapes: Shapes) -> None:
    """Raises ValueError when extents of one name differ."""
    met: dict[str, tuple[int, str]] = {}
    for number, extents in enumerate(shapes):
        for axis, (name, extent) in enumerate(zip(argument_dims(function, number), extents, strict=False)):
            place = f"argument {number}, axis {axis}"
            known, first = met.setdefault(name, (extent, place))
            if name and known != extent:
                raise ValueError(f"extent '{name}': {first} has {known}, {place} has {extent}; they must be equal")


class SpecializedPrograms:
    """A backend of programs for one set of argument shapes each. `make` compiles one; calls come from any thread."""

    def __init__(self, function: FuncOp, make: Callable[[Shapes], Any]) -> None:
        self._signature = Signature.of(function)
        self._make = make
        self._programs: OrderedDict[Shapes, Any] = OrderedDict()
        self._lock = threading.Lock()

    def __call__(self, *arrays: Any, out: Any = None) -> Any:
        inputs = self._signature.convert_inputs(arrays)
        return self.program(tuple(array.shape for array in inputs))(*inputs, out=out)

    @property
    def stats(self) -> Any:
        """Of the program that was called last. Raises RuntimeError before the first call."""
        return self._last().stats

    @property
    def source(self) -> str:
        return self._last().source

    def program(self, shapes: Shapes) -> Any:
        """The one for arguments of these shapes."""
        with self._lock:
            if shapes in self._programs:
                self._programs.move_to_end(shapes)
                return self._programs[shapes]
        program = self._make(shapes)
        with self._lock:
            self._programs[shapes] = program
            while len(self._programs) > KEPT:
                self._programs.popitem(last=False)
        return program

    def _last(self) -> Any:
        with self._lock:
            if not self._programs:
                raise RuntimeError("the program has unknown extents: it is compiled at its first call, and known then")
            return next(reversed(self._programs.values()))


class FrozenSpecializedCalls:
    """Calls of specialized programs some of whose arguments are bound: like FrozenCalls, for each set of shapes."""

    def __init__(
        self,
        signature: Signature,
        programs: SpecializedPrograms,
        bound: Mapping[int, Bound],
        calls: Callable[[Any], FrozenCalls],
    ) -> None:
        """`calls` gives those of one program."""
        self._signature, self._programs, self._make = signature, programs, calls
        self._bound = bound
        self._calls: OrderedDict[Shapes, FrozenCalls] = OrderedDict()
        self._lock = threading.Lock()

    def __call__(self, arrays: Sequence[Any], out: Any, stream: Any = None) -> Any:
        values, left = self._signature.arguments, list(arrays)
        if len(left) != len(values) - len(self._bound):
            raise wrong_count(self._signature.name, len(values), len(self._bound), len(left))
        bound = [self._bound.get(number) for number in range(len(values))]
        given = [left.pop(0) if entry is None else entry.value() for entry in bound]
        inputs = self._signature.convert_inputs(given)
        calls = self._of(tuple(array.shape for array in inputs))
        return calls([array for array, entry in zip(inputs, bound, strict=True) if entry is None], out, stream)

    def refresh(self) -> None:
        """As that of each program."""
        with self._lock:
            for calls in self._calls.values():
                calls.refresh()

    def _of(self, shapes: Shapes) -> FrozenCalls:
        program = self._programs.program(shapes)
        with self._lock:
            if shapes not in self._calls:
                self._calls[shapes] = self._make(program)
            self._calls.move_to_end(shapes)
            while len(self._calls) > KEPT:
                self._calls.popitem(last=False)
            return self._calls[shapes]
