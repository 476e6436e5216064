"""What runs where this side cannot: the graph as it was traced, before anything is taken apart, with PyTorch's own autograd.

Nothing that goes wrong here ends a program that PyTorch can run. A forward or inference graph that is not taken is left as
it came, at eager's speed. A backward graph is compiled when it is first run, after its forward graph; where it is not
taken, PyTorch runs it as autograd gave it, and from the next call on the whole graph is PyTorch's.
"""

from __future__ import annotations

import logging
import operator
import warnings
from collections import Counter
from collections.abc import Callable, Hashable, Sequence
from importlib import import_module
from typing import Any

from fuse_opt.frontends.torch.double_backward import Differentiable
from fuse_opt.frontends.torch.dynamic_shapes import is_known
from fuse_opt.frontends.torch.fx.api import is_tensor, torch
from fuse_opt.frontends.torch.importer.imported import Counts
from fuse_opt.frontends.torch.report import count

_log = logging.getLogger("fuse_opt.torch")
_AT_ONCE = 16
"""Sets of extents of one graph for which programs are compiled as soon as they are met."""
_OFTEN = 4
"""Calls with the same extents after which there is a program for them in any case."""
_MANY = 10
"""Calls of PyTorch's for each node of the program's own, from which on there is nothing to win."""


class LeftError(Exception):
    """A graph that PyTorch is to run as it was traced; the message says why."""


class FailedCallError(Exception):
    """A call of a compiled graph that is as if it had not been made; the message says which, the cause why."""


class Original:
    """A graph as it was traced, and whether it is PyTorch's to run."""

    def __init__(self, graph_module: Any, strict: bool) -> None:
        self.run: Callable[..., Any] = graph_module
        self.strict = strict
        self.left = False
        self.has_backward = False
        self.is_specialised = False
        """Whether a graph of it has a program for each set of extents."""
        self.draws = False
        """Whether its forward graph draws random numbers."""
        self.saved_bytes = 0
        """What its forward graph keeps for its backward graph."""
        self._graph = graph_module.graph

    def leave(self, what: str, error: Exception) -> None:
        """Leaves the graph to PyTorch, with one warning that says why. Raises the error where it is to be strict."""
        if self.strict:
            raise error
        if not self.left:
            self.left = True
            count(0, sum(_is_work(node) for node in self._graph.nodes))
            text = str(error).partition("\n")[0]
            reason = f"{type(error).__name__}: {text}" if text else type(error).__name__
            message = f"fuse_opt leaves a graph to PyTorch, as {what} fails: {reason}"
            _log.debug("%s", message, exc_info=error)
            warnings.warn(message, RuntimeWarning, stacklevel=2)

    def run_after(self, error: LeftError | FailedCallError, args: Sequence[Any]) -> Any:
        """
        Runs a call that ours was not made of, or that ended with an error, and leaves the graph to PyTorch. Where PyTorch
        refuses the call, too, it is the caller's fault: nothing is left.
        """
        found = self.run(*args)
        if isinstance(cause := error.__cause__, Exception) and isinstance(error, FailedCallError):
            self.leave(str(error), cause)
        self.left = True
        return found


def _is_work(node: Any) -> bool:
    return node.op in ("call_function", "call_method", "call_module") and node.target is not operator.getitem


def nothing_to_win(counts: Counts) -> str | None:
    """Why a graph of these counts is as fast as PyTorch runs it; None where it is not."""
    calls = sum(counts.external.values())
    if counts.native == 0:
        return "nothing but calls of PyTorch's kernels" if calls else "nothing but views"
    if calls >= _MANY * counts.native:
        return f"{calls} calls of PyTorch's kernels and {counts.native} nodes beside them"
    return None


def unless_bases_differ(graph_module: Any, compiled: Callable[[list[Any]], Any]) -> Callable[[list[Any]], Any]:
    """
    The compiled graph, but PyTorch's kernels where a tensor that several arguments are parts of has another shape than when the
    graph was traced: Dynamo guards the parts alone.
    """
    bases: dict[int, tuple[int, ...]] = {}
    for position, node in enumerate(graph_module.graph.find_nodes(op="placeholder")):
        is_base = any(user.target is torch.ops.aten.as_strided.default and user.args[0] is node for user in node.users)
        shape = node.meta["val"].shape if is_base and "val" in node.meta else None
        if shape is not None and all(type(extent) is int for extent in shape):
            bases[position] = tuple(shape)
    if not bases:
        return compiled

    def call(args: list[Any]) -> Any:
        if any(tuple(args[position].shape) != shape for position, shape in bases.items()):
            given = list(args)
            args.clear()
            return graph_module(*given)
        return compiled(args)

    return call


def guarded(original: Original, compiled: Callable[..., Any]) -> Callable[..., Any]:
    """A compiled graph, which may turn out to be PyTorch's: that its backward graph is, or when it is called."""
    if original.has_backward:
        compiled = Differentiable(original.run, compiled, original.draws)

    def call(*args: Any) -> Any:
        if original.left:
            return original.run(*args)
        try:
            return compiled(*args)
        except (LeftError, FailedCallError) as error:  # as if nothing ran
            return original.run_after(error, args)

    return call


class Dispatched:
    """
    A graph with symbols for extents: programs run it for the first sets of extents, and for those that have been met often;
    for the others PyTorch does.
    """

    def __init__(
        self, original: Original, compiled: Callable[..., Any], example_inputs: Sequence[Any], most: int
    ) -> None:
        self._original = original
        self._compiled = guarded(original, compiled)
        self._positions = _deciding(example_inputs)
        self._most = most
        """Sets of extents with programs."""
        self._taken: set[Hashable] = set()
        self._met = Counter[Hashable]()
        self._warned = False

    def __call__(self, *args: Any) -> Any:
        if not (self._original.is_specialised or self._original.left):
            return self._compiled(*args)
        key = tuple(_extents(args[position]) for position in self._positions)
        if self._original.left or not (key in self._taken or self._is_worth_it(key)):
            return self._original.run(*args)
        return self._compiled(*args)

    def _is_worth_it(self, key: Hashable) -> bool:
        """Whether to compile now: also where each call has other extents, few calls wait for a compiler."""
        known = len(self._taken)
        if known < self._most and known >= _AT_ONCE:
            self._met[key] += 1
        if known < self._most and (known < _AT_ONCE or self._met[key] >= _OFTEN):
            self._taken.add(key)
            return True
        if not self._warned:
            self._warned = True
            _log.warning(
                "a graph was compiled for %d sets of extents; PyTorch runs it for others until they have been met %d times, "
                "and beyond %d sets (option 'programs'): pad extents to fewer",
                known,
                _OFTEN,
                self._most,
            )
        return False


def _deciding(example_inputs: Sequence[Any]) -> list[int]:
    """The positions of the arguments that say what all extents are: numbers, where these name all symbols."""
    symbols: Any = import_module("torch.fx.experimental.symbolic_shapes")
    unknown = [k for k, value in enumerate(example_inputs) if not is_known(value)]
    numbers = [k for k in unknown if not is_tensor(example_inputs[k])]
    named = {symbol for k in numbers for symbol in symbols.free_symbols(example_inputs[k])}
    tensors = [k for k in unknown if is_tensor(example_inputs[k])]
    return numbers + [k for k in tensors if not symbols.free_symbols(example_inputs[k]) <= named]


def _extents(value: Any) -> Hashable:
    return (value.shape, value.stride()) if isinstance(value, torch.Tensor) else value
