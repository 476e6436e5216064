"""`SparseAdam` on the row-sparse gradients of `nn.Embedding(sparse=True)`: a step is one program on the rows of a gradient.

Dynamo breaks graphs at sparse gradients, so `torch.compile` of PyTorch's optimizers runs them as eager does. This is the same
optimizer with the same state. Gradient descent has none here: PyTorch's is one pass over the rows, and `compile_sparse` of a
function with the gradient and the step in it saves the others.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
from importlib import import_module
from math import sqrt
from typing import Any

import numpy as np

from fuse_opt.frontends.torch.fx.api import ELEMENTS, as_array, torch
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


class SparseAdam(_optimizers.SparseAdam):
    """`torch.optim.SparseAdam`, which is `graph.lazy_adam`: rows without a gradient keep weight and state."""

    def step(self, closure: Callable[[], Any] | None = None) -> Any:
        loss = None
        if closure is not None:
            with torch.enable_grad():
                loss = closure()
        taken: list[tuple[Any, Any]] = []
        with torch.no_grad():
            for group in self.param_groups:
                for weight in group["params"]:
                    if (rows := _Rows.of(weight)) is not None and not group.get("maximize"):
                        self._step_rows(group, weight, rows)
                        taken.append((weight, weight.grad))
        self._step_others(taken)
        return loss

    def _step_rows(self, group: dict[str, Any], weight: Any, rows: _Rows) -> None:
        state, (beta1, beta2) = self.state[weight], group["betas"]
        if not state:
            state["step"] = 0
            for name in ("exp_avg", "exp_avg_sq"):
                state[name] = torch.zeros_like(weight, memory_format=torch.preserve_format)
        state["step"] += 1
        rate = float(group["lr"]) * sqrt(1 - beta2 ** state["step"]) / (1 - beta1 ** state["step"])
        program = _adam(rows, float(beta1), float(beta2), float(group["eps"]))
        written = [weight, state["exp_avg"], state["exp_avg_sq"]]
        dtype = program.signature.arguments[0].dtype
        targets = [as_array(value, dtype) for value in written]
        ids, values = weight.grad._indices()[0].numpy(), as_array(weight.grad._values(), dtype)
        results = program(values, ids, as_array(torch.tensor(rate, dtype=weight.dtype), dtype), *targets)
        for value, target, result in zip(written, targets, results, strict=True):
            if not np.may_share_memory(target, result):
                np.copyto(target, result)
            torch.autograd.graph.increment_version(value)

    def _step_others(self, taken: list[tuple[Any, Any]]) -> None:
        """PyTorch's step, which takes parameters that have a gradient."""
        for weight, _ in taken:
            weight.grad = None
        try:
            if any(weight.grad is not None for group in self.param_groups for weight in group["params"]):
                _optimizers.SparseAdam.step(self)
        finally:
            for weight, grad in taken:
                weight.grad = grad


@lru_cache(_PROGRAMS)
def _adam(rows: _Rows, beta1: float, beta2: float, epsilon: float) -> api.CompiledProgram:
    element, table = rows.element, f"{rows.rows}x{rows.width}x{rows.element}"
    whole, sparse = f"tensor<{table}>", f"tensor<{table}, #graph.row_sparse<capacity = {min(rows.count, rows.rows)}>>"
    values, ids, rate = (
        f"tensor<{rows.count}x{rows.width}x{element}>",
        f"tensor<{rows.count}xi64>",
        f"tensor<{element}>",
    )
    numbers = f"beta1 = {beta1:.17e} : f64, beta2 = {beta2:.17e} : f64, epsilon = {epsilon:.17e} : f64"
    written = ", ".join(f"%{name}: {whole} {{graph.donated}}" for name in ("w", "m", "v"))
    types = f"({whole}, {sparse}, {rate}, {whole}, {whole}) -> ({whole}, {whole}, {whole})"
    return api.compile(f"""func.func @main(%dy: {values}, %ids: {ids}, %rate: {rate}, {written}) -> ({whole}, {whole}, {whole}) {{
  %0 = graph.embedding_backward %dy, %ids {{rows = {rows.rows} : i64, wrap_negative = false}} : ({values}, {ids}) -> {sparse}
  %1:3 = graph.lazy_adam %w, %0, %rate, %m, %v {{{numbers}}} : {types}
  func.return %1#0, %1#1, %1#2 : {whole}, {whole}, {whole}
}}""")
