"""One program for all sizes of a range: made where every kernel can take its extents at the call; else there is none."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from xdsl.dialects.builtin import ModuleOp, TensorType
from xdsl.dialects.func import FuncOp
from xdsl.ir import Operation, SSAValue
from xdsl.passes import ModulePass
from xdsl.utils.exceptions import VerifyException

from fuse_opt.dialects.fused import OutlinedOp
from fuse_opt.dialects.interfaces.op import GraphOp
from fuse_opt.dialects.interfaces.shapes import is_sized, sizes, sizes_asked_for
from fuse_opt.dialects.interfaces.symbols import LimitError, Stated, change_sizes, restate_symbols, stated_sizes
from fuse_opt.dialects.types.extents import may_exceed, substitute, symbols
from fuse_opt.dialects.types.size import Extent, Size, SizeRefusal, Symbol, symbol
from fuse_opt.dialects.types.symbolic_shape import extents_of as symbolic_extents
from fuse_opt.lowering.emit.sized_program import LongRows
from fuse_opt.lowering.reference.interpreter import entry_function
from fuse_opt.passes.remarks import remark
from fuse_opt.tools.compiler.pipeline import make_passes, run_pipeline
from fuse_opt.tools.compiler.registry import make_context

if TYPE_CHECKING:
    from fuse_opt.lowering.emit.sized_program import SizedProgram
    from fuse_opt.lowering.emit.traced import TracedProgram
    from fuse_opt.lowering.program import LibraryCall, SizesLayout
    from fuse_opt.runtime.cpu.program import CpuProgram
    from fuse_opt.runtime.cpu.sized_frames import SizedFrame
    from fuse_opt.runtime.cpu.sized_program import SizedCpuProgram
    from fuse_opt.runtime.host.program_call import RecentCalls

Shapes = tuple[tuple[int, ...], ...]
_MOST_RAISED = 1 << 16
"""Of what a range is begun at, so that no extent of a program is 0."""


@dataclass(frozen=True)
class SizedKind:
    """How programs of a target for all sizes are made: their record, what runs it, and what that gives for some sizes."""

    build: Callable[[ModuleOp, str | None, Stated], SizedProgram]
    """Raises SizeRefusal for what needs numbers."""
    load: Callable[[SizedProgram], Any]
    """Raises SizeRefusal where only programs for numbers can be made."""
    at: Callable[[Any], Callable[[Mapping[str, int]], Any]]


class SizedPrograms:
    """
    The programs for argument shapes of one text, which is compiled when the first of them is asked for. Rows are mostly short:
    the text has memory for what it keeps of them, and there is another one for longer rows, compiled when one is met.
    """

    def __init__(
        self,
        module: ModuleOp,
        function: str | None,
        passes: Sequence[ModulePass],
        bind: Callable[[FuncOp, Mapping[int, Sequence[int]], Stated], dict[str, int]],
        recent: RecentCalls | None = None,
        kind: SizedKind | None = None,
    ) -> None:
        """
        `bind` gives the values of a function's symbols where arguments have shapes, of what it states; it raises ValueError.
        `recent` calls are told of those of all extents. The kind is the CPU's where none is given.
        """
        self._kind = kind
        self._recent = recent
        self._module, self._function, self._passes, self._bind = module, function, passes, bind
        self._lock = threading.Lock()
        self._made: list[tuple[FuncOp, Stated, Any, Callable[[Mapping[str, int]], Any]]] = []
        """For short rows, then for all."""
        self._ways: list[tuple[Any, SizedCpuProgram, Callable[[Any], Any] | None]] = []
        """With the program, and what makes one for some extents take the arguments that a caller has."""
        self.problem: str | None = None
        """Why there is no such program; None where there is one, or nobody has asked yet."""

    @property
    def compiled(self) -> int:
        """How many texts were compiled: two at most."""
        return len(self._made)

    def __call__(self, shapes: Shapes) -> Any:
        """The program for arguments of these shapes; None where they are to be compiled by themselves."""
        for number in range(2):
            with self._lock:
                if len(self._made) == number and self.problem is None:
                    self._make(long_rows=number == 1)
                if len(self._made) == number:
                    return None
                function, known, program, at = self._made[number]
            try:
                found = at(self._bind(function, dict(enumerate(shapes)), known))
            except LongRows:
                continue
            except LimitError:
                raise
            except ValueError:
                return None
            self._call_compiled(number, program, found)
            return found
        return None

    def _call_compiled(self, number: int, program: SizedCpuProgram, found: Any) -> None:
        """Lets compiled code take later calls of other extents than those that a program was found for."""
        from fuse_opt.runtime.cpu.sized_program import AnyExtents
        from fuse_opt.runtime.prepared import PreparedProgram

        with_second = isinstance(found, PreparedProgram)
        native: CpuProgram = found.program if with_second else found
        if self._recent is None or (calls := program.calls(native)) is None:
            return
        if not with_second and native.direct is not None:
            self._recent.add_sized(calls.call, program.last)
        elif number == len(self._ways):
            any_extents = AnyExtents(calls, native.program)
            backend = found.around(any_extents) if with_second else any_extents
            self._ways.append((backend, program, found.around if with_second else None))

    @property
    def ways(self) -> list[Any]:
        """Programs for any extents, some of whose arguments are prepared or have axes in another order: they have `taken`."""
        return [way for way, *_ in self._ways]

    def taken(self, arrays: Sequence[Any], out: Any) -> Any:
        """What one of the ways gives; else NotImplemented."""
        for way, *_ in self._ways:
            if (found := way.taken(arrays, out)) is not NotImplemented:
                return found
        return NotImplemented

    def last(self) -> Any:
        """The program of the last call that one of the ways took, for its extents; None where others came after."""
        for _, program, around in self._ways:
            if (found := program.last()) is not None:
                return found if around is None else around(found)
        return None

    def forget_last(self) -> None:
        """A call was of another program."""
        for _, program, _ in self._ways:
            program.forget_last()

    def traced(self, shapes: Shapes) -> TracedProgram | None:
        """That program, made anew with one kernel a bulk; None where there is none for these shapes."""
        from fuse_opt.lowering.emit.traced import trace_sized

        for long_rows in (False, True):
            module = self._module.clone()
            try:
                stated = stated_function(module, self._function)
                known = Stated.of(stated)
                with sizes_asked_for(long_rows):
                    plan_for_sizes(module, self._function, self._passes)
                    values = self._bind(stated, dict(enumerate(shapes)), known)
                    return trace_sized(module, self._function, known, values)
            except LongRows:
                continue
            except LimitError:
                raise
            except (SizeRefusal, ValueError):
                return None
        return None

    def _make(self, long_rows: bool) -> None:
        module = self._module.clone()
        entry = entry_function(module, self._function)
        try:
            stated, program = compile_sized(module, self._function, self._passes, long_rows, self._kind)
        except SizeRefusal as error:
            self.problem = f"{type(error).__name__}: {error}"
            about = error.op if isinstance(error.op, Operation) else entry
            message = "is compiled" if about is entry else "is why the program is compiled"
            if isinstance(about, OutlinedOp):
                ops = dict.fromkeys(f"'{op.name}'" for op in about.walk() if isinstance(op, GraphOp))
                message = f"a kernel of {', '.join(ops)}, {message}"
            remark("compile", about, "specialised", f"{message} for each set of shapes: {self.problem}")
            return
        at = _with_second if self._kind is None else self._kind.at
        self._made.append((stated, Stated.of(stated), program, at(program)))


def compile_sized(
    module: ModuleOp,
    function: str | None,
    passes: Sequence[ModulePass],
    long_rows: bool,
    kind: SizedKind | None = None,
) -> tuple[FuncOp, Any]:
    """
    Runs the passes on the module, and compiles its function for all sizes (for the CPU where no other kind is given); gives that
    with its symbols, too. Raises SizeRefusal where something needs numbers.
    """
    from fuse_opt.lowering.emit import build_sized_program
    from fuse_opt.runtime.cpu.sized_program import SizedCpuProgram

    build = build_sized_program if kind is None else kind.build
    stated = stated_function(module, function)
    with sizes_asked_for(long_rows):
        plan_for_sizes(module, function, passes)
        program = build(module, function, Stated.of(stated))
    if kind is not None:
        return stated, kind.load(program)
    usual = {one.name: one.usual for one in symbols_of(stated)}
    return stated, SizedCpuProgram(program.program, program.at, program.named, usual)


def stated_function(module: ModuleOp, function: str | None) -> FuncOp:
    """A copy of the function as it is with symbols, which the module has from now on."""
    entry = entry_function(module, function)
    run_pipeline(module, make_passes("infer-shapes{symbols=true}"), make_context())
    _without_zeros(entry)
    return entry.clone()


def plan_for_sizes(module: ModuleOp, function: str | None, passes: Sequence[ModulePass]) -> None:
    """Runs the passes, while sizes are asked for. Raises SizeRefusal."""
    entry = entry_function(module, function)
    _check_sizes(entry)
    _check_ops(entry)
    run_pipeline(module, passes, make_context())


def _with_second(native: SizedCpuProgram) -> Callable[[Mapping[str, int]], Any]:
    """From values of symbols to the program for these, with the one that computes arguments of it, which is the same for all."""
    from fuse_opt.runtime.cpu.program import CpuProgram
    from fuse_opt.runtime.prepared import PreparedProgram, persistent_memory

    if (preparation := native.program.prepare) is None:
        return native.at
    second, memory = CpuProgram(preparation.program), persistent_memory(preparation.program)
    return lambda values: PreparedProgram(native.at(values), second, preparation, memory)


def symbols_of(function: FuncOp) -> list[Symbol]:
    """Those that the types of a function have, and numbers that its ops say."""
    extents = [extent for value in _tensors(function) for extent in sizes(value)]
    return symbols([*extents, *stated_sizes(function)])


class CallerSizes:
    """A program for all sizes, for a caller that binds it to memory of its own."""

    def __init__(self, function: FuncOp, native: SizedCpuProgram) -> None:
        """`function` is what it was compiled of, with its symbols."""
        from fuse_opt.runtime.cpu.program import CpuProgram
        from fuse_opt.runtime.prepared import PreparedProgram, persistent_memory

        self.symbols = symbols_of(function)
        if (layout := native.program.sizes) is None:
            raise SizeRefusal("an arena of very many places has offsets that are numbers")
        self.layout: SizesLayout = layout
        """What runs say symbols are by, and where in the numbers of a frame is what follows from them."""
        example = native.at({one.name: one.usual for one in self.symbols}, any_extents=True)
        self.named: Callable[[Mapping[str, int]], Mapping[str, int]] = native.named
        """From values of symbols to those of all symbols of the record, which may be where calls have their workspace."""
        self.frames: Callable[[], SizedFrame] = example.sized_frames(layout)
        """Gives what a run needs to itself, for any values of the symbols."""
        self.bind_call: Callable[[SizedFrame, LibraryCall], Callable[[], None] | None] = example.call_binder()
        """Of a frame and a call of a library whose extents are numbers: what makes it, where that is compiled code."""
        structure = SizedStructure(native, example)
        self.usual: Any = structure
        """A program that stands for all of them: its record has sizes in the place of numbers."""
        if (preparation := native.program.prepare) is not None:
            second = CpuProgram(preparation.program)
            self.usual = PreparedProgram(structure, second, preparation, persistent_memory(preparation.program))


class SizedStructure:
    """What programs for all values of symbols have in common, of which one for some values is looked at."""

    def __init__(self, native: SizedCpuProgram, example: CpuProgram) -> None:
        self.program = native.program
        pairs = zip(native.program.steps, example.steps, strict=True)
        self.steps = tuple(given if callable(given) else step for step, given in pairs)
        self.compiled_calls, self.run = example.compiled_calls, example.run
        self.source, self.stats = example.source, replace(example.stats, **native.counts)


class UnknownSize(SizeRefusal):
    """A value of which not all extents follow from those of the arguments, or one of them may be 0."""


def _check_sizes(function: FuncOp) -> None:
    """Raises UnknownSize."""
    for value in _tensors(function):
        if not is_sized(value):
            raise UnknownSize(f"the extents of '{value.type}' do not follow from the arguments'")
        for extent in sizes(value):
            if may_exceed(1, extent):
                raise UnknownSize(f"the extent '{extent}' may be 0")


def _check_ops(function: FuncOp) -> None:
    """
    Raises UnknownSize where the types of an op's results do not follow from those of its operands for all sizes: what an op
    asks of numbers, as that they are equal, calls would not be asked.
    """
    for op in function.walk():
        if not isinstance(op, GraphOp):
            continue
        try:
            found = [type_ for type_ in op.infer_types()]
        except (SizeRefusal, VerifyException) as error:
            raise UnknownSize(f"'{op.name}': {error}").about(op) from error
        for result, type_ in zip(op.results, found, strict=True):
            if symbolic_extents(type_) != sizes(result):
                raise UnknownSize(f"'{op.name}': expected '{type_}' for all sizes, got '{result.type}'").about(op)


def _without_zeros(function: FuncOp) -> None:
    """
    Cuts off the ranges of symbols what leaves extents without an element, as of windows that do not fit: such arrays are compiled
    by themselves.
    """
    found = {extent for value in _tensors(function) for extent in sizes(value) if may_exceed(1, extent)}
    raised = {one.name: _from(one, one.multiple) for one in symbols(found) if one.least == 0}
    for extent in sorted(found, key=str):
        here = substitute(extent, raised)
        known = symbols([here])
        if len(known) == 1 and may_exceed(1, here) and (least := _least_value(here, known[0])) is not None:
            raised[known[0].name] = _from(known[0], least)
    if raised:
        change_sizes(function, lambda extent: substitute(extent, raised))
        restate_symbols(function, symbols(raised.values()))
        inputs = [value.type for value in function.body.block.args]
        last = function.body.block.last_op
        assert last is not None
        function.update_function_type()
        assert list(function.function_type.inputs.data) == inputs


def _from(one: Symbol, least: int) -> Size:
    """A symbol of the range that is left from so much on."""
    facts = {**one.facts(), "least": least}
    if facts.get("typical", least) < least:
        del facts["typical"]
    return symbol(one.name, **facts)


def _least_value(extent: Extent, one: Symbol) -> int | None:
    """The least value of an extent's only symbol from which on it is proven to be above 0; None where none is found."""

    def fits(value: int) -> bool:
        return not may_exceed(1, substitute(extent, {one.name: _from(one, value)}))

    step, last, low = one.multiple, one.most // one.multiple, one.least // one.multiple
    high = max(low, 1)
    while high <= min(last, _MOST_RAISED) and not fits(high * step):
        low, high = high, 2 * high
    if high > min(last, _MOST_RAISED):
        return None
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (low, middle) if fits(middle * step) else (middle, high)
    return high * step


def _tensors(function: FuncOp) -> list[SSAValue]:
    found: list[SSAValue] = []
    for op in function.walk():
        blocks = [block for region in op.regions for block in region.blocks]
        values: list[Any] = [*op.results, *(argument for block in blocks for argument in block.args)]
        found += [value for value in values if isinstance(value.type, TensorType)]
    return found
