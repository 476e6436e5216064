"""Programs that are ready to run, with arguments that are bound once or given in each call."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from copy import deepcopy
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, cast

from xdsl.dialects.builtin import ModuleOp
from xdsl.dialects.func import FuncOp

from fuse_opt.dialects.analysis.prepared import called_functions
from fuse_opt.dialects.analysis.storage import byte_size
from fuse_opt.dialects.analysis.stored_values import FALLBACK
from fuse_opt.dialects.graph.materialize import conversion_counts
from fuse_opt.dialects.implementation.queries import implementation_counts
from fuse_opt.dialects.interfaces.symbols import argument_symbols
from fuse_opt.dialects.types.extents import evaluate, symbols
from fuse_opt.passes.memory.growing_caches import NoGrowth, grow_caches
from fuse_opt.runtime.frozen import Bound, FrozenCalls
from fuse_opt.runtime.growing import Cache, GrowingCaches
from fuse_opt.tools.compiler.builders import Backend
from fuse_opt.tools.compiler.notebook import notebook_html
from fuse_opt.tools.compiler.signature import Signature, call_with_parts, quick_call
from fuse_opt.tools.compiler.specialization import FrozenSpecializedCalls, SpecializedPrograms

if TYPE_CHECKING:
    from fuse_opt.tools.watching.profile import Profile


@dataclass(frozen=True)
class Compiled:
    """What compiling gives."""

    signature: Signature
    module: ModuleOp
    backend: Backend


class CompiledProgram:
    """A program that is ready to run; it may be called from several threads at once."""

    def __init__(self, compiled: Compiled, target: str, again: Callable[[frozenset[int]], Compiled]) -> None:
        self._bound: dict[int, Bound] = {}
        self._take(compiled)
        self.target = target
        """What it runs on: "cpu", "cuda" or "reference"."""
        self._again = again
        self._unbound = self._find_unbound()
        self._frozen: FrozenCalls | FrozenSpecializedCalls | None = None

    def __reduce__(self) -> str:
        """Raises TypeError: what is compiled belongs to this process."""
        raise TypeError("a compiled program cannot be pickled or copied; compile its source again: objects are on disk")

    def _take(self, compiled: Compiled) -> None:
        self.signature = compiled.signature
        """Names, shapes and element types of the arguments, and of the results."""
        self.module = compiled.module
        """The program after all passes."""
        self._backend = compiled.backend
        self._direct: Any = getattr(compiled.backend, "direct", None)

    def __call__(self, *arrays: Any, out: Any = None, stream: Any = None) -> Any:
        """
        The result, or a tuple where there are several; written to `out` where that is given. Arguments are NumPy arrays,
        anything that gives its memory by DLPack, or numbers; donated ones are overwritten. Raises TypeError or ValueError.

        For "cuda" they may be arrays of a device, too; then the results are, and the work is ordered on `stream` (a handle,
        or one of PyCUDA's, torch's or cupy's) or on the first array's own, without waiting for it.
        """
        quick = self._quick if out is None and stream is None else None
        if quick is not None and (found := quick(arrays)) is not NotImplemented:
            return found
        if stream is not None and self.target != "cuda":
            raise ValueError(f"stream: expected None for target '{self.target}', which has no streams")
        if self._in_parts:
            direct = self._direct if self._frozen is None and stream is None else None
            call = partial(self._call, stream=stream)
            return call_with_parts(self.signature, self._unbound, call, arrays, out, direct)
        return self._call(*arrays, out=out, stream=stream)

    def _call(self, *arrays: Any, out: Any = None, stream: Any = None) -> Any:
        if (frozen := self._frozen) is not None:
            return frozen(arrays, out, stream)
        if stream is None:
            if self._direct is not None and (found := self._direct(arrays, out)) is not NotImplemented:
                return found
            return self._backend(*arrays, out=out)
        return cast("Any", self._backend)(*arrays, out=out, stream=stream)

    def freeze(self, arrays: Mapping[int | str, Any]) -> CompiledProgram:
        """
        Binds arguments, by number or name, from now on: calls take the others. What follows from bound arguments alone is
        computed once, and again when one of them changed. Compiles the source again where an argument is not
        `graph.frozen` there. Returns the program itself; not to be called while others call it.

        A NumPy array that has its memory to itself is read-only while it is bound; a view of another one is compared with a
        copy in each call, and so are tensors of PyTorch, which count how often they are written to. After elements changed
        by other means (an earlier view of an array that is bound itself, an address), call `refresh`. Raises ValueError and
        TypeError for what cannot be bound.
        """
        if not isinstance(cast("object", arrays), Mapping):
            got = type(arrays).__name__
            raise TypeError(
                f"expected a mapping of numbers or names of arguments to arrays, got {got}; give {{0: array}}"
            )
        found = {self.signature.position(name): array for name, array in arrays.items()}
        marks = {number for number, value in enumerate(self.signature.arguments) if value.frozen}
        bound = {place: entry for number, array in found.items() for place, entry in self._bind(number, array)}
        if not marks.issuperset(found):
            self._take(self._again(frozenset(marks.union(found))))
        replaced = [self._bound[number] for number in bound if number in self._bound]
        self._bound |= bound
        self._unbound = self._find_unbound()
        self._call_frozen()
        for entry in replaced:
            entry.release()
        return self

    def unfreeze(self) -> CompiledProgram:
        """Lets go of all arrays that arguments are bound to: calls take every argument again. Returns the program itself."""
        bound, self._bound, self._frozen = self._bound, {}, None
        self._unbound = self._find_unbound()
        for entry in bound.values():
            entry.release()
        return self

    @property
    def unbound(self) -> tuple[int, ...]:
        """The numbers of the arguments that calls take."""
        return self._unbound

    def _find_unbound(self) -> tuple[int, ...]:
        """Also notes whether calls take or give values of storage kinds."""
        places = map(self.signature.places, range(len(self.signature.arguments)))
        found = tuple(number for number, place in enumerate(places) if place[0] not in self._bound)
        values = (*(self.signature.arguments[number] for number in found), *self.signature.results)
        self._in_parts = any(value.stored is not None for value in values)
        direct = self._direct if self._in_parts and not self._bound else None
        self._quick = None if direct is None else quick_call(self.signature, direct)
        return found

    def refresh(self) -> None:
        """Computes what follows from bound arguments anew, at the next call."""
        if self._frozen is not None:
            self._frozen.refresh()

    def _bind(self, number: int, array: Any) -> list[tuple[int, Bound]]:
        """The arrays of an argument, by their places among all; of a sparse one those of now."""
        value = self.signature.arguments[number]
        if value.donated:
            raise ValueError(f"{value.label} is donated: calls overwrite it; it cannot be frozen")
        places = self.signature.places(number)
        if value.stored is not None:
            return [(place, Bound(part.copy())) for place, part in zip(places, value.arrays(array), strict=True)]
        try:
            bound = Bound(array)
        except TypeError as error:
            raise TypeError(f"{value.label}: {error}") from None
        if self.target != "cuda":
            value.convert(bound.value())  # or every call would be refused
        return [(places[0], bound)]

    def _call_frozen(self) -> None:
        signature, bound, on_device = self.signature, dict(self._bound), self.target == "cuda"
        values = [value for value in signature.arguments for _ in range(value.count)]

        def converted(number: int, array: Any) -> Any:
            return array if on_device or values[number].stored is not None else values[number].convert(array)

        def calls(backend: Backend) -> FrozenCalls:
            return FrozenCalls(signature.name, backend, bound, len(values), converted)

        backend = self._backend
        if isinstance(backend, SpecializedPrograms):
            self._quick = None
            self._frozen = FrozenSpecializedCalls(signature, backend, bound, calls, self._call_quickly)
        else:
            self._frozen = frozen = calls(backend)
            self._call_quickly(frozen)

    def _call_quickly(self, calls: FrozenCalls) -> None:
        """Most calls are taken by these."""
        self._quick = None if self._in_parts else calls.quick

    @property
    def native(self) -> Any:
        """The runtime's own program, for front ends that call it with addresses instead of arrays."""
        return self._backend

    @property
    def stats(self) -> Any:
        """
        Counts of kernels, launches, bytes and so on, and `compile_s`: ProgramStats, for "cpu" and "cuda" with further fields.
        """
        return self._backend.stats

    def profile(self, *arrays: Any, repeat: int = 10) -> Profile:
        """
        Where the time of a call on these arguments goes, kernel by kernel, for "cpu": `.text()` is a table, `.save("trace.json")`
        a trace for Perfetto, with what each thread ran when. Another program is compiled for it, this one stays as it is; of
        unknown extents it is the one for those of the arguments. Raises ValueError for another target, and as a call does.
        """
        from fuse_opt.lowering.emit.traced import trace_program
        from fuse_opt.tools.watching.timing import profile_program

        if self.target != "cpu":
            raise ValueError(f"profile: expected a program for 'cpu', got target '{self.target}'")

        def call() -> Callable[[], object]:
            taken = [place for place, n in enumerate(self._unbound) if self.signature.arguments[n].donated]
            return partial(self, *(deepcopy(a) if place in taken else a for place, a in enumerate(arrays)))

        call()()  # refuses what does not fit
        backend, flat = self._backend, self._all_inputs(arrays)
        if isinstance(backend, SpecializedPrograms):
            traced = backend.traced(backend.shapes(flat))
        else:
            traced = trace_program(self.module, self.signature.name)
        return profile_program(traced, flat, call, frozenset(self._bound), repeat)

    def _all_inputs(self, arrays: Sequence[Any]) -> list[Any]:
        """Those of all arguments, bound ones too, as the backend takes them."""
        left, found = iter(arrays), list[Any]()
        for number, value in enumerate(self.signature.arguments):
            bound = [self._bound[place].value() for place in self.signature.places(number) if place in self._bound]
            found += value.arrays(next(left)) if not bound else bound if value.stored else [value.convert(bound[0])]
        return found

    @property
    def implementations(self) -> dict[str, int]:
        """By name, what runs opaque ops, and in how many kernels; of modules of unknown extents what is chosen without them."""
        return implementation_counts(self.module)

    @property
    def conversions(self) -> tuple[int, int]:
        """How many values a call of the program gives another layout, and their bytes; those of frozen ones are not in a call."""
        return conversion_counts(called_functions(self.module))

    @property
    def fallbacks(self) -> tuple[int, int]:
        """How many values a call makes dense as an op has no way to run on what is stored, and their bytes."""
        found = [
            op for function in called_functions(self.module) for op in function.walk() if FALLBACK in op.attributes
        ]
        return len(found), sum(byte_size(value) or 0 for op in found for value in op.results)

    @property
    def source(self) -> str:
        """The generated text; empty for the reference."""
        return self._backend.source

    def _repr_html_(self) -> str:
        """For notebooks: the graph with its kernels, the arena and a table, as `show` makes them of the module."""
        return notebook_html(self.module)


class GrowingProgram(CompiledProgram):
    """A program whose caches keep their memory: a call writes what is new, and gives views of the part that is in use."""

    def __init__(
        self, compiled: Compiled, target: str, again: Callable[[frozenset[int]], Compiled], caches: GrowingCaches
    ) -> None:
        super().__init__(compiled, target, again)
        self._caches = caches

    def __call__(self, *arrays: Any, out: Any = None, stream: Any = None) -> Any:
        """As that of every program, without the arguments that say how much of caches is in use. Raises ValueError for `out`."""
        if out is not None or stream is not None:
            raise ValueError("out, stream: expected None, as caches that grow lie in memory of their own")
        return self._caches(super().__call__, self.unbound, arrays)

    @property
    def unbound(self) -> tuple[int, ...]:
        return tuple(number for number in super().unbound if number not in self._caches.added)


def growing_caches(function: FuncOp) -> GrowingCaches:
    """Has a function, whose types say sizes, take caches as buffers with room. Raises NoGrowth."""
    given, results = len(function.body.block.args), len(function.function_type.outputs)
    places: dict[str, tuple[int, int]] = {}
    for number, names in enumerate(argument_symbols(function)):
        for axis, name in enumerate(names):
            if name is not None:
                places.setdefault(name, (number, axis))
    found = grow_caches(function)
    caches = [Cache(one.argument, one.result, one.axis, one.count, partial(evaluate, one.after)) for one in found]
    needed = {one.name for one in symbols(one.after for one in found)}
    if missing := sorted(needed - set(places)):
        raise NoGrowth(f"extent '{missing[0]}': expected an axis of an argument that it is, as caches grow by it")
    added = sorted({cache.count for cache in caches if cache.count >= given})
    return GrowingCaches(caches, {name: places[name] for name in sorted(needed)}, added, results)
