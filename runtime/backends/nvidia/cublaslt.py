"""Matrix products with what follows them on a device, by cuBLASLt through ctypes: the backend `cublaslt`.

The library is asked once for an algorithm, when the program is built: the first that its heuristic names for operands that
begin at multiples of 16 bytes, and another one for those that begin anywhere.
"""

from __future__ import annotations

import ctypes
import os
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

from fuse_opt.dialects.implementation.chains import ChainOffer, Link
from fuse_opt.dialects.implementation.site import Site
from fuse_opt.lowering.program import BufferRef, LibraryCall
from fuse_opt.lowering.reference.kernels.registry import native_implementation
from fuse_opt.runtime.backends.nvidia.device_calls import (
    Address,
    Enqueue,
    Handles,
    LibraryFile,
    chain_of,
    operands_of,
    workspace_at,
)
from fuse_opt.runtime.backends.nvidia.products import (
    NUMBERS,
    Product,
    compute_type,
    product_cost,
    product_of,
    product_refusal,
    product_workspace,
)
from fuse_opt.runtime.device.driver import Device
from fuse_opt.runtime.device.driver_library import CudaError

ALIGNMENT = 16
"""Bytes: at multiples of which operands begin for the first algorithm."""
_FAST = "_fast"

# Values of enums in cublasLt.h.
_TRANSA, _TRANSB, _EPILOGUE, _BIAS_POINTER, _BIAS_TYPE = 3, 4, 7, 8, 26
_BATCH_COUNT, _BATCH_STRIDE = 5, 6
_MOST_WORKSPACE, _REDUCTIONS, _ALIGNMENTS = 1, 3, (5, 6, 7, 8)
_DEFAULT, _RELU, _BIAS, _GELU = 1, 2, 4, 32
_IN_WORKSPACE = 2
"""The reduction scheme in which partial sums are added in the workspace, in one order: no atomics, no rounding between."""

_P, _I, _S = ctypes.c_void_p, ctypes.c_int, ctypes.c_size_t
_I32, _I64, _U64 = ctypes.c_int32, ctypes.c_int64, ctypes.c_uint64
_SET = (_P, _I, _P, _S)
_SIGNATURES = {
    "cublasLtCreate": (_P,),
    "cublasLtDestroy": (_P,),
    "cublasLtMatmulDescCreate": (_P, _I, _I),
    "cublasLtMatmulDescSetAttribute": _SET,
    "cublasLtMatmulDescDestroy": (_P,),
    "cublasLtMatrixLayoutCreate": (_P, _I, _U64, _U64, _I64),
    "cublasLtMatrixLayoutSetAttribute": _SET,
    "cublasLtMatrixLayoutDestroy": (_P,),
    "cublasLtMatmulPreferenceCreate": (_P,),
    "cublasLtMatmulPreferenceSetAttribute": _SET,
    "cublasLtMatmulPreferenceDestroy": (_P,),
    "cublasLtMatmulAlgoGetHeuristic": (_P, _P, _P, _P, _P, _P, _P, _I, _P, _P),
    "cublasLtMatmul": (_P, _P, _P, _P, _P, _P, _P, _P, _P, _P, _P, _P, _P, _P, _S, _P),
}


class _Algorithm(ctypes.Structure):
    """cublasLtMatmulAlgo_t."""

    _fields_ = (("data", _U64 * 8),)


class _Heuristic(ctypes.Structure):
    """cublasLtMatmulHeuristicResult_t."""

    _fields_ = (
        ("algo", _Algorithm),
        ("workspace", _S),
        ("state", _I),
        ("waves", ctypes.c_float),
        ("reserved", _I * 4),
    )


VARIABLE = "FUSE_OPT_CUBLASLT"
LIBRARY = LibraryFile("cublasLt", "cuBLASLt", VARIABLE, lambda: os.environ.get(VARIABLE, ""), _SIGNATURES)


@dataclass(frozen=True)
class _Bound:
    """A product as the library has it: descriptors of its own, and an algorithm for each alignment."""

    product: Product
    description: int
    layouts: tuple[int, int, int]
    """Of what the library calls A, B and D: rhs, lhs and the result, column by column."""
    epilogue: int
    algorithms: tuple[tuple[int, _Heuristic], ...]
    """By the alignment that each needs, the widest first."""
    scalars: Any
    """One and zero, in the type of sums."""


class CublasLt(Handles):
    """Products of one program."""

    def __init__(self, device: Device) -> None:
        """Raises CudaError."""
        super().__init__(LIBRARY, device)
        self._handle = self._made("cublasLtCreate", "cublasLtDestroy")

    def bound(self, call: LibraryCall, address: Address) -> Enqueue:
        """What enqueues a product with its chain."""
        (lhs, rhs), (out,) = operands_of(call), call.outputs
        product, links = product_of(call), chain_of(call)
        kind = compute_type(lhs.dtype, call.implementation.endswith(_FAST))
        description = self._description(product, kind, out, links)
        layouts = self._layouts(product, (rhs, lhs, out))
        epilogue = epilogue_of(links)
        room = 0 if call.workspace is None else workspace_at(call, lambda ref: ref.offset)[1]
        itemsizes = {ref.nbytes // max(_size(ref), 1) for ref in (lhs, rhs, out)}
        algorithms: list[tuple[int, _Heuristic]] = []
        for alignment in (ALIGNMENT, min(itemsizes)):
            if epilogue & _BIAS:  # it is looked at for its alignment alone, and may not be there without a bias
                self._set("MatmulDesc", description, _BIAS_POINTER, _U64(alignment))
            found = self._ask(description, layouts, room, alignment)
            if found is None:
                raise CudaError(
                    f"'{call.operation}': cuBLASLt has no algorithm for {product} in {room} bytes; "
                    'compile with backend="-cublaslt"'
                )
            algorithms.append((alignment, found))
        scalar = ctypes.c_double if out.dtype == "f64" else ctypes.c_float
        bound = _Bound(product, description, layouts, epilogue, tuple(algorithms), (scalar * 2)(1, 0))
        bias = next((call.inputs[link.operand] for link in links if link.operand is not None), None)
        return partial(self._enqueue, bound, call, (rhs, lhs, out), bias, address)

    def _enqueue(
        self,
        bound: _Bound,
        call: LibraryCall,
        operands: tuple[BufferRef, BufferRef, BufferRef],
        bias: BufferRef | None,
        address: Address,
        stream: Any,
    ) -> None:
        a, b, d = map(address, operands)
        read = (a, b, d)
        if bias is not None:
            start = address(bias)
            self._set("MatmulDesc", bound.description, _BIAS_POINTER, _U64(start))
            read = (*read, start)
        found = next(one for wanted, one in bound.algorithms if not any(each % wanted for each in read))
        one = ctypes.addressof(bound.scalars)
        zero = one + ctypes.sizeof(bound.scalars) // 2
        first, second, third = bound.layouts
        workspace, room = workspace_at(call, address)
        self._call(
            "cublasLtMatmul", self._handle, bound.description, one, a, first, b, second, zero, d, third, d, third,
            ctypes.addressof(found), workspace, room, stream.handle,
        )  # fmt: skip

    def _description(self, product: Product, kind: int, out: BufferRef, links: Sequence[Link]) -> int:
        scale = NUMBERS["f64" if out.dtype == "f64" else "f32"]
        made = self._made("cublasLtMatmulDescCreate", "cublasLtMatmulDescDestroy", kind, scale)
        # Column by column the arrays are the transposed matrices, and out' = rhs' @ lhs'.
        self._set("MatmulDesc", made, _TRANSA, _I32(product.transposed[1]))
        self._set("MatmulDesc", made, _TRANSB, _I32(product.transposed[0]))
        self._set("MatmulDesc", made, _EPILOGUE, ctypes.c_uint32(epilogue_of(links)))
        if epilogue_of(links) & _BIAS:
            self._set("MatmulDesc", made, _BIAS_TYPE, _I32(NUMBERS[out.dtype]))
        return made

    def _layouts(self, product: Product, operands: Sequence[BufferRef]) -> tuple[int, int, int]:
        (lhs_width, rhs_width), (first, second) = product.widths, product.transposed
        extents = (
            (rhs_width, product.columns if second else product.inner),
            (lhs_width, product.inner if first else product.rows),
            (product.columns, product.rows),
        )
        strides = (product.strides[1], product.strides[0], product.strides[2])
        made: list[int] = []
        for ref, (width, length), stride in zip(operands, extents, strides, strict=True):
            destroy = "cublasLtMatrixLayoutDestroy"
            layout = self._made("cublasLtMatrixLayoutCreate", destroy, NUMBERS[ref.dtype], width, length, width)
            if product.count > 1:
                self._set("MatrixLayout", layout, _BATCH_COUNT, _I32(product.count))
                self._set("MatrixLayout", layout, _BATCH_STRIDE, _I64(stride))
            made.append(layout)
        return made[0], made[1], made[2]

    def _ask(self, description: int, layouts: tuple[int, int, int], room: int, alignment: int) -> _Heuristic | None:
        """The first algorithm that the heuristic names; None where there is none."""
        wanted = self._made("cublasLtMatmulPreferenceCreate", None)
        self._set("MatmulPreference", wanted, _MOST_WORKSPACE, _U64(room))
        self._set("MatmulPreference", wanted, _REDUCTIONS, ctypes.c_uint32(_IN_WORKSPACE))
        for name in _ALIGNMENTS:
            self._set("MatmulPreference", wanted, name, ctypes.c_uint32(alignment))
        found, count = _Heuristic(), _I()
        first, second, third = layouts
        status = self._library.cublasLtMatmulAlgoGetHeuristic(
            self._handle, description, first, second, third, third, wanted, 1, ctypes.byref(found), ctypes.byref(count)
        )
        self._library.cublasLtMatmulPreferenceDestroy(wanted)
        return found if not status and count.value and not found.state else None

    def _set(self, kind: str, of: int, attribute: int, value: Any) -> None:
        self._call(f"cublasLt{kind}SetAttribute", of, attribute, ctypes.byref(value), ctypes.sizeof(value))


def _size(ref: BufferRef) -> int:
    found = 1
    for extent in ref.shape:
        found *= extent
    return found


def epilogue_of(links: Sequence[Link]) -> int:
    """What the library is to do behind the product: a bias, then at most one function."""
    found = sum(_BIAS if link.op == "graph.add" else _RELU if link.op == "graph.relu" else _GELU for link in links)
    return found or _DEFAULT


def _is_bias(link: Link) -> bool:
    """Whether a vector along the last axis of a matrix, or of a stack of them, is added."""
    behind = len(link.extents) > 1 and set(link.extents[:-1]) == {1} and link.extents[-1] > 1
    return link.op == "graph.add" and link.operand is not None and behind


def _is_function(link: Link) -> bool:
    if link.operand is not None or link.number is not None:
        return False
    return link.op == "graph.relu" or (link.op == "graph.gelu" and dict(link.config).get("approximate") == "tanh")


def _exact(link: Link) -> str | None:
    """A bias of f32 is one more term of sums of f32; of other types the product would not be rounded before."""
    if link.dtype != "f32":
        return f"step-{link.dtype}"
    return None if _is_bias(link) else f"step-{link.op}"


def _fast(link: Link) -> str | None:
    """What cuBLASLt makes of NaN in a ReLU is not said, and its GELU has no bound."""
    if link.dtype not in ("f32", "f16", "bf16"):
        return f"step-{link.dtype}"
    return None if _is_bias(link) or _is_function(link) else f"step-{link.op}"


def _orders(links: Sequence[Link]) -> str | None:
    """A bias comes first, and each kind of step once."""
    kinds = [link.op == "graph.add" for link in links]
    return None if kinds in ([True], [False], [True, False]) else "step-order"


def _accepts(site: Site) -> str | None:
    if min(len(tensor.shape) for tensor in site.operands) < 2:
        return "rank"
    return product_refusal(site)


def _register() -> None:
    """They run a product with a chain, of which fusion asks them first; a product alone is cuBLAS's."""
    bias = "add of a vector along the last axis"
    for name, grammar in (
        ("cublaslt.matmul", ChainOffer(_exact, f"{bias} (f32)", 1, orders=_orders)),
        (f"cublaslt.matmul{_FAST}", ChainOffer(_fast, f"{bias}, then relu or gelu by tanh", 2, orders=_orders)),
    ):
        native_implementation(
            name,
            "numpy.matmul",
            "graph.matmul",
            _accepts,
            partial(product_cost, name=name),
            epilogue=grammar,
            workspace=product_workspace,
            numerics="fast" if name.endswith(_FAST) else "strict",
            priority=1,
            platform="cuda",
            chained=True,
            sized=True,
        )


_register()
