"""Functions of sparse tensors of PyTorch, compiled: `compile_sparse`."""

from __future__ import annotations

import functools
import warnings
from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass
from typing import Any, cast

import numpy as np
from numpy.typing import NDArray
from xdsl.dialects.builtin import TensorType
from xdsl.dialects.func import FuncOp
from xdsl.ir import Attribute

from fuse_opt.dialects.types.dtypes import dtype_of
from fuse_opt.frontends.torch.fx.api import DTYPES, as_array, from_array, is_tensor, torch
from fuse_opt.frontends.torch.fx.handler import NotCoveredError
from fuse_opt.frontends.torch.sparse.importer import Part, argument_type, import_part
from fuse_opt.frontends.torch.sparse.traced import Traced, trace, trace_with_gradients
from fuse_opt.tools.compiler import api

Array = NDArray[Any]
Types = Sequence[TensorType[Attribute]]


def compile_sparse(function: Callable[..., Any], *, strict: bool = False) -> Callable[..., Any]:
    """
    A function of tensors, some of which are sparse, as programs: one for each set of shapes, types and layouts that it is
    called with. `torch.compile` hands no graph with sparse arguments to any backend, so this traces by `make_fx`.

        @compile_sparse
        def layer(a, x, w):                 # a: torch.sparse_csr
            return torch.relu(a @ (x @ w))

    Arguments are tensors: dense, of `torch.sparse_csr`, or of `torch.sparse_coo` with one sparse dimension. An `nn.Module`
    may stand for the function: its parameters and buffers are arguments, too. What is written to an argument in place is
    written there. Results have gradients for dense arguments that require some.

    What cannot be compiled PyTorch runs, with one warning that says why; with `strict` that is an error.
    """
    compiled = _Compiled(function, strict)

    @functools.wraps(function)
    def call(*arguments: Any) -> Any:
        return compiled(arguments)

    call.programs = compiled.programs  # pyright: ignore[reportAttributeAccessIssue]
    return call


class _Compiled:
    """A function, and a program for each signature that was met; None for one that PyTorch runs."""

    def __init__(self, function: Callable[..., Any], strict: bool) -> None:
        self._run = function
        self._strict = strict
        self._known: dict[Hashable, _Program | None] = {}
        self._names: Sequence[str] = ()
        self._module: Any = None
        if isinstance(function, torch.nn.Module):
            self._module = function
            self._names = [name for name, _ in self._state()]

    def programs(self) -> list[api.CompiledProgram]:
        """The programs so far, of gradients, too."""
        return [program for known in self._known.values() if known is not None for program in known.all()]

    def _modes(self) -> tuple[Hashable, ...]:
        """What else a trace depends on: whether modules are trained, and the type that autocast takes for products."""
        training = () if self._module is None else tuple(part.training for part in self._module.modules())
        return training, torch.is_autocast_enabled("cpu") and torch.get_autocast_dtype("cpu")

    def _state(self) -> list[tuple[str, Any]]:
        return [*self._module.named_parameters(), *self._module.named_buffers()]

    def _function(self, *given: Any) -> Any:
        if self._module is None:
            return self._run(*given)
        count = len(self._names)
        state = dict(zip(self._names, given[:count], strict=True))
        return torch.func.functional_call(self._module, state, given[count:])

    def __call__(self, arguments: tuple[Any, ...]) -> Any:
        if self._module is not None:
            state = dict(self._state())
            arguments = (*(state[name] for name in self._names), *arguments)
        if not all(map(is_tensor, arguments)):
            raise TypeError(f"expected tensors, got ({', '.join(type(value).__name__ for value in arguments)})")
        grads = torch.is_grad_enabled()
        key = (*self._modes(), *(_key(value, grads) for value in arguments))
        entries = tuple(_entries(value) for value in arguments)
        program, is_known = self._known.get(key), key in self._known
        if not is_known or (program is not None and not program.has_room(entries)):
            room = [_rounded(n) for n in entries] if is_known else entries
            program = self._known[key] = self._compile(arguments, room, grads)
        if program is None or (program.writes and _share_memory(arguments)):
            return self._function(*arguments)
        try:
            return program(arguments)
        except api.PatternError as error:  # before anything is written
            self._leave("a call", "it has no pattern", error)
            return self._function(*arguments)

    def _compile(self, arguments: Sequence[Any], entries: Sequence[int], grads: bool) -> _Program | None:
        try:
            return _Program(self._function, arguments, entries, grads)
        except Exception as error:
            self._leave("a function", "compiling it fails", error)
            return None

    def _leave(self, what: str, why: str, error: Exception) -> None:
        """Says why PyTorch runs it. Raises the error where it is to be strict."""
        if self._strict:
            raise error
        text = str(error).partition("\n")[0]
        message = f"fuse_opt leaves {what} to PyTorch, as {why}: {type(error).__name__}: {text}"
        warnings.warn(message, RuntimeWarning, stacklevel=4)


def _key(value: Any, grads: bool) -> Hashable:
    sparse = value.sparse_dim() if value.layout == torch.sparse_coo else 0
    return value.layout, tuple(value.shape), value.dtype, str(value.device), sparse, grads and value.requires_grad


def _share_memory(values: Sequence[Any]) -> bool:
    """Whether one of these tensors may lie in the memory of another."""
    places = [value.untyped_storage().data_ptr() for value in values if value.layout == torch.strided]
    return len(set(places)) < len(places)


def _entries(value: Any) -> int:
    return 0 if value.layout == torch.strided else value._nnz()


def _rounded(entries: int) -> int:
    """Room for numbers of entries that vary: with at most an eighth of it free."""
    step = 1 << max(entries.bit_length() - 4, 0)
    return -(-entries // step) * step


class _Program:
    """A function for one signature: its values, and gradients where an argument asks for some."""

    def __init__(
        self, function: Callable[..., Any], arguments: Sequence[Any], entries: Sequence[int], grads: bool
    ) -> None:
        types = [argument_type(value, count) for value, count in zip(arguments, entries, strict=True)]
        self._room = entries
        self._wanted = [number for number, value in enumerate(arguments) if grads and value.requires_grad]
        if any(arguments[number].layout != torch.strided for number in self._wanted):
            raise NotCoveredError("takes a sparse tensor that requires a gradient")
        self._backward: _Call | None = None
        if self._wanted:
            self._trace = trace_with_gradients(function, arguments, self._wanted)
            self._with_gradients(types)
        else:
            self._trace = trace(function, arguments)
            given = list(zip(self._trace.arguments, types, strict=True))
            self._forward = _Call(import_part(self._trace.nodes, given, self._trace.results))

    def _with_gradients(self, types: Types) -> None:
        traced: Traced = self._trace
        given = list(zip(traced.arguments, types, strict=True))
        self._given = {node: number for number, node in enumerate(traced.arguments) if node in traced.saved}
        computed = [node for node in traced.saved if node not in self._given]
        self._forward = _Call(part := import_part(traced.nodes, given, [*traced.results, *computed]))
        saved: list[tuple[Any, Any]] = [(node, types[number]) for node, number in self._given.items()]
        saved += zip(computed, part.types[len(traced.results) :], strict=True)
        tangents = [(node, argument_type(node.meta["val"], 0)) for node in traced.tangents]
        self._backward = _Call(import_part(traced.nodes, [*saved, *tangents], traced.gradients))

    def all(self) -> list[api.CompiledProgram]:
        return [call.program for call in (self._forward, self._backward) if call is not None]

    @property
    def writes(self) -> bool:
        """Whether it writes to arguments."""
        return bool(self._forward.part.written)

    def has_room(self, entries: Sequence[int]) -> bool:
        """Whether so many entries fit, and not in more than twice the room that they need."""
        return all(n <= room <= max(2 * n, 16) for n, room in zip(entries, self._room, strict=True))

    def __call__(self, arguments: tuple[Any, ...]) -> Any:
        found = self._forward(arguments) if self._backward is None else _Differentiable.apply(self, *arguments)
        return found[0] if self._trace.single else found

    def forward(self, arguments: Sequence[Any]) -> tuple[Sequence[Any], Sequence[Any]]:
        """The results, and what the gradients need."""
        count = len(self._trace.results)
        found = self._forward(arguments)
        return found[:count], [*(arguments[number] for number in self._given.values()), *found[count:]]

    def backward(self, saved: Sequence[Any], tangents: Sequence[Any]) -> list[Any]:
        """The gradients by argument, None for those that nobody asked for."""
        assert self._backward is not None
        found = iter(self._backward([*saved, *tangents]))
        asked = zip(self._wanted, self._trace.gradients, strict=True)
        by_number = {number: None if node is None else next(found) for number, node in asked}
        return [by_number.get(number) for number in range(len(self._trace.arguments))]


class _Differentiable(torch.autograd.Function):
    """A program and the one of its gradients, for autograd."""

    @staticmethod
    def forward(ctx: Any, program: _Program, *arguments: Any) -> Any:
        results, saved = program.forward(arguments)
        ctx.program = program
        ctx.save_for_backward(*saved)
        ctx.set_materialize_grads(True)
        return tuple(results)

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx: Any, *tangents: Any) -> Any:
        return None, *ctx.program.backward(ctx.saved_tensors, tangents)


@dataclass
class _Call:
    """A part of a graph as a program on tensors."""

    part: Part

    def __post_init__(self) -> None:
        (function,) = self.part.module.ops
        outputs = cast("FuncOp", function).function_type.outputs
        self._types = [(tensor.get_shape(), _dtype(tensor)) for tensor in cast("Types", outputs)]
        self.program = api.compile(self.part.module)
        self._dtypes = [value.dtype for value in self.program.signature.arguments]

    def __call__(self, arguments: Sequence[Any]) -> list[Any]:
        pairs = zip(arguments, self._dtypes, strict=True)
        given = [as_array(value, dtype) if value.layout == torch.strided else value for value, dtype in pairs]
        found = self.program(*given)
        values = list(found) if len(self._types) != 1 else [found]
        for number, place in self.part.written.items():
            if not np.may_share_memory(given[number], values[place]):
                np.copyto(given[number], values[place])
            torch.autograd.graph.increment_version(arguments[number])
        made = map(_tensor, values, self._types)
        return [next(made) if number is None else arguments[number].detach() for number in self.part.kept]


def _dtype(type_: TensorType[Attribute]) -> Any:
    found = dtype_of(type_.element_type)
    assert found is not None
    return DTYPES[found.name]


def _tensor(value: Any, type_: tuple[Sequence[int], Any]) -> Any:
    """A result as a tensor; what is stored is one already where an argument is, else its arrays."""
    extents, dtype = type_
    if is_tensor(value):
        return value
    if not isinstance(value, tuple):
        return from_array(value, dtype)
    *places, indices, values = cast("tuple[Array, ...]", value)
    wide, elements = torch.from_numpy(indices).long(), from_array(values, dtype)
    if places:
        return torch.sparse_csr_tensor(torch.from_numpy(places[0]).long(), wide, elements, size=extents)
    return torch.sparse_coo_tensor(wide[None], elements, size=extents, is_coalesced=True)
