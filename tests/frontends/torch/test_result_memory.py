"""Memory of large results through torch.compile: used again when the last reference is gone, and not before."""

import gc
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import pytest
from torch_testing import code, compiled, torch
from torch_testing import fresh as fresh

from fuse_opt.frontends.torch.codegen.steps import POOLED, pooled

COUNT = POOLED // 4 + 7777


def result() -> Any:
    return pooled(4 * COUNT, torch.float32)


def _cycle(tensor: Any) -> Any:
    held = [tensor]
    held.append(held)
    return held


HOLDERS: dict[str, Callable[[Any], Any]] = {
    "view": lambda tensor: tensor[5:].view(torch.int32)[::2],
    "detached": lambda tensor: tensor.detach(),
    "storage": lambda tensor: tensor.untyped_storage(),
    "set": lambda tensor: torch.empty(0).set_(tensor.untyped_storage()),
    "numpy": lambda tensor: tensor.numpy()[3:],
    "dlpack": lambda tensor: np.from_dlpack(tensor)[:2],
    "capsule": lambda tensor: tensor.__dlpack__(),
    "graph": lambda tensor: (torch.ones(COUNT, requires_grad=True) * tensor).grad_fn,
    "cycle": _cycle,
}


@pytest.mark.parametrize("kind", HOLDERS)
def test_memory_in_use_is_not_given_again(kind: str):
    tensor = result()
    begin = tensor.data_ptr()
    holder = HOLDERS[kind](tensor)
    del tensor
    gc.collect()
    assert all(other.data_ptr() != begin for other in [result() for _ in range(3)])
    del holder
    gc.collect()
    assert begin in {other.data_ptr() for other in [result() for _ in range(5)]}


def test_results_are_tensors_like_others(tmp_path: Any):
    def function(x: Any) -> Any:
        return torch.exp(x) * 2, x.T + 1

    x = torch.randn(COUNT // 512, 512)
    assert code(function, tmp_path, x).count("pooled(") == 2
    first, second = compiled(function)(x)
    assert not first._is_view() and first._base is None and first.is_leaf and second.stride() == x.T.stride()
    first.requires_grad_(True).sum().backward()
    assert first.grad is not None and first.untyped_storage().nbytes() == x.nbytes
    expected = second.clone()
    second.share_memory_()
    torch.testing.assert_close(compiled(function)(x)[1], expected, rtol=0, atol=0)
    torch.testing.assert_close(second, expected, rtol=0, atol=0)


def test_threads_that_drop_results_of_others():
    def function(x: Any) -> Any:
        return x + 1

    fast = compiled(function)
    start = torch.zeros(COUNT)
    fast(start)

    def call(number: int) -> bool:
        kept = [fast(torch.full((COUNT,), float(number + turn))) for turn in range(3)]
        fast(start)
        return all(bool((value == number + turn + 1).all()) for turn, value in enumerate(kept))

    with ThreadPoolExecutor(4) as threads, torch.no_grad():
        assert all(threads.map(call, range(0, 80, 10)))


UNSAFE_VIEWS: dict[str, Callable[[Any], Any]] = {
    "reshape": lambda x: (-x).t().reshape(3, 4),
    "_unsafe_view": lambda x: torch.ops.aten._unsafe_view((-x).t().contiguous(), [3, 4]),
    "unsafe_chunk": lambda x: torch.unsafe_chunk(-x, 2)[1],
    "unsafe_split": lambda x: torch.unsafe_split(-x, 2)[0],
    "unsafe_split_with_sizes": lambda x: torch.unsafe_split_with_sizes(-x, [1, 3], 1)[1],
    "complex": lambda x: torch.view_as_complex((-x).reshape(-1, 2)),
}


@pytest.mark.parametrize("dynamic", [False, True])
@pytest.mark.parametrize("name", UNSAFE_VIEWS)
def test_views_of_which_schemas_say_nothing_keep_their_memory(name: str, dynamic: bool) -> None:
    """With extents of any size PyTorch makes some of them, of what the program computed in memory of its own."""

    def function(x: Any) -> Any:
        return x.sum() + 1, UNSAFE_VIEWS[name](x)

    torch._dynamo.reset()
    call = torch.compile(function, backend="fuse_opt", dynamic=dynamic)
    given = [torch.randn(3, 4, generator=torch.Generator().manual_seed(seed)) for seed in range(3)]
    found = [call(x)[1] for x in given]
    assert all(torch.equal(result, function(x)[1]) for result, x in zip(found, given, strict=True))
