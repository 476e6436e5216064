"""Whether programs can run where the tensors of a graph are."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from fuse_opt.frontends.torch.fx.api import torch
from fuse_opt.tools.compiler.targets import cuda_problem


def check_device(device: Any, target: str | None) -> None:
    """Raises NotImplementedError, which says why, where no program is to run on a device, or can."""
    wanted = "cuda" if target == "cuda" else "cpu"
    if target is not None and device.type != wanted:
        raise NotImplementedError(
            f"tensors on {device}: option 'target' is {target!r}, which takes those on {wanted!r}"
        )
    if device.type != "cuda":
        return
    torch.cuda.init()  # the context of the device that is open is PyTorch's
    if (problem := cuda_problem(device.index or 0)) is not None:
        raise NotImplementedError(f"tensors on {device}: {problem}")


class Attempted:
    """
    A graph whose first call on a device may fail, as a driver or a library refuses something: then PyTorch runs it, that time and
    from then on. What the graph writes to of its arguments is as it was before.
    """

    def __init__(
        self,
        call: Callable[[list[Any]], Any],
        graph_module: Callable[..., Any],
        stored: Sequence[int],
        leave: Callable[[Exception], None],
    ) -> None:
        """`stored` numbers the arguments that are written to; `leave` says why the graph is PyTorch's, or raises the error."""
        self._call, self._graph_module = call, graph_module
        self._stored, self._leave = stored, leave
        self._ran = False

    def __call__(self, args: list[Any]) -> Any:
        if self._ran:
            return self._call(args)
        given = list(args)
        before = [given[number].clone() for number in self._stored]
        try:
            found = self._call(args)
        except RuntimeError as error:  # CudaError, and those of PyTorch's calls
            self._leave(error)
            for number, contents in zip(self._stored, before, strict=True):
                given[number].copy_(contents)
            self._call = self._by_torch
            found = self._by_torch(given)
        self._ran = True
        return found

    def _by_torch(self, args: list[Any]) -> Any:
        given = list(args)
        args.clear()
        return self._graph_module(*given)
