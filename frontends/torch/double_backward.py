"""Gradients of gradients: a backward that is to be differentiated itself is that of the graph as it was traced.

AOTAutograd has no backward graphs of backward graphs: `torch.autograd.grad(..., create_graph=True)` gives tensors with nothing
but an error behind them, or nothing at all where one asks for gradients with respect to the graph's arguments. Here such a
backward runs the graph anew, in PyTorch, from the arguments of its call, which are all there as long as somebody else has them,
and takes gradients of that: its random numbers are those that the call drew.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from typing import Any

from fuse_opt.frontends.torch.fx.api import is_tensor, torch

_KEY = "fuse_opt"
"""Under which a node of autograd has what its call was made with."""


class Differentiable:
    """A compiled graph with a backward graph, such that what gives its gradients may be differentiated."""

    def __init__(self, run: Callable[..., Any], compiled: Callable[..., Any], draws: bool) -> None:
        """`run` is the graph as it was traced; whether it `draws` random numbers."""
        self._run, self._compiled, self._draws = run, compiled, draws
        self._kind: Any = None
        self._able = False
        self._autocast = "cpu", False, None

    def __call__(self, *args: Any) -> Any:
        state = torch.get_rng_state() if self._draws else None
        found = self._compiled(*args)
        value = next((value for value in found if _has_gradient(value)), None)
        if value is not None and (node := value.grad_fn) is not None:
            if (kind := getattr(node, "_forward_cls", None)) is not self._kind:
                self._meet(kind, value.device.type)
            if self._able:
                node.metadata[_KEY] = self, list(map(_held, args)), state
        return found

    def _meet(self, kind: Any, device: str) -> None:
        """Looks at the class whose nodes run the backward graph, and changes it: once, as it is of this graph alone."""
        self._kind = kind
        self._autocast = device, torch.is_autocast_enabled(device), torch.get_autocast_dtype(device)  # of all calls
        self._able = is_plain(getattr(kind, "metadata", None)) and not (self._draws and device != "cpu")
        if self._able:
            kind.backward = staticmethod(_backward_of(kind.backward))

    def gradients(self, node: Any, given: Sequence[Any], state: Any, tangents: Sequence[Any]) -> Any:
        """By argument; None where an argument is there no more."""
        args: list[Any] = [value() if isinstance(value, weakref.ref) else value for value in given]
        asked = [number for number, wanted in enumerate(node.needs_input_grad) if wanted]
        if len(node.needs_input_grad) != len(args) or any(args[number] is None for number in asked):
            return None
        if any(value is None for value, one in zip(args, given, strict=True) if one is not None):
            return None
        _ = node.saved_tensors  # an error where one was written to, or they are gone
        device, enabled, dtype = self._autocast
        with ExitStack() as stack:
            stack.enter_context(torch.random.fork_rng(devices=[], enabled=state is not None))
            if state is not None:
                torch.set_rng_state(state)
            stack.enter_context(torch.autocast(device, dtype=dtype, enabled=enabled))
            results = self._run(*args)
        pairs = [(y, t) for y, t in zip(results, tangents, strict=False) if t is not None and _has_gradient(y)]
        outputs, grads = [y for y, _ in pairs], [t for _, t in pairs]
        inputs = [args[number] for number in asked]
        found = iter(torch.autograd.grad(outputs, inputs, grads, create_graph=True, allow_unused=True))
        return tuple(next(found) if wanted else None for wanted in node.needs_input_grad)


def _held(value: Any) -> Any:
    """A tensor without keeping it alive."""
    return weakref.ref(value) if is_tensor(value) else value


def _has_gradient(value: Any) -> bool:
    return is_tensor(value) and value.requires_grad


def is_plain(metadata: Any) -> bool:
    """Whether what a node gives are the graph's results alone, none of them a view or an argument that was written to."""
    try:
        counts = (
            metadata.num_mutated_inp_runtime_indices,
            sum(info.mutates_data or info.mutates_metadata for info in metadata.input_info),
            metadata.num_outputs_aliased,
            metadata.num_intermediate_bases,
            metadata.num_graphsafe_rng_states,
        )
    except AttributeError:
        return False
    return not any(counts)


def _backward_of(backward: Callable[..., Any]) -> Callable[..., Any]:
    """The same, but where its result is to be differentiated."""

    def call(node: Any, *tangents: Any) -> Any:
        if torch.is_grad_enabled() and (known := node.metadata.get(_KEY)) is not None:
            differentiable, given, state = known
            boxed = len(tangents) == 1 and isinstance(tangents[0], list)
            found = differentiable.gradients(node, given, state, tangents[0] if boxed else tangents)
            if found is not None:
                return found
        return backward(node, *tangents)

    return call
