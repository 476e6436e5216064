"""Which measured schedule a kernel of a function gets, and by what key it is known."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cached_property

from xdsl.dialects.func import FuncOp

from fuse_opt.dialects.analysis.kernel_key import KernelKey, kernel_key
from fuse_opt.dialects.fused import KernelOp
from fuse_opt.dialects.fused.knobs import KNOBS
from fuse_opt.passes.memory.inplace_rules import InplaceRules


def is_tunable(kind: str | None) -> bool:
    """Whether schedules of a kind have entries that are chosen by measuring."""
    return any(knob.tries and kind in knob.kinds for knob in KNOBS)


class KernelKeys:
    """Keys of the kernels of one function, after fusion and before pairs in place are chosen."""

    def __init__(self, function: FuncOp) -> None:
        self._function = function

    @cached_property
    def _rules(self) -> InplaceRules:
        return InplaceRules(self._function)

    @cached_property
    def _steps(self) -> dict[KernelOp, int]:
        return {op: step for step, op in self._rules.kernels}

    def overwritten(self, kernel: KernelOp) -> tuple[int, ...]:
        """The operands whose storage a result of the kernel may take over."""
        rules = self._rules.at(self._steps[kernel], kernel)
        results = range(len(kernel.results))
        return tuple(n for n in range(len(kernel.operands)) if any(rules.refuse(r, n) is None for r in results))

    def key(self, kernel: KernelOp, words: Mapping[str, str]) -> KernelKey:
        """By which measured schedules of the kernel are found; `words` are entries that do not come from measuring."""
        return kernel_key(kernel, self.overwritten(kernel), words)
