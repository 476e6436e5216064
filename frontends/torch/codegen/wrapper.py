"""Writes the Python function that runs a compiled graph: segments of the program, calls of PyTorch's kernels, addresses.

It is a straight line without decisions: what can be known before a run is in its text. Memory of intermediate values
is in a frame that one run has to itself; results are new tensors in each run.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Sequence
from functools import partial
from math import prod
from typing import Any, cast

from fuse_opt.dialects.types.extents import estimate
from fuse_opt.dialects.types.size import Size
from fuse_opt.frontends.torch.codegen.attempts import Attempts, Call
from fuse_opt.frontends.torch.codegen.results import Held, Results
from fuse_opt.frontends.torch.codegen.steps import (
    POOLED,
    Site,
    call_site,
    fitted,
    follow_threads,
    frame_tensor,
    library_step,
    restrided,
)
from fuse_opt.frontends.torch.fx.api import aten, torch
from fuse_opt.frontends.torch.fx.strides import View
from fuse_opt.frontends.torch.importer.imported import AtenCall, Imported, Memory, Output, Returned, ShapeOnly, Variable

MOST_IDLE = 8
"""Frames that a compiled graph keeps while nobody calls it."""
_LARGEST_KEPT = (32 << 20) - (64 << 10)
"""Bytes up to which glibc takes the size of a freed block as one that will be asked for again (mallopt(3))."""
_FAST: dict[Any, Any] = {
    aten.mm.out: torch.mm,
    aten.addmm.out: torch.addmm,
    aten.bmm.out: torch.bmm,
    aten.baddbmm.out: torch.baddbmm,
    aten.convolution.default: torch.convolution,
    aten.embedding.default: torch.embedding,
}
"""Overloads whose functions in `torch` do the same at half the cost of a call."""


class CallWriter(Results):
    """Writes the steps of the program, and the calls between them."""

    def __init__(self, imported: Imported, native: Any) -> None:
        super().__init__(imported, native)
        native = self.native
        self.names["run"] = getattr(native, "run", None)  # programs of devices have functions as pieces
        self.steps: Sequence[Any] = native.steps
        self.compiled, self.may_fail = native.compiled_calls
        """The steps that are calls of libraries and in the pieces nevertheless; whether a run may be refused."""
        self.sites = [call_site(step) for step in self.program.steps]
        self._uses = Counter(v for call in imported.calls for v in _named((call.arguments, call.keywords)))
        self._made: dict[Variable, str] = {}
        """Views that several calls take, by the names that they are made under."""
        self.pieces: list[str] = []
        """Variables of what the program runs between two calls, in order."""
        self.by_number = {call.number: call for call in imported.calls}
        self.in_table = self._addressed()
        self._last_use: dict[str, int] = {}
        self._read: set[str] = set()
        """Variables that a call, the program or the caller reads."""

    def write(self) -> str:
        """The text; `names` and `views` are complete after it."""
        self._find_last_uses()
        self._write_arguments()
        self._write_prepared()
        self._write_results()
        for number, step in enumerate(self.steps):
            self._write_before(number)
            if self._is_compiled(number):
                self._write_segment(number)
            elif (site := self.sites[number]) is not None:
                self._write_call(site)
            else:
                self._write_library(number, step)
            dropped = [name for name, last in self._last_use.items() if last == number]
            dropped += [view for variable, view in self._made.items() if variable.name in dropped]
            if dropped:
                self.lines.append(f"del {', '.join(dropped)}")
        if self.may_fail:
            self.lines.append("binding.check()")
        self._write_copies()
        self._write_stores()
        if self._is_framed():
            self._write_give_back()
        self._write_return()
        return self._text()

    def _write_before(self, number: int) -> None:
        """What a step needs that was not written at the beginning."""

    def _write_give_back(self) -> None:
        self.lines.append("idle.append(frame)")

    def _text(self) -> str:
        return "\n".join([*self._head(), *(f"    {line}" for line in self.lines)]) + "\n"

    def _head(self) -> list[str]:
        head = ["def call(args):"]
        if self._is_framed():
            head.append("    follow_threads()")
            head += ["    try:", "        frame = idle.pop()", "    except IndexError:", "        return first(args)"]
        if self.imported.placeholders:
            head.append(f"    {', '.join(self.imported.placeholders)}, = args")
        head.append("    args.clear()")
        if self._is_framed():
            head.append("    table, pieces, views, binding, seen = frame")
        if self.pieces:
            head.append(f"    {', '.join(self.pieces)}, = pieces")
        if self.views:
            head.append(f"    {', '.join(self.views.values())}, = views")
        return head

    def _is_framed(self) -> bool:
        """Whether a run needs memory beside arguments and results."""
        return bool(self.steps or self.views)

    def _addressed(self) -> set[int]:
        """The buffers that functions of the program are given the addresses of."""
        found: set[int] = set()
        for step, site in zip(self.program.steps, self.sites, strict=True):
            if hasattr(step, "launches"):
                found.update(ref.buffer for launch in step.launches for ref in launch.buffers)
            elif site is None:
                found.update(ref.buffer for ref in (*step.inputs, *step.outputs))
        return found

    def _find_last_uses(self) -> None:
        """By variable of an argument or a call, the last step that needs it, for those that are not needed at the end."""
        holders: dict[int, str] = {}
        for number, argument in enumerate(self.imported.arguments):
            holders[number] = argument.name if argument.dense else f"c{argument.name}"
        outputs = {o.buffer: o.variable for call in self.imported.calls for o in call.outputs if o.buffer is not None}
        for number, variable in outputs.items():
            holders[self.program.results[number].index] = variable
        last: dict[str, int] = {}
        for number, step in enumerate(self.program.steps):
            if hasattr(step, "launches"):
                refs = [ref for launch in step.launches for ref in launch.buffers]
            else:
                refs = [*step.inputs, *step.outputs]
                if (site := self.sites[number]) is not None:
                    call = self.by_number[site.number]
                    last.update(dict.fromkeys(_variables((call.arguments, call.keywords)), number))
                    last.update({o.variable: number for o in call.outputs if call.out is None})
            last.update({holders[ref.buffer]: number for ref in refs if ref.buffer in holders})
        kept = {r.variable.name for r in self._all_returned() if r.variable is not None}
        kept |= {stored.argument for stored in self.imported.stored} | set(self.imported.constants)
        kept |= {holders[r.index] for r in self.program.results if r.copied and r.index in holders}
        self._read = kept | {holders[number] for number in self.in_table if number in holders}
        for step in self.program.steps:  # what the program computes may be what a call gave, as it is
            refs = () if hasattr(step, "launches") else step.inputs
            self._read.update(holders[ref.buffer] for ref in refs if ref.buffer in holders)
        for call in self.imported.calls:
            self._read.update(_variables((call.arguments, call.keywords)))
        for name in (*self.imported.placeholders, *holders.values()):
            last.setdefault(name, -1)
        self._last_use = {name: step for name, step in last.items() if name not in kept and step >= 0}

    def _all_returned(self) -> list[Returned]:
        return [*self.imported.returned, *(stored.source for stored in self.imported.stored)]

    def _write_segment(self, number: int) -> None:
        """Segments that follow one another are one piece of a binding."""
        if not self._begins_piece(number):
            return
        self.pieces.append(f"p{len(self.pieces)}")
        self.lines.append(self._run_of(self.pieces[-1]))

    def _begins_piece(self, number: int) -> bool:
        return not number or not self._is_compiled(number - 1)

    def _run_of(self, piece: str) -> str:
        return f"run({piece})"

    def _is_compiled(self, number: int) -> bool:
        return callable(self.steps[number]) or number in self.compiled

    def _write_call(self, step: Site) -> None:
        call = self.by_number[step.number]
        arguments = [self._argument(item, step) for item in call.arguments]
        arguments += [f"{key}={self._argument(item, step)}" for key, item in call.keywords.items()]
        if call.out is not None:
            function = self.constant(f"{call.target.overloadpacket.__name__}_", _FAST.get(call.out, call.out))
            pairs = zip(call.out_names, call.outputs, step.outputs, strict=True)
            written = [(name, self._given(name, ref, output), output.view) for name, output, ref in pairs]
            arguments += [f"{name}={given}" for name, given, _ in written]
            self.lines.append(f"{function}({', '.join(arguments)})")
            for _, given, view in written:
                self._check_layout(given, view)
            return
        stem = call.name.split(".")[-2] if call.name.count(".") > 1 else "function"
        function = self.constant(
            f"{stem}_" if stem.isidentifier() else "function_", _FAST.get(call.target, call.target)
        )
        names = ", ".join(output.variable for output in call.outputs)
        self.lines.append(f"{names}{',' if call.several else ''} = {function}({', '.join(arguments)})")
        for output in call.outputs:
            self._check_output(call, output)

    def _given(self, name: str, ref: Any, output: Output) -> str:
        """A tensor to write to; its name, where its layout is looked at afterwards."""
        text = self._tensor(ref, output.view, output.dtype)
        if text.isidentifier() or not _has_formats(output.view):
            return text
        self.lines.append(f"given_{name} = {text}")
        return f"given_{name}"

    def _check_layout(self, given: str, view: View | None) -> None:
        if view is None or not _has_formats(view):
            return
        self.names["restrided"] = restrided
        shape, strides = self.extents(view.shape), self.extents(view.strides)
        self.lines.append(f"if {given}.stride() != {strides}:")
        self.lines.append(f"    restrided({given}, {shape}, {strides})")

    def _check_output(self, call: AtenCall, output: Output) -> None:
        if output.view is None or output.variable not in self._read:
            return  # PyTorch's descriptions of results that nobody reads may be wrong
        name, view = output.variable, output.view
        dtype = self.constant("dtype", output.dtype)
        self.names["fitted"] = fitted
        shape, strides = self.extents(view.shape), self.extents(view.strides)
        wrong = f"{name}.stride() != {strides} or {name}.shape != {shape} or {name}.dtype is not {dtype}"
        self.lines.append(f"if {wrong}:")
        self.lines.append(f"    {name} = fitted({name}, {shape}, {strides}, {dtype}, {call.name!r})")
        if output.buffer is not None:
            self._hold(self.program.results[output.buffer].index, Held(name, view, output.dtype))

    def _write_library(self, number: int, step: Any) -> None:
        self.names[f"library{number}"] = library_step(step)
        self.lines.append(f"library{number}(binding)")

    def _argument(self, item: Any, step: Any) -> str:
        """An argument of a call as Python text."""
        match item:
            case Variable(name, view):
                return self.strided(name, view) if view is None or self._uses[item] < 2 else self._view(item)
            case Memory(position, view, dtype):
                return self._tensor(step.inputs[position], view, dtype)
            case ShapeOnly(shape, dtype):
                return self.constant("shape", torch.empty((), dtype=dtype).expand(shape))
            case tuple():
                items = [self._argument(entry, step) for entry in cast(tuple[Any, ...], item)]
                return f"({', '.join(items)}{',' if len(items) == 1 else ''})"
            case list():
                return f"[{', '.join(self._argument(entry, step) for entry in cast(list[Any], item))}]"
            case Size():
                return self.extents(item)
            case None | bool() | int() | str():
                return repr(item)
            case _:
                return self.constant("c", item)

    def _view(self, variable: Variable) -> str:
        """The name of a view, which is made where it is needed first."""
        if variable not in self._made:
            text = self.strided(variable.name, variable.view)
            self._made[variable] = f"s{len(self._made)}"
            self.lines.append(f"{self._made[variable]} = {text}")
        return self._made[variable]

    def _tensor(self, ref: Any, view: View | None, dtype: Any) -> str:
        assert view is not None
        if not hasattr(ref, "buffer"):
            return self.constant("t", torch.as_strided(ref, view.shape, view.strides, view.offset))
        return self.tensor(ref.buffer, ref.offset, view, dtype)


def _has_formats(view: View | None) -> bool:
    """Whether PyTorch has more than one memory format for tensors of that rank, which its kernels may choose from."""
    return view is not None and len(view.shape) in (4, 5)


def expect_memory(imported: Imported) -> None:
    """
    Lets the allocator know how much one run is given and gives back. PyTorch's tensors are glibc's blocks: large ones go
    back to the system when freed, and each run then meets a page fault for every page, unless a block of such a size was
    freed before. That block is never touched.
    """
    given = [o for call in imported.calls for o in call.outputs if call.out is None and o.view is not None]
    sizes = [estimate(prod(o.view.shape)) * o.dtype.itemsize for o in given if o.view]
    written = [estimate(prod(o.view.shape)) * o.dtype.itemsize for o in imported.buffers]
    nbytes = 2 * sum([*sizes, *(n for n in written if n < POOLED)])
    torch.empty(min(nbytes, _LARGEST_KEPT), dtype=torch.uint8)


def compile_call(imported: Imported, native: Any, attempts: Attempts) -> tuple[Call, str]:
    """
    The function that runs a graph, for the list of its arguments, which it empties; and its text. A call that no frame is
    idle for, as the first one, may fail.
    """
    writer = CallWriter(imported, native)
    text = writer.write()
    expect_memory(imported)
    views, native = list(writer.views), writer.native

    def new_frame() -> tuple[Any, tuple[int, ...], tuple[Any, ...], Any, list[int]]:
        binding = native.bind()
        tensors = tuple(frame_tensor(binding, native.program, view) for view in views)
        return binding.table, binding.pieces if writer.pieces else (), tensors, binding, [0]

    idle = deque[Any](maxlen=MOST_IDLE)

    def with_frame(args: list[Any]) -> Any:
        idle.append(new_frame())
        return call(args)

    names = {
        **writer.names,
        "idle": idle,
        "first": partial(attempts, with_frame),
        "follow_threads": follow_threads,
    }
    exec(compile(text, "<fuse_opt call>", "exec"), names)
    call = cast(Call, names["call"])
    return call, text


def _named(item: Any) -> list[Variable]:
    """The variables in arguments of a call."""
    match item:
        case Variable():
            return [item]
        case list() | tuple():
            return [variable for entry in cast(Sequence[Any], item) for variable in _named(entry)]
        case dict():
            return [variable for entry in cast(dict[str, Any], item).values() for variable in _named(entry)]
        case _:
            return []


def _variables(item: Any) -> list[str]:
    return [variable.name for variable in _named(item)]
