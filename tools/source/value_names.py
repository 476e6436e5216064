"""The names that values have in a module's text, for outputs that speak of the same values."""

from __future__ import annotations

from collections.abc import Mapping
from io import StringIO

from xdsl.ir import Operation, SSAValue
from xdsl.printer import Printer


def value_names(module: Operation) -> Mapping[SSAValue, str]:
    """By value: `%name`, as printing the module in the custom form names it."""
    printer = _NamingPrinter(stream=StringIO())
    printer.print_op(module)
    return {value: f"%{name}" for value, name in printer.names().items()}


class _NamingPrinter(Printer):
    def names(self) -> Mapping[SSAValue, str]:
        return self._ssa_values
