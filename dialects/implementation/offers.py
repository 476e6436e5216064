"""Implementations of opaque ops as data: what each offers to passes, by op and name. Functions to run are lowering's.

    register_offer(Offer("mine.sort", "mylib.sort", inplace=((0, 0),)))

An implementation that says nothing offers nothing: its results are in memory of their own, it takes in no other op, it
runs every op of its name, and it costs as much as another one that says nothing. Whatever is asked here is asked of data:
no library is loaded to answer.
Whoever has functions to run registers their offers with them; `load_with` names what is loaded before the first question.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Generator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from math import inf
from typing import Literal, TypeVar, cast

from xdsl.ir import Operation, SSAValue

from fuse_opt.dialects.analysis.contractions.product_copies import Computed
from fuse_opt.dialects.analysis.numerics import LEVELS, Numerics
from fuse_opt.dialects.analysis.storage import MOST_BYTES
from fuse_opt.dialects.implementation.chains import ChainOffer
from fuse_opt.dialects.implementation.site import Cost, LayoutRow, Saved, Site
from fuse_opt.dialects.interfaces.shapes import shape
from fuse_opt.dialects.interfaces.structured_op import FusionKind
from fuse_opt.dialects.types.encodings import EncodingPart

_T = TypeVar("_T")
Pairs = tuple[tuple[int, int], ...]
"""Of a result and an operand, by number."""
Platform = Literal["cpu", "cuda"]
"""What programs run on."""
Threads = Literal["caller", "exclusive"]
"""Which threads a call has: its caller's alone, or some of its own."""


@dataclass(frozen=True, slots=True)
class PointwiseOffer:
    """Which pointwise ops an implementation takes in, before or behind its op, where they have as many elements."""

    kind: FusionKind = FusionKind.BROADCAST
    """The least fusible kind of op among them."""
    max_ops: int = 64
    """How many of them at most."""
    operands: Literal["any", "bias", "none"] = "any"
    """What else they may read: anything, at most vectors along the last axis, or only the op's result (or operand)."""


@dataclass(frozen=True, slots=True)
class Offer:
    """What an implementation `name` of the op `op` can do besides running it."""

    op: str
    name: str
    inplace: Pairs | Callable[[Site], Pairs] = ()
    """
    Pairs (result, operand) of the op, or a function that says which: the result may be written over the operand's storage. All
    of them hold at once.
    """
    epilogue: PointwiseOffer | ChainOffer | None = None
    """What may follow the op in its kernel, by code of ours or (a chain) in its own; only where the op has one result."""
    prologue: PointwiseOffer | None = None
    """What may come before the op in its kernel."""
    priority: int = 0
    """The default of an op is the offer of the highest priority, of equal ones that registered first."""
    workspace: int | Callable[[Site], int] = 0
    """
    Bytes that a call takes besides its operands and results, or a function that says how many; a slot of the arena while it
    runs.
    """
    kind: str = ""
    """It is code of the program itself, for kernels of this schedule kind, and no function to call; empty: it is called."""
    composite: bool = False
    """It runs kernels of several opaque ops only, of which one has that name."""
    trace: Callable[[Sequence[SSAValue], Collection[Operation]], object] | None = None
    """For generated code: raises Unschedulable where ops that give these results cannot be one kernel of it."""
    computes: Callable[[object], Sequence[Computed]] | None = None
    """Of what `trace` found: the operands that are computed as they are copied."""
    accepts: Callable[[Site], str | None] | None = None
    """Why it does not run an op of that name, as a code for remarks; None (or no function): it does."""
    cost: Callable[[Site], Cost] | None = None
    """What running it costs; who does not know is chosen by its place among the offers."""
    layouts: Callable[[Site], Sequence[LayoutRow]] | None = None
    """
    How operands and results may lie, row by row: of generated code, and of compiled calls, which are told the orders of what they
    get. A function that Python calls gets row-major arrays.
    """
    optional: bool = False
    """It is there only for modules whose list of backends names its own."""
    native: bool = False
    """It is called by compiled code: Python has no part in a run of it."""
    like: str = ""
    """The name of what Python calls for the same, where it is called by compiled code."""
    probe: Callable[[Site], str | None] | None = None
    """
    Why the library behind it does not run an op on this machine, as a code for remarks: asked of what has been chosen, and
    nothing else, since the library may be loaded for it; None also where there is no library.
    """
    pack: Callable[[Site], Mapping[int, EncodingPart]] | None = None
    """
    In which order it would have operands that never change, by number, for which they are turned once: asked of what has been
    chosen, as `probe` is. It takes the op with these, too; nothing where there is no library to ask.
    """
    split: bool = False
    """Whether calls are cut into parts that run at a time, by their extents alone: bits do not depend on threads."""
    numerics: Numerics = "strict"
    """
    `strict`: results within the op's documented bound, the same in every run. `finite`: so where operands and sums are finite;
    of an infinity, or where sums overflow in between, a result may be NaN that the op's meaning says is not. `fast`: bits differ
    between runs, or results by more than that bound. The latter two are chosen on demand only.
    """
    platform: Platform = "cpu"
    """Where it runs; it is considered for modules that are made for that one, see `platform_of`."""
    chained: bool = False
    """It runs its op with a chain behind it, and leaves the op alone to others."""
    ignores: tuple[int, ...] | Callable[[Site], Sequence[int]] = ()
    """Operands, by number, of which it knows the type and reads nothing: their memory may be another value's in its call."""
    features: tuple[str, ...] | Callable[[Site], Sequence[str]] = ()
    """What a machine must have for it, by the names of device files: it refuses where the device that is made for lacks one."""
    captured: bool = True
    """
    On a device: whether a call may be part of a CUDA graph. One that allocates, waits for the device or has a say of its own in a
    run is not, and ends the graph before it.
    """
    sized: bool = False
    """
    Whether its answers hold where extents are sizes, for all values of these: what runs it is told the extents of each call.
    Others are asked about numbers alone.
    """
    differentiable: bool = True
    """Whether it runs in the forward part of training; gradients are always those of the op's meaning."""
    threads: Threads = "caller"
    """
    Of a function that Python calls: `exclusive` has threads of its own, and the pool's have nothing to do meanwhile. Generated
    code, and calls that are cut (`split`), share the pool.
    """

    saves: Callable[[Site, Saved], str | None] | None = None
    """
    Why it does not leave what another op makes of the same operands beside its results, as a code for remarks; None: it does,
    in the same call, all outputs one behind the other. No function: it leaves nothing.
    """

    @property
    def backend(self) -> str:
        """What is before the first dot of its name."""
        return self.name.partition(".")[0]

    def is_within(self, numerics: Numerics) -> bool:
        """Whether who takes results of that level takes its own."""
        return LEVELS.index(self.numerics) <= LEVELS.index(numerics)

    def refusal(self, site: Site) -> str | None:
        """The code of why it does not run the site's op. Raises BackendFault."""
        if site.is_sized and not self.sized:
            return "sizes"
        if not site.is_row_major and not self._takes_orders:
            return "layout"
        if self.features and (missing := self._missing_feature(site)) is not None:
            return f"needs-{missing}"
        return self.refusal_of_op(site)

    def refusal_of_op(self, site: Site) -> str | None:
        """
        The same, of the op and what is to be left beside its results: its orders, sizes and machine are asked about elsewhere.
        Raises BackendFault.
        """
        unsaved = (reason for each in site.saved if (reason := self.save_refusal(site, each)) is not None)
        return next(unsaved, None) or self._reason("accepts", self.accepts, site)

    @property
    def _takes_orders(self) -> bool:
        return self.layouts is not None and (bool(self.kind) or self.native)

    def _missing_feature(self, site: Site) -> str | None:
        """The first feature that the site's machine lacks; None where no machine is asked about."""
        if site.device is None:
            return None
        found = self._answers("features", self.features, site, str, "names of features")
        return next((name for name in found if name not in site.device.features), None)

    def ignored(self, site: Callable[[], Site]) -> tuple[int, ...]:
        """The operands that it does not read, of a site that is made where it is asked about. Raises BackendFault."""
        if not self.ignores:
            return ()
        found = self._answers("ignores", self.ignores, here := site(), int, "numbers of operands")
        if all(0 <= number < len(here.operands) for number in found):
            return tuple(sorted(set(found)))
        raise BackendFault(f"'{self.name}', answer of ignores: expected numbers of operands, got {found!r}")

    def _answers(
        self,
        what: str,
        wanted: Sequence[_T] | Callable[[Site], Sequence[_T]],
        site: Site,
        kind: type[_T],
        expected: str,
    ) -> tuple[_T, ...]:
        """What it says of a site, which are several of a kind. Raises BackendFault."""
        found = self._ask(what, lambda: tuple(wanted(site))) if callable(wanted) else tuple(wanted)
        if isinstance(found, tuple) and all(type(each) is kind for each in cast("tuple[object, ...]", found)):
            return cast("tuple[_T, ...]", found)
        raise BackendFault(f"'{self.name}', answer of {what}: expected {expected}, got {found!r}")

    def machine_refusal(self, site: Site) -> str | None:
        """The code of why its library does not run the site's op here. Raises BackendFault."""
        return self._reason("probe", self.probe, site)

    def save_refusal(self, site: Site, saved: Saved) -> str | None:
        """The code of why it does not leave what another op makes of the site's operands. Raises BackendFault."""
        if (saves := self.saves) is None:
            return "saves-nothing"
        return self._reason("saves", lambda here: saves(here, saved), site)

    def packs(self, site: Site) -> dict[int, EncodingPart]:
        """By number, how it would have operands that never change. Raises BackendFault."""
        if self.pack is None:
            return {}
        found = self._ask("pack", lambda: self.pack and dict(self.pack(site)))
        if isinstance(found, dict):
            wanted = cast("dict[object, object]", found)
            if all(number in range(len(site.operands)) for number in wanted) and all(
                isinstance(each, EncodingPart) and each.problem(site.operands[cast("int", number)].shape) is None
                for number, each in wanted.items()
            ):
                return cast("dict[int, EncodingPart]", wanted)
        raise BackendFault(f"'{self.name}', answer of pack: expected encodings by numbers of operands, got {found!r}")

    def _reason(self, what: str, question: Callable[[Site], str | None] | None, site: Site) -> str | None:
        if question is None:
            return None
        found = self._ask(what, lambda: question(site))
        if found is None or (isinstance(found, str) and found):
            return found
        raise BackendFault(f"'{self.name}', answer of {what}: expected None or a reason, got {found!r}")

    def layout_rows(self, site: Site) -> Sequence[LayoutRow]:
        """The rows of layouts in which it runs the site's op, row-major order first. Raises BackendFault."""
        plain = LayoutRow((None,) * len(site.operands), (None,) * len(site.results))
        if not self._takes_orders:
            return (plain,)
        found = self._ask("layouts", lambda: self.layouts and tuple(self.layouts(site)))
        if isinstance(found, tuple):
            rows = cast("tuple[object, ...]", found)
            if all(isinstance(row, LayoutRow) and _fits(row, site) for row in rows):
                return tuple(dict.fromkeys((plain, *cast("tuple[LayoutRow, ...]", rows))))
        raise BackendFault(f"'{self.name}', answer of layouts: expected rows of layouts that fit the op, got {found!r}")

    def seconds(self, site: Site) -> float | None:
        """What running the site's op takes on its machine; None where that is not known. Raises BackendFault."""
        return None if (found := self._costs(site)) is None else found[1]

    def rate(self, site: Site) -> float | None:
        """Operations a second by which that was worked out; None where it says no operations. Raises BackendFault."""
        found = self._costs(site)
        return found[0].rate if found is not None and found[0].flops else None

    def _costs(self, site: Site) -> tuple[Cost, float] | None:
        if self.cost is None or site.device is None:
            return None
        found = self._ask("cost", lambda: self.cost and self.cost(site))
        if isinstance(found, Cost):
            seconds = self._ask("cost", lambda: found.seconds(site.device))  # pyright: ignore[reportArgumentType]
            if isinstance(seconds, int | float) and 0 <= seconds < inf:
                return found, float(seconds)
        raise BackendFault(f"'{self.name}', answer of cost: expected a Cost of 0 or more seconds, got {found!r}")

    def pairs(self, site: Callable[[], Site]) -> Pairs:
        """The pairs in place of a site, which is made where it is asked about. Raises BackendFault."""
        wanted = self.inplace
        if not callable(wanted):
            return wanted
        here = site()
        found = self._ask("inplace", lambda: tuple((result, operand) for result, operand in wanted(here)))
        if isinstance(found, tuple) and _are_pairs(cast("Pairs", found), len(here.results), len(here.operands)):
            return cast("Pairs", found)
        raise BackendFault(
            f"'{self.name}', answer of inplace: expected pairs of a result and an operand, got {found!r}"
        )

    def workspace_bytes(self, site: Site) -> int:
        """The bytes that a call for the site's op takes besides its operands and results. Raises BackendFault."""
        wanted = self.workspace
        found = self._ask("workspace", lambda: wanted(site)) if callable(wanted) else wanted
        if isinstance(found, int) and not isinstance(found, bool) and 0 <= found < MOST_BYTES:
            return found
        raise BackendFault(
            f"'{self.name}', answer of workspace: expected a whole number of bytes from 0 on, got {found!r}"
        )

    @property
    def takes_workspace(self) -> bool:
        """Whether there are sites for which a call takes memory of the plan's."""
        return callable(self.workspace) or self.workspace != 0

    def _ask(self, what: str, ask: Callable[[], object]) -> object:
        try:
            return ask()
        except Exception as error:
            raise BackendFault(f"'{self.name}', {what} raised {type(error).__name__}: {error}") from error


def _are_pairs(pairs: tuple[tuple[object, object], ...], results: int, operands: int) -> bool:
    return all(result in range(results) and operand in range(operands) for result, operand in pairs)


def _fits(row: LayoutRow, site: Site) -> bool:
    values = (*zip(row.operands, site.op.operands, strict=False), *zip(row.results, site.op.results, strict=False))
    if (len(row.operands), len(row.results)) != (len(site.operands), len(site.results)):
        return False
    return all(encoding is None or encoding.problem(shape(value)) is None for encoding, value in values)


class BackendFault(ValueError):
    """What an implementation says of itself is no answer; names the implementation and what it was asked."""


_OFFERS: dict[str, list[Offer]] = {}
_WAITING: list[Callable[[], object]] = []
_LOADED: set[Callable[[], object]] = set()
_FORGETTING: list[Callable[[str], object]] = []
_changes = 0
_registering = 0


def load_with(loader: Callable[[], object]) -> None:
    """Has a function called, once, before the next question; it imports or builds what registers offers."""
    if loader not in _LOADED:
        _LOADED.add(loader)
        _WAITING.append(loader)


@contextmanager
def registering() -> Generator[None]:
    """Nothing is loaded within: for a package whose parts register offers that others build on, which are loaded so."""
    global _registering
    _registering += 1
    try:
        yield
    finally:
        _registering -= 1


def _load() -> None:
    while _WAITING and not _registering:
        _WAITING.pop(0)()


def register_offer(offer: Offer) -> None:
    """Makes an offer known. Raises ValueError where the op has another one of that name."""
    _load()  # those before come first among equals
    known = _OFFERS.setdefault(offer.op, [])
    if (same := next((o for o in known if o.name == offer.name), None)) is not None:
        if same != offer:
            raise ValueError(
                f"'{offer.op}' has an implementation '{offer.name}' already, with another offer; rename it"
            )
        return
    known.append(offer)
    known.sort(key=lambda o: -o.priority)  # stable
    _note_change()


def forget_with(forget: Callable[[str], object]) -> None:
    """Has a function called with the name of each backend that is taken back: for what else backends register."""
    _FORGETTING.append(forget)


def forget_backend(name: str) -> None:
    """Takes back all that a backend registered, such as one whose file is read again."""
    for forget in _FORGETTING:
        forget(name)
    for op, offers in _OFFERS.items():
        _OFFERS[op] = [offer for offer in offers if offer.backend != name]
    _note_change()


def _note_change() -> None:
    global _changes
    _changes += 1


def registry_state() -> int:
    """Another number whenever an offer came or went: what was worked out before may not hold then."""
    _load()
    return _changes


def offers_of(op: str) -> tuple[Offer, ...]:
    """The offers for an op, the default first."""
    _load()
    return tuple(_OFFERS.get(op, ()))


def default_offer(op: str) -> Offer | None:
    """The offer of the implementation that Python calls for an op when none is named; None when there is none."""
    return next((offer for offer in offers_of(op) if not offer.kind and not offer.optional and not offer.native), None)


def find_offer(op: str, name: str | None) -> Offer | None:
    """The offer called `name` for an op, or its default one."""
    if name is None:
        return default_offer(op)
    return next((offer for offer in offers_of(op) if offer.name == name), None)


def all_offers() -> tuple[Offer, ...]:
    """Every offer for every op."""
    _load()
    return tuple(offer for offers in _OFFERS.values() for offer in offers)


def known_implementations() -> tuple[str, ...]:
    """The names of all implementations, sorted."""
    return tuple(sorted({offer.name for offer in all_offers()}))
