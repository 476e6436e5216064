"""Which graphs can be recorded: those whose calls of PyTorch's neither wait for the device nor draw random numbers."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from fuse_opt.frontends.torch.fx.api import as_list, is_tensor, torch

_FEWEST = 4
"""Steps of a program from which on one launch, and copies of the results, take the host less time. A guess from times of each."""
_RECORDED = frozenset(
    f"aten.{name}"
    for name in (
        "mm", "addmm", "bmm", "baddbmm", "mv", "addmv", "dot", "_int_mm",
        "convolution", "convolution_backward",
        "_scaled_dot_product_flash_attention", "_scaled_dot_product_flash_attention_backward",
        "_scaled_dot_product_efficient_attention", "_scaled_dot_product_efficient_attention_backward",
        "_scaled_dot_product_cudnn_attention", "_scaled_dot_product_cudnn_attention_backward",
        "max_pool2d_with_indices", "max_pool2d_with_indices_backward", "avg_pool2d", "avg_pool2d_backward",
        "_adaptive_avg_pool2d", "_adaptive_avg_pool2d_backward", "upsample_nearest2d", "upsample_bilinear2d",
        "clone", "_to_copy", "copy", "cat", "constant_pad_nd", "embedding", "gather", "index_select",
        "index", "scatter_add", "sort", "topk", "cumsum",
    )
)  # fmt: skip
"""Operators that only enqueue kernels, on whatever stream, whose arguments of numbers are the same in each call."""
_MASKS = (torch.bool, torch.uint8)
"""Element types of indices that PyTorch counts on the host."""


def is_recordable(target: Any, arguments: Iterable[Any], results: Sequence[Any], device: Any) -> bool:
    """Whether a call can be part of a recording; arguments are as they were traced, with descriptions in place of nodes."""
    if not isinstance(target, torch._ops.OpOverload) or str(target.overloadpacket) not in _RECORDED:
        return False
    given = dict(zip((argument.name for argument in target._schema.arguments), arguments, strict=False))
    if given.get("dropout_p", 0.0) != 0.0:
        return False
    # Attention without dropout gives a state of random numbers that nobody reads, on another device where it is not recorded.
    values = [value for name, value in given.items() if not name.startswith("philox")]
    tensors = [item for value in (*values, *results[:1]) for item in as_list(value) if is_tensor(item)]
    if any(item.device.type != device.type or (item.dtype in _MASKS and "indices" in given) for item in tensors):
        return False
    return all(isinstance(extent, int) for item in tensors for extent in item.shape)


def why_not(calls: Sequence[Any], steps: int, is_captured: bool) -> str | None:
    """Why a program of so many steps is not recorded; `is_captured` says whether its own ones can be. None where it is."""
    if steps < _FEWEST:
        return f"{steps} steps are launched as fast one by one"
    if not is_captured:
        return "some steps are no part of CUDA graphs, or run on the host"
    names = sorted({call.name for call in calls if not call.recordable})
    return f"{', '.join(names)}: nothing says that it can be" if names else None
