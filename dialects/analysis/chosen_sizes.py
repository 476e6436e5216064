"""A module for some values of its symbols: numbers in the place of sizes, and the offsets that places have then."""

from __future__ import annotations

from collections.abc import Mapping

from xdsl.dialects.builtin import DictionaryAttr, ModuleOp
from xdsl.dialects.func import FuncOp

from fuse_opt.dialects.analysis.place_orders import PlaceOrders
from fuse_opt.dialects.analysis.storage import ARENA, functions_of
from fuse_opt.dialects.fused import NOT_IN_ARENA, OutlinedOp
from fuse_opt.dialects.interfaces.properties import int_array, int_value, ints
from fuse_opt.dialects.interfaces.shapes import sizes
from fuse_opt.dialects.interfaces.symbols import EQUAL, SYMBOLS, change_sizes, is_tensor, stated_sizes
from fuse_opt.dialects.types.extents import evaluate, symbols
from fuse_opt.dialects.types.size import Size


def at_sizes(module: ModuleOp, chosen: Mapping[str, int]) -> None:
    """
    Changes the functions of a module whose types say sizes, and plans of theirs; symbols of which nothing is chosen are what is
    typical. Raises ValueError for a value that a symbol does not have, and for a name of none.
    """
    left = set(chosen)
    for function in functions_of(module):
        found = [extent for value in function.body.block.args if is_tensor(value) for extent in sizes(value)]
        found += [one for op in function.walk() for value in op.results if is_tensor(value) for one in sizes(value)]
        known = symbols([*found, *stated_sizes(function)])
        values = {one.name: chosen.get(one.name, one.usual) for one in known}
        for one in known:
            if (expected := one.problem(values[one.name])) is not None:
                raise ValueError(f"extent '{one.name}': {expected}, got {values[one.name]}")
        left -= set(values)
        if (orders := PlaceOrders.of(function)) is not None:
            _choose_places(function, orders, values)
        change_sizes(
            function, lambda extent, values=values: evaluate(extent, values) if isinstance(extent, Size) else extent
        )
        function.update_function_type()
        for said in (SYMBOLS, EQUAL):
            function.attributes.pop(said, None)
    if left:
        raise ValueError(f"extent '{min(left)}': expected a name of the program's symbols")


def _choose_places(function: FuncOp, orders: PlaceOrders, values: Mapping[str, int]) -> None:
    """Slots that are offsets, and an arena of so many bytes."""
    offsets, size, bound = orders.at(values)
    for op in function.walk():
        if isinstance(op, OutlinedOp) and op.slots is not None:
            op.slots = int_array([slot if slot == NOT_IN_ARENA else offsets[slot] for slot in ints(op.slots)])
    plan = function.attributes[ARENA]
    assert isinstance(plan, DictionaryAttr)
    entries = {"alignment": orders.alignment, "lower_bound": bound, "size": size}
    method = {name: each for name, each in plan.data.items() if name == "method"}
    function.attributes[ARENA] = DictionaryAttr({**method, **{name: int_value(n) for name, n in entries.items()}})
