"""Programs with unknown extents: one is compiled for each set of argument shapes that is met, when it is first met."""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Callable, Mapping, Sequence
from itertools import count
from types import BuiltinMethodType
from typing import TYPE_CHECKING, Any, ClassVar, cast

from xdsl.dialects.builtin import DYNAMIC_INDEX, FunctionType, ModuleOp
from xdsl.dialects.func import FuncOp
from xdsl.rewriter import Rewriter

from fuse_opt.dialects.analysis.prepared import prepared_arguments
from fuse_opt.dialects.interfaces.shapes import is_static, tensor
from fuse_opt.dialects.interfaces.symbols import EQUAL, SYMBOLS, LimitError, Stated, change_sizes, size_arguments
from fuse_opt.dialects.types.extents import evaluate, is_symbol
from fuse_opt.dialects.types.extents import symbols as symbols_of
from fuse_opt.dialects.types.size import Extent, Size
from fuse_opt.dialects.types.symbolic_shape import with_extents
from fuse_opt.lowering.reference.interpreter import entry_function
from fuse_opt.runtime.frozen import Bound, FrozenCalls, wrong_count
from fuse_opt.tools.compiler.signature import Signature

if TYPE_CHECKING:
    from fuse_opt.lowering.emit.traced import TracedProgram
    from fuse_opt.runtime.host.program_call import Call, RecentCalls
    from fuse_opt.tools.compiler.sized import SizedPrograms

Shapes = tuple[tuple[int, ...], ...]


def is_dynamic(function: FuncOp) -> bool:
    """Whether an argument has an unknown extent."""
    return not all(is_static(value) for value in function.body.block.args)


def specialize(module: ModuleOp, name: str | None, shapes: Shapes) -> ModuleOp:
    """
    A copy of the module whose entry function takes arguments of these shapes; `infer-shapes` carries them on. Raises ValueError
    for shapes that break what the function says of its extents.
    """
    copy = module.clone()
    function = entry_function(copy, name)
    prepared = prepared_arguments(function)
    given = dict(zip([value.index for value in function.args if value.index not in prepared], shapes, strict=True))
    values, of_values = bind(function, given), size_arguments(function)
    change_sizes(
        function,
        lambda extent: (
            evaluate(extent, values) if all(symbol.name in values for symbol in symbols_of([extent])) else DYNAMIC_INDEX
        ),
    )
    for number, extents in given.items():
        value = function.args[number]
        if number in of_values:
            continue
        Rewriter.replace_value_with_new_type(value, with_extents(tensor(value), extents))
    last = function.body.block.last_op
    assert last is not None
    types = ([value.type for value in values] for values in (function.body.block.args, last.operands))
    function.properties["function_type"] = FunctionType.from_lists(*types)
    for said in (SYMBOLS, EQUAL):
        function.attributes.pop(said, None)
    return copy


def bind(function: FuncOp, shapes: Mapping[int, Sequence[int]], stated: Stated | None = None) -> dict[str, int]:
    """
    The values of a function's symbols where arguments, by their number, have these shapes, or of size arguments that value alone;
    `stated` may have what the function says. Raises ValueError for extents of one name that differ, and for others than the
    function takes.
    """
    return bind_stated(stated or Stated.of(function), shapes)


def bind_extents(known: Sequence[tuple[Extent, ...]], shapes: Mapping[int, Sequence[int]]) -> dict[str, int]:
    """The same for arguments of these extents."""
    return bind_stated(Stated(known, (), (), {}), shapes)


def bind_stated(stated: Stated, shapes: Mapping[int, Sequence[int]]) -> dict[str, int]:
    """The same where this is stated."""
    values: dict[str, int] = {}
    places: dict[str, str] = {}
    computed: list[tuple[str, int, Size]] = []
    for number, extents in shapes.items():
        for axis, (size, extent) in enumerate(zip(stated.extents[number], extents, strict=False)):
            place = f"argument {number}" if number in stated.of_values else f"argument {number}, axis {axis}"
            if (symbol := is_symbol(size)) is None:
                computed += [(place, extent, size)] if isinstance(size, Size) else []
            elif values.setdefault(symbol.name, extent) != extent:
                problem = f"{places[symbol.name]} has {values[symbol.name]}, {place} has {extent}; they must be equal"
                raise ValueError(f"extent '{symbol.name}': {problem}")
            elif (expected := symbol.problem(extent)) is not None:
                raise ValueError(f"extent '{symbol.name}': {place} has {extent}; {expected}")
            else:
                places.setdefault(symbol.name, place)
    _check_equal(stated.equal, values, places)
    for place, extent, size in computed:
        if (expected := size.evaluate(values)) != extent:
            symbols = ", ".join(f"'{symbol.name}' {values[symbol.name]}" for symbol in size.symbols())
            raise ValueError(f"extent '{size}': {place} has {extent}; expected {expected} with {symbols}")
    for limit in stated.limits:
        if all(one.name in values for one in limit.symbols) and (problem := limit.problem(values)) is not None:
            raise LimitError(problem)
    return values


def _check_equal(equal: Sequence[Sequence[str]], values: Mapping[str, int], places: Mapping[str, str]) -> None:
    for names in equal:
        first, *others = [name for name in names if name in values] or [""]
        for other in others:
            if values[other] != values[first]:
                problem = (
                    f"{places[first]} has {values[first]}, {places[other]} has {values[other]}; they must be equal"
                )
                raise ValueError(f"extents '{first}' and '{other}': {problem}")


class SpecializedPrograms:
    """A backend of programs for one set of argument shapes each. `make` compiles one; calls come from any thread."""

    KEPT: ClassVar[int] = 64
    """Programs that are kept; the one that was not used for the longest time goes first."""

    def __init__(
        self,
        function: FuncOp,
        make: Callable[[Shapes], Any],
        traced: Callable[[Shapes], TracedProgram],
        sized: SizedPrograms | None = None,
        recent: RecentCalls | None = None,
    ) -> None:
        """
        `sized` gives a program for all sizes, or None where there is none for some shapes: then one is made. With `recent`
        compiled code finds the program of a call.
        """
        self.traced = traced
        """Makes what runs for arguments of these shapes anew, with kernels that can be found in it."""
        self.signature = Signature.of(function)
        self.of_values = frozenset(size_arguments(function))
        """The numbers of arguments whose value is a size."""
        self._make = make
        self.sized = sized
        self._programs: dict[Shapes, Any] = {}
        self._direct: dict[Shapes, Callable[..., Any]] = {}
        """Calls of programs that take arrays as they are, where these are what is expected."""
        self._used: dict[Shapes, int] = {}
        """When a program was called last, counted in calls."""
        self._count = count(1)
        self.made = 0
        """How many programs were compiled for shapes of their own."""
        self._lock = threading.Lock()
        self._recent = recent
        self.direct: Call = self._direct_by_shapes if self._recent is None else self._recent.call
        """The result, where a program for arrays of their shapes is there and takes them as they are; else NotImplemented."""

    def _direct_by_shapes(self, arrays: Sequence[Any], out: Any) -> Any:
        """`direct`, where compiled code does not know how arrays are laid out."""
        try:
            shapes = tuple([array.shape for array in arrays])
            call = self._direct[shapes]
        except (AttributeError, KeyError, TypeError):
            return NotImplemented
        self._used[shapes] = next(self._count)
        return call(arrays, out)

    def __call__(self, *arrays: Any, out: Any = None) -> Any:
        if self.sized is not None and (found := self.sized.taken(arrays, out)) is not NotImplemented:
            return found
        inputs = self.inputs(arrays)
        return self.program(self.shapes(inputs))(*inputs, out=out)

    def inputs(self, arrays: Sequence[Any]) -> Sequence[Any]:
        """What a program is called with. Raises TypeError or ValueError."""
        return self.signature.convert_inputs(arrays)

    def shapes(self, inputs: Sequence[Any]) -> Shapes:
        """By which programs are known: of arguments that are sizes it is the value."""
        if not self.of_values:
            return tuple([array.shape for array in inputs])
        return tuple([(int(a),) if n in self.of_values else a.shape for n, a in enumerate(inputs)])

    def known(self, arrays: Sequence[Any]) -> Any:
        """The program for arrays of their shapes; None where it is not there, or these say no shapes."""
        try:
            shapes = tuple([array.shape for array in arrays])
            found = self._programs[shapes]
        except (AttributeError, KeyError, TypeError):
            return None
        self._used[shapes] = next(self._count)
        return found

    @property
    def for_all(self) -> Sequence[Any]:
        """Backends, as far as there are such by now, that by compiled code take arrays of all extents."""
        ways = () if self.sized is None else self.sized.ways
        return [*([] if self._recent is None or not self._recent.takes_all else [self]), *ways]

    @property
    def stats(self) -> Any:
        """Of the program that was called last. Raises RuntimeError before the first call."""
        return self._last().stats

    @property
    def source(self) -> str:
        return self._last().source

    def program(self, shapes: Shapes) -> Any:
        """The one for arguments of these shapes."""
        self._used[shapes] = next(self._count)
        if self.sized is not None:
            self.sized.forget_last()
        if (found := self._programs.get(shapes)) is not None:
            self._remember(found)
            return found
        found = None if self.sized is None else self.sized(shapes)
        program = self._make(shapes) if found is None else found
        with self._lock:
            self.made += found is None
            self._programs[shapes] = program
            if not self.of_values and (direct := getattr(program, "direct", None)) is not None:
                self._direct[shapes] = direct
            while len(self._programs) > self.KEPT:
                oldest = min(self._programs, key=lambda known: self._used.get(known, 0))
                for kept in (self._programs, self._direct, self._used):
                    kept.pop(oldest, None)
        self._remember(program)
        return program

    def _remember(self, program: Any) -> None:
        """Lets compiled code call a program, if it can."""
        direct = getattr(program, "direct", None)
        if self._recent is not None and not self.of_values and isinstance(direct, BuiltinMethodType):
            self._recent.add(cast("Any", direct), program)

    def _last(self) -> Any:
        if self._recent is not None and (found := self._recent.last()) is not None:
            return found
        if self.sized is not None and (found := self.sized.last()) is not None:
            return found
        with self._lock:
            if not self._programs:
                raise RuntimeError("the program has unknown extents: it is compiled at its first call, and known then")
            return self._programs[max(self._programs, key=lambda known: self._used.get(known, 0))]


def recent_calls() -> RecentCalls | None:
    """One call of several programs by compiled code; None where there is none."""
    from fuse_opt.runtime.host.program_call import RecentCalls, load_caller
    from fuse_opt.runtime.host.thread_pool import pool_library

    if pool_library() is None or (caller := load_caller()).call_recent is None:
        return None
    return RecentCalls(caller)


class FrozenSpecializedCalls:
    """Calls of specialized programs some of whose arguments are bound: like FrozenCalls, for each set of shapes."""

    def __init__(
        self,
        signature: Signature,
        programs: SpecializedPrograms,
        bound: Mapping[int, Bound],
        calls: Callable[[Any], FrozenCalls],
        found: Callable[[FrozenCalls], None],
    ) -> None:
        """`calls` gives those of one program; `found` is told of those for any extents, once there are such."""
        self._signature, self._programs, self._make = signature, programs, calls
        self._bound, self._found = bound, found
        self._calls: OrderedDict[Shapes, FrozenCalls] = OrderedDict()
        self._sized: tuple[tuple[Any, FrozenCalls], ...] = ()
        """With their backends, those of programs for any extents."""
        self._lock = threading.Lock()

    def __call__(self, arrays: Sequence[Any], out: Any, stream: Any = None) -> Any:
        for _, calls in self._sized if stream is None else ():
            if (found := calls.taken(arrays, out)) is not NotImplemented:
                return found
        values, left = self._signature.arguments, list(arrays)
        if len(left) != len(values) - len(self._bound):
            raise wrong_count(self._signature.name, len(values), len(self._bound), len(left))
        bound = [self._bound.get(number) for number in range(len(values))]
        given = [left.pop(0) if entry is None else entry.value() for entry in bound]
        inputs = self._programs.inputs(given)
        calls = self._of(self._programs.shapes(inputs))
        self._find_sized()
        return calls([array for array, entry in zip(inputs, bound, strict=True) if entry is None], out, stream)

    def _find_sized(self) -> None:
        with self._lock:
            known = [backend for backend, _ in self._sized]
            new = [each for each in self._programs.for_all if all(each is not other for other in known)]
            self._sized += tuple((backend, self._make(backend)) for backend in new)
            if new:
                self._found(self._sized[0][1])

    def refresh(self) -> None:
        """As that of each program."""
        with self._lock:
            for calls in (*self._calls.values(), *(calls for _, calls in self._sized)):
                calls.refresh()

    def _of(self, shapes: Shapes) -> FrozenCalls:
        program = self._programs.program(shapes)
        with self._lock:
            if shapes not in self._calls:
                self._calls[shapes] = self._make(program)
            self._calls.move_to_end(shapes)
            while len(self._calls) > self._programs.KEPT:
                self._calls.popitem(last=False)
            return self._calls[shapes]
