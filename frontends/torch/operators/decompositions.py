"""Which operators are taken apart before a graph reaches the backend."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextvars import ContextVar
from functools import cache, wraps
from importlib import import_module
from math import prod
from typing import Any

from fuse_opt.dialects.analysis.contractions.convolutions import FEWEST_POSITIONS
from fuse_opt.frontends.torch.fx.api import ELEMENTS, as_list, aten, is_tensor, static_shape, torch
from fuse_opt.frontends.torch.operators.table import TABLE

_FURTHER = (
    "_softmax",
    "_log_softmax",
    "native_layer_norm",
    "native_group_norm",
    "_native_batch_norm_legit",
    "_native_batch_norm_legit_functional",
    "_native_batch_norm_legit_no_training",
    "native_batch_norm",
    "linalg_vector_norm",
)
"""Operators that PyTorch's core set keeps whole."""
_BY_REFERENCE = (
    "_batch_norm_with_update_functional",
    "addmv",
    "angle",
    "as_strided_copy",
    "dist",
    "grid_sampler_2d",
    "narrow_copy",
    "permute_copy",
    "unbind_copy",
    "view_copy",
)
"""Operators that it keeps whole, too, and that its other decompositions make of what has handlers."""
_KEPT = ("scaled_dot_product", "aten.take.", "aten.bernoulli.")
"""
Parts of names of those that stay whole: run by one kernel, with a decomposition that fails on unknown extents, or one that
draws other random numbers than eager.
"""
_AS_SUGGESTED = (
    "_batch_norm_with_update_functional",
    "_native_batch_norm_legit",
    "_native_batch_norm_legit_functional",
    "_native_batch_norm_legit_no_training",
    "channel_shuffle",
    "max_unpool2d",
    "native_batch_norm",
    "native_channel_shuffle",
)
"""
Operators of which eager lays out the first result in C order, or with channels innermost where PyTorch says so of the first
argument; their decompositions keep other orders.
"""
_IN_C_ORDER = ("log_sigmoid_forward",)
"""Those of which it lays it out in C order, whatever the first argument's is."""
_AS_OPERANDS = (
    "copysign.Tensor",
    "div.Tensor_mode",
    "heaviside.default",
    "logaddexp.default",
    "logical_and.default",
    "logical_or.default",
    "logical_xor.default",
    "special_xlog1py.default",
    "xlogy.Tensor",
)
"""Those of which it takes the order of all operands; their decompositions, or tracing where they have none, take another one."""
_DEVICES = ("cpu", "cuda")
"""Types of devices that programs are for."""


@cache
def decompositions(products: bool = True) -> dict[Any, Callable[..., Any]]:
    """
    By overload, its decomposition; what has a handler of its own is not taken apart. With `products`, convolutions that
    are products are these: PyTorch's kernels of them write to memory that they are given.
    """
    core: dict[Any, Callable[..., Any]] = import_module("torch._decomp").core_aten_decompositions()
    table: dict[Any, Callable[..., Any]] = dict(core)
    inductor = import_module("torch._inductor.decomposition").select_decomp_table()
    for name in _FURTHER:
        packet = getattr(aten, name)
        for overload in packet.overloads():
            operator = getattr(packet, overload)
            if operator in inductor:
                table[operator] = inductor[operator]
    every: dict[Any, Callable[..., Any]] = import_module("torch._decomp").decomposition_table
    for name in _BY_REFERENCE:
        packet = getattr(aten, name)
        for operator in (getattr(packet, overload) for overload in packet.overloads()):
            if (function := every.get(operator, inductor.get(operator))) is not None:
                table.setdefault(operator, function)
    table |= (own := _own(table, products))
    orders = {str(getattr(aten, name)): _as_suggested for name in _AS_SUGGESTED}
    orders |= {str(getattr(aten, name)): _in_c_order for name in _IN_C_ORDER}
    for operator, function in table.items():
        if (order := orders.get(str(getattr(operator, "overloadpacket", "")))) is not None:
            table[operator] = _laid_out(function, order)
    floats = {str(getattr(aten, name)) for name in _FURTHER}
    return {
        operator: _whole_if_foreign(function, str(getattr(operator, "overloadpacket", "")) in floats)
        for operator, function in table.items()
        if not isinstance(operator, torch._ops.OpOverload) or operator in own or not _is_kept(str(operator))
    }


def _own(table: dict[Any, Callable[..., Any]], products: bool) -> dict[Any, Callable[..., Any]]:
    """Those that are others than PyTorch's, some of what has handlers: of what these are given."""
    found: dict[Any, Callable[..., Any]] = {
        aten.native_dropout.default: _native_dropout,
        aten.index_add.default: _index_add(table[aten.index_add.default]),
        aten.pow.Scalar: _power_of_number,
        aten.ldexp.Tensor: _ldexp,
    }
    if products:
        found[aten.convolution.default] = _convolution
    for name in _AS_OPERANDS:
        packet, _, overload = name.partition(".")
        operator = getattr(getattr(aten, packet), overload)
        found[operator] = _as_operands(_whole(operator) if _is_kept(f"aten.{name}") else table[operator])
    return found


def _whole_if_foreign(decomposition: Callable[..., Any], floats: bool) -> Callable[..., Any]:
    """
    The decomposition, but for operators on tensors that kernels cannot take, which PyTorch runs sooner as they are, and for
    arguments that only the operator itself takes or refuses: with `floats`, those that are none.
    """

    @wraps(decomposition)
    def decompose(*args: Any, **kwargs: Any) -> Any:
        given = [*args, *kwargs.values()]
        tensors = [item for entry in given for item in as_list(entry) if is_tensor(item)]
        if any(x.dtype not in ELEMENTS or x.device.type not in _DEVICES for x in tensors):
            return NotImplemented
        if floats and not all(x.is_floating_point() for x in tensors):
            return NotImplemented
        try:
            return decomposition(*args, **kwargs)
        except Exception:
            return NotImplemented

    return decompose


def _laid_out(decomposition: Callable[..., Any], order: Callable[[Any], Any]) -> Callable[..., Any]:
    """The decomposition with its first result in the order that eager takes for the first argument."""

    @wraps(decomposition)
    def decompose(*args: Any, **kwargs: Any) -> Any:
        found: Any = decomposition(*args, **kwargs)
        results = as_list(found)
        if not args or not results or not is_tensor(results[0]):
            return found
        first: Any = results[0].contiguous(memory_format=order(args[0]))
        return first if found is results[0] else (first, *results[1:])

    return decompose


def _as_suggested(x: Any) -> Any:
    return import_module("torch._prims_common").suggest_memory_format(x)


def _in_c_order(_: Any) -> Any:
    return torch.contiguous_format


def _as_operands(function: Callable[..., Any]) -> Callable[..., Any]:
    """The function of an operator on elements with its result in the order that eager takes for all of its operands."""

    @wraps(function)
    def decompose(x: Any, y: Any, **options: Any) -> Any:
        if (found := function(x, y, **options)) is NotImplemented:
            return found
        common: Any = import_module("torch._prims_common")
        order, _ = common.compute_elementwise_output_logical_to_physical_perm(*torch.broadcast_tensors(x, y))
        if (ordered := found.permute(order)).is_contiguous():
            return found
        return ordered.contiguous().permute([order.index(axis) for axis in range(found.dim())])

    return decompose


def _whole(operator: Any) -> Callable[..., Any]:
    """The operator as what its own decomposition begins with: within that it is left as it is."""
    running = ContextVar(str(operator), default=False)

    def call(*args: Any, **kwargs: Any) -> Any:
        if running.get():
            return NotImplemented
        token = running.set(True)
        try:
            return operator(*args, **kwargs)
        finally:
            running.reset(token)

    return call


def _index_add(decomposition: Callable[..., Any]) -> Callable[..., Any]:
    """The decomposition with what is added in the type of what it is added to, which numbers times booleans are not."""

    @wraps(decomposition)
    def decompose(x: Any, dim: int, index: Any, source: Any, *, alpha: Any = 1) -> Any:
        return decomposition(x, dim, index, source if alpha == 1 else (source * alpha).to(x.dtype))

    return decompose


def _power_of_number(base: Any, exponent: Any) -> Any:
    """A power of a number, which eager lays out in C order and PyTorch's tracing does not."""
    number = torch.scalar_tensor(base, dtype=torch.result_type(base, exponent), device=exponent.device)
    return torch.pow(number, exponent).contiguous()


def _ldexp(x: Any, exponent: Any) -> Any:
    return x * torch.pow(2.0, exponent)


def _native_dropout(x: Any, p: float, train: bool | None) -> tuple[Any, Any]:
    """Dropout with the random numbers that eager draws."""
    if train is False or p == 0:
        return x, torch.ones_like(x, dtype=torch.bool)
    if p == 1:
        return torch.zeros_like(x), torch.zeros_like(x, dtype=torch.bool)
    like = torch.empty_like(x, dtype=torch.bool)
    order = sorted(range(like.dim()), key=lambda axis: -like.stride(axis))  # eager draws in the order of memory
    drawn = torch.bernoulli(like.permute(order), 1 - p)
    kept = drawn.permute([order.index(axis) for axis in range(like.dim())])
    return x * kept * (1 / (1 - p)), kept


def _convolution(
    x: Any,
    weight: Any,
    bias: Any,
    stride: Sequence[int],
    padding: Sequence[int],
    dilation: Sequence[int],
    transposed: bool,
    output_padding: Sequence[int],
    groups: int,
) -> Any:
    """A convolution whose windows have one element, at few positions, as a product for each image."""
    extents, window = static_shape(x), static_shape(weight)
    if extents is None or window is None or 0 in extents or len(extents) != len(window) or transposed or groups != 1:
        return NotImplemented
    plain = {*window[2:], *stride} == {1} and set(padding) == {0}
    if not plain or x.dtype not in (torch.float32, torch.float64) or x.device.type != "cpu":
        return NotImplemented
    if not x.is_contiguous() or not weight.is_contiguous():
        return NotImplemented
    images, channels, *spatial = extents
    if (positions := prod(spatial)) >= FEWEST_POSITIONS:
        return NotImplemented
    weight = weight.reshape(window[0], channels)
    if positions == 1:
        y = x.reshape(images, channels)
        y = torch.mm(y, weight.t()) if bias is None else torch.addmm(bias, y, weight.t())
    else:
        y = torch.bmm(weight.expand(images, *weight.shape), x.reshape(images, channels, positions))
        y = y if bias is None else y + bias.reshape(-1, 1)
    return y.reshape(images, window[0], *spatial)


def _is_kept(name: str) -> bool:
    return name in TABLE or any(part in name for part in _KEPT)
