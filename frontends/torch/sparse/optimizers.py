"""Optimizers on the row-sparse gradients of `nn.Embedding(sparse=True)`: a step is one program on the rows of a gradient.

Dynamo breaks graphs at sparse gradients, so `torch.compile` of PyTorch's optimizers runs them as eager does. These are the
same optimizers with the same state; gradients that are dense, or that they do not take, are left to PyTorch's own step.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from importlib import import_module
from math import sqrt
from typing import Any

import numpy as np

from fuse_opt.frontends.torch.fx.api import ELEMENTS, torch
from fuse_opt.tools.compiler import api

_optimizers: Any = import_module("torch.optim")
_PROGRAMS = 64
"""Numbers of ids, and shapes of tables, for which there are programs at a time."""


@dataclass(frozen=True)
class _Rows:
    """A gradient of rows as autograd gives it: a row for each id, ids that may occur again."""

    rows: int
    width: int
    count: int
    element: str

    @staticmethod
    def of(weight: Any) -> _Rows | None:
        """None for a gradient that is not one of rows, and for a weight that is not written to as it lies."""
        grad = weight.grad
        if grad is None or grad.layout != torch.sparse_coo or grad.sparse_dim() != 1 or grad.dim() != 2:
            return None
        element = ELEMENTS.get(weight.dtype)
        if element is None or not element.is_float or grad.dtype != weight.dtype or weight.device.type != "cpu":
            return None
        if not weight.is_contiguous() or not grad._nnz():
            return None
        return _Rows(weight.shape[0], weight.shape[1], grad._nnz(), element.name)


class SGD(_optimizers.SGD):
    """`torch.optim.SGD`; without momentum and decay, steps on gradients of rows are programs, of the values of the dense step."""

    def step(self, closure: Callable[[], Any] | None = None) -> Any:
        def ours(group: dict[str, Any], weight: Any, rows: _Rows) -> bool:
            if group["momentum"] or group["weight_decay"] or group["maximize"]:
                return False
            _run(_descent(rows), weight, [], float(group["lr"]))
            return True

        return _step(self, closure, ours, lambda: _optimizers.SGD.step(self))


class SparseAdam(_optimizers.SparseAdam):
    """`torch.optim.SparseAdam`, which is `graph.lazy_adam`: rows without a gradient keep weight and state."""

    def step(self, closure: Callable[[], Any] | None = None) -> Any:
        def ours(group: dict[str, Any], weight: Any, rows: _Rows) -> bool:
            if group.get("maximize"):
                return False
            state, (beta1, beta2) = self.state[weight], group["betas"]
            if not state:
                state["step"] = 0
                for name in ("exp_avg", "exp_avg_sq"):
                    state[name] = torch.zeros_like(weight, memory_format=torch.preserve_format)
            state["step"] += 1
            rate = float(group["lr"]) * sqrt(1 - beta2 ** state["step"]) / (1 - beta1 ** state["step"])
            given = [state["exp_avg"], state["exp_avg_sq"]]
            _run(_adam(rows, float(beta1), float(beta2), float(group["eps"])), weight, given, rate)
            return True

        return _step(self, closure, ours, lambda: _optimizers.SparseAdam.step(self))


def _step(
    optimizer: Any,
    closure: Callable[[], Any] | None,
    ours: Callable[[dict[str, Any], Any, _Rows], bool],
    rest: Callable[[], Any],
) -> Any:
    """A step by programs where there is one, and by PyTorch for the other parameters."""
    loss = None
    if closure is not None:
        with torch.enable_grad():
            loss = closure()
    taken: list[tuple[Any, Any]] = []
    with torch.no_grad():
        for group, weight in _parameters(optimizer):
            rows = _Rows.of(weight)
            if rows is not None and ours(group, weight, rows):
                taken.append((weight, weight.grad))
    if any(weight.grad is not None for _, weight in _parameters(optimizer) if all(weight is not w for w, _ in taken)):
        for weight, _ in taken:
            weight.grad = None
        try:
            rest()
        finally:
            for weight, grad in taken:
                weight.grad = grad
    return loss


def _parameters(optimizer: Any) -> Iterator[tuple[dict[str, Any], Any]]:
    for group in optimizer.param_groups:
        for weight in group["params"]:
            yield group, weight


def _run(program: api.CompiledProgram, weight: Any, state: Sequence[Any], rate: float) -> None:
    """A step in place."""
    grad, written = weight.grad, [weight, *state]
    targets = [value.detach().numpy() for value in written]
    ids, values = grad._indices()[0].numpy(), grad._values().numpy()
    found: Any = program(values, ids, np.array(rate, targets[0].dtype), *targets)
    results: tuple[Any, ...] = found if len(written) > 1 else (found,)
    for value, target, result in zip(written, targets, results, strict=True):
        if not np.may_share_memory(target, result):
            np.copyto(target, result)
        torch.autograd.graph.increment_version(value)


@lru_cache(_PROGRAMS)
def _descent(rows: _Rows) -> api.CompiledProgram:
    whole, sparse = _types(rows)[:2]
    return _program(
        rows,
        ["w"],
        f"""  %1 = graph.multiply %0, %rate : ({sparse}, tensor<{rows.element}>) -> {sparse}
  %2 = graph.subtract %w, %1 : ({whole}, {sparse}) -> {whole}
  func.return %2 : {whole}""",
    )


@lru_cache(_PROGRAMS)
def _adam(rows: _Rows, beta1: float, beta2: float, epsilon: float) -> api.CompiledProgram:
    whole, sparse = _types(rows)[:2]
    given = f"{whole}, {sparse}, tensor<{rows.element}>, {whole}, {whole}"
    numbers = f"beta1 = {beta1:.17e} : f64, beta2 = {beta2:.17e} : f64, epsilon = {epsilon:.17e} : f64"
    return _program(
        rows,
        ["w", "m", "v"],
        f"""  %1:3 = graph.lazy_adam %w, %0, %rate, %m, %v {{{numbers}}} : ({given}) -> ({whole}, {whole}, {whole})
  func.return %1#0, %1#1, %1#2 : {whole}, {whole}, {whole}""",
    )


def _types(rows: _Rows) -> tuple[str, str, str, str]:
    """Of the table, its gradient, the rows that this is summed from, and the ids."""
    element, table = rows.element, f"{rows.rows}x{rows.width}x{rows.element}"
    return (
        f"tensor<{table}>",
        f"tensor<{table}, #graph.row_sparse<capacity = {min(rows.count, rows.rows)}>>",
        f"tensor<{rows.count}x{rows.width}x{element}>",
        f"tensor<{rows.count}xi64>",
    )


def _program(rows: _Rows, written: Sequence[str], body: str) -> api.CompiledProgram:
    """The program of a step, whose row-sparse gradient is `%0`."""
    whole, sparse, values, ids = _types(rows)
    arguments = ", ".join(f"%{name}: {whole} {{graph.donated}}" for name in written)
    attributes = f"{{rows = {rows.rows} : i64, wrap_negative = false}}"
    return api.compile(f"""func.func @main(%dy: {values}, %ids: {ids}, %rate: tensor<{rows.element}>, {arguments})
    -> ({", ".join(whole for _ in written)}) {{
  %0 = graph.embedding_backward %dy, %ids {attributes} : ({values}, {ids}) -> {sparse}
{body}
}}""")
