"""StableHLO programs, as JAX lowers them: `load(source)` gives a module of graph ops.

The generic form is read by xDSL's own parser, with ops that it does not know. The pretty form, `lowered.as_text()`, is
turned into it by jaxlib where that is installed.
"""

from __future__ import annotations

from collections import ChainMap
from collections.abc import Mapping, MutableMapping, Sequence
from contextlib import nullcontext
from pathlib import Path
from typing import Any, TypeAlias, cast

import numpy as np
from xdsl.dialects.builtin import DYNAMIC_INDEX, ModuleOp, SymbolRefAttr, TensorType
from xdsl.dialects.func import FuncOp
from xdsl.ir import Attribute, Block, Operation, SSAValue
from xdsl.utils.exceptions import VerifyException

from fuse_opt.dialects.analysis.precision import KERNEL
from fuse_opt.dialects.interfaces.shapes import NeedsEqual, dtype, sizes_asked_for, tensor
from fuse_opt.dialects.scalar import ScalarTypeError
from fuse_opt.dialects.types.dtypes import dtype_of
from fuse_opt.dialects.types.size import SizeRefusal
from fuse_opt.frontends.builder import Emitter, UnknownExtentError, UnsupportedTypeError, Value
from fuse_opt.frontends.stablehlo.facts import Facts
from fuse_opt.frontends.stablehlo.operators import bits as stablehlo_bits
from fuse_opt.frontends.stablehlo.operators import convolutions as stablehlo_convolutions
from fuse_opt.frontends.stablehlo.operators import dynamic_slices as stablehlo_dynamic_slices
from fuse_opt.frontends.stablehlo.operators import indexing as stablehlo_indexing
from fuse_opt.frontends.stablehlo.operators import movement as stablehlo_movement
from fuse_opt.frontends.stablehlo.operators import pointwise as stablehlo_pointwise
from fuse_opt.frontends.stablehlo.operators import reductions as stablehlo_reductions
from fuse_opt.frontends.stablehlo.operators import scans as stablehlo_scans
from fuse_opt.frontends.stablehlo.operators.constants import known_number
from fuse_opt.frontends.stablehlo.operators.op import CURE, HANDLERS, HloOp, StableHLOError, attributes_of, name_of
from fuse_opt.frontends.stablehlo.operators.sizes import Known, Needed, by_element, known_sizes, shape_assertion
from fuse_opt.frontends.stablehlo.text import parsed
from fuse_opt.tools.compiler.api import evaluate

__all__ = ["StableHLOError", "load", "supported_ops"]

FAMILIES = (
    stablehlo_pointwise,
    stablehlo_bits,
    stablehlo_movement,
    stablehlo_reductions,
    stablehlo_convolutions,
    stablehlo_scans,
    stablehlo_indexing,
    stablehlo_dynamic_slices,
)
"""The modules that enter handlers into the table."""

_RETURNS = ("func.return", "stablehlo.return")
_DEEPEST = 64
"""Calls and regions inside one another."""
_LONGEST = 1024
"""Rounds of a loop that are unrolled."""

Operand: TypeAlias = "tuple[Value, Known]"
"""A value, and what it is where that is known: a number everywhere, or sizes and integers by element."""


def supported_ops() -> list[str]:
    """The ops that have a handler."""
    return sorted(HANDLERS)


def load(source: str | Path | Any, function: str = "main", extents: Mapping[str, int] | None = None) -> ModuleOp:
    """
    The function, with the private ones that it calls put in their places. `source` is a module, MLIR text in either form, a
    path, or what `jax.jit(f).lower(...)` gives; `extents` are numbers for unknown extents, by name. Raises StableHLOError for
    what cannot be read or is not supported, OSError for files.
    """
    functions = _functions(parsed(source))
    if function not in functions:
        names = ", ".join(functions) or "none"
        raise StableHLOError(f"expected a function '{function}', got {names}; name one with function=")
    entry, facts = functions[function], Facts.of(functions[function], functions, extents or {})
    while True:
        try:
            with sizes_asked_for() if facts.has_sizes else nullcontext():
                return _Importer(functions, facts).run(entry)
        except Needed as needed:
            facts = facts.with_fact(needed.a, needed.b, needed.direction, str(needed))
        except NeedsEqual as needed:
            facts = facts.with_fact(*needed.sizes, "EQ", str(needed))


def _functions(module: ModuleOp) -> dict[str, FuncOp]:
    ops = [op for block in module.body.blocks for op in block.ops]
    found = [op for op in ops if isinstance(op, FuncOp) and op.body.blocks and "sym_name" in op.properties]
    return {op.sym_name.data: op for op in found}


def _bind(
    values: MutableMapping[SSAValue, Operand], names: Sequence[SSAValue], given: Sequence[Operand], what: str
) -> None:
    """Gives values to names; raises StableHLOError when they are not as many, or of other types."""
    if len(names) != len(given):
        raise StableHLOError(f"{what}: expected {len(names)} values, got {len(given)}")
    for name, operand in zip(names, given, strict=True):
        if not _agree(name.type, operand[0].type):
            raise StableHLOError(f"{what}: expected a value of type '{name.type}', got '{operand[0].type}'")
        values[name] = operand


def _agree(stated: Attribute, found: Attribute) -> bool:
    """Whether a value is of a type that the program states, of which extents may be unknown and bounds are left out."""
    if not isinstance(stated, TensorType) or not isinstance(found, TensorType):
        return stated == found
    ours, theirs = cast("TensorType[Attribute]", found), cast("TensorType[Attribute]", stated)
    pairs = zip(theirs.get_shape(), ours.get_shape(), strict=False)
    is_alike = len(theirs.get_shape()) == len(ours.get_shape()) and theirs.element_type == ours.element_type
    return is_alike and all(n in (DYNAMIC_INDEX, m) for n, m in pairs)


class _Importer:
    """One import of a function, of whose extents facts are known."""

    def __init__(self, functions: Mapping[str, FuncOp], facts: Facts) -> None:
        self._functions = functions
        self._emit = Emitter()
        self._facts = facts

    def run(self, function: FuncOp) -> ModuleOp:
        arguments: list[Operand] = []
        for number, value in enumerate(function.args):
            try:
                type_ = tensor(value)
            except VerifyException as error:
                raise StableHLOError(f"argument {number}: {error}") from error
            element = dtype_of(type_.element_type)
            if element is None:
                raise StableHLOError(f"argument {number}: expected a supported type, got '{type_}'")
            shape = cast("Sequence[int]", self._facts.arguments[number])
            argument = self._emit.argument(value.name_hint or f"arg{number}", element, shape)
            arguments.append((argument, None))
        return self._emit.finish(
            [value for value, _ in self._block(function.body.block, arguments, {}, 0)], precision=KERNEL
        )

    def _block(
        self, block: Block, arguments: Sequence[Operand], outer: Mapping[SSAValue, Operand], depth: int
    ) -> list[Operand]:
        """The results of a block that is built here; `outer` are the values around it."""
        if depth > _DEEPEST:
            raise StableHLOError(f"calls and regions are more than {_DEEPEST} deep")
        values: MutableMapping[SSAValue, Operand] = ChainMap({}, cast(Any, outer))
        _bind(values, block.args, arguments, "a call or region")
        for op in block.ops:
            if not all(operand in values for operand in op.operands):
                raise StableHLOError(f"'{name_of(op)}': uses a value that nothing before it gives")
            operands = [values[operand] for operand in op.operands]
            if name_of(op) in _RETURNS:
                return operands
            _bind(values, op.results, self._op(op, operands, values, depth), f"'{name_of(op)}'")
        raise StableHLOError("expected a block that ends in a return")

    def _op(
        self, op: Operation, operands: list[Operand], values: Mapping[SSAValue, Operand], depth: int
    ) -> Sequence[Operand]:
        name, attributes = name_of(op), attributes_of(op)
        callee = attributes.get({"func.call": "callee", "stablehlo.composite": "decomposition"}.get(name, ""))
        if isinstance(callee, SymbolRefAttr):
            called = callee.root_reference.data
            if called not in self._functions:
                raise StableHLOError(f"'{name}': there is no function '{called}'")
            return self._block(self._functions[called].body.block, operands, {}, depth + 1)
        if not all(region.blocks for region in op.regions):
            raise StableHLOError(f"'{name}': expected regions with a block, got an empty one")
        numbers = [known if isinstance(known, int | float) else None for _, known in operands]
        sizes = [known if isinstance(known, np.ndarray) else None for _, known in operands]
        hlo = HloOp(op, [value for value, _ in operands], attributes, numbers, self._apply, sizes, evaluate)
        if name == "stablehlo.custom_call" and hlo.text("call_target_name").endswith("shape_assertion"):
            owner = op.operands[0].owner
            condition = owner if isinstance(owner, Operation) and name_of(owner) == "stablehlo.compare" else None
            compared = [] if condition is None else [values[side] for side in condition.operands]
            shape_assertion(hlo, condition, [by_element(known) for _, known in compared])
            return []
        if name == "stablehlo.while":
            return self._loop(hlo, operands, values, depth)
        if name in ("stablehlo.case", "stablehlo.if"):
            return self._branch(hlo, values, depth)
        if name not in HANDLERS:
            raise StableHLOError(f"'{name}' is not supported; docs/stablehlo.md lists what is")
        results = self._record(hlo)
        known: Known = known_number(op, attributes, hlo.numbers) if len(results) == 1 else None
        if known is None and len(results) == 1:
            known = known_sizes(hlo, attributes)
        return [(value, known) for value in results]

    def _apply(self, block: Block, operands: Sequence[Value], g: Emitter | None, depth: int = 0) -> list[Value]:
        """A region of scalars, at each element of the operands."""
        emit = g or self._emit
        if depth > _DEEPEST:
            raise StableHLOError(f"calls and regions are more than {_DEEPEST} deep")
        values: dict[SSAValue, Value] = dict(zip(block.args, operands, strict=True))
        for op in block.ops:
            if not all(operand in values for operand in op.operands):
                raise StableHLOError(
                    f"'{name_of(op)}': uses a value from outside of its region, which is not supported"
                )
            given = [values[operand] for operand in op.operands]
            if name_of(op) in _RETURNS:
                return given
            values.update(zip(op.results, self._applied(op, given, emit, depth), strict=True))
        raise StableHLOError("expected a block that ends in a return")

    def _applied(self, op: Operation, operands: list[Value], g: Emitter, depth: int) -> list[Value]:
        name, attributes = name_of(op), attributes_of(op)
        if isinstance(callee := attributes.get("callee"), SymbolRefAttr):
            called = self._functions.get(callee.root_reference.data)
            if called is None:
                raise StableHLOError(f"'{name}': there is no function '{callee.root_reference.data}'")
            return self._apply(called.body.block, operands, g, depth + 1)
        if name in stablehlo_pointwise.OF_SCALARS_SAME:
            return operands
        if name not in stablehlo_pointwise.POINTWISE:
            raise StableHLOError(
                f"'{name}': expected ops on scalars in a region, got one that is none or not supported"
            )
        hlo = HloOp(op, operands, attributes)
        results = self._recorded(hlo, g)
        for number, value in enumerate(results):
            if dtype(value) is not hlo.dtype(number) or hlo.shape(number):
                raise hlo.refuse(f"result {number}: expected a scalar of {dtype(value)}, got '{hlo.result(number)}'")
        return results

    def _record(self, hlo: HloOp) -> list[Value]:
        listed = self._recorded(hlo, self._emit)
        for number, value in enumerate(listed):
            if not _agree(hlo.result(number), value.type):
                raise hlo.refuse(f"result {number}: expected '{hlo.result(number)}', got '{value.type}'")
        return listed

    def _recorded(self, hlo: HloOp, g: Emitter) -> list[Value]:
        try:
            results = _of_no_elements(hlo, g) or HANDLERS[hlo.name](hlo, g)
        except (StableHLOError, NeedsEqual):
            raise
        except SizeRefusal as error:
            raise hlo.refuse(f"{error}; {CURE}") from error
        except (VerifyException, ScalarTypeError, UnsupportedTypeError, UnknownExtentError) as error:
            raise hlo.refuse(str(error)) from error
        except (ValueError, IndexError, KeyError, TypeError) as error:
            raise hlo.refuse(f"cannot be read: {type(error).__name__}: {error}") from error
        return [results] if isinstance(results, SSAValue) else list(results)

    def _loop(
        self, hlo: HloOp, carried: list[Operand], values: Mapping[SSAValue, Operand], depth: int
    ) -> list[Operand]:
        """A loop whose condition follows from a counter, round by round."""
        condition, body = (region.block for region in hlo.op.regions)
        for _ in range(_LONGEST + 1):
            going = next((number for _, number in self._block(condition, carried, values, depth + 1)), None)
            if going is None:
                raise hlo.refuse(
                    "expected a condition that is known when the program is read, got one that data decides"
                )
            if not going:
                return carried
            carried = self._block(body, carried, values, depth + 1)
        raise hlo.refuse(f"more than {_LONGEST} rounds are too many to unroll")

    def _branch(self, hlo: HloOp, values: Mapping[SSAValue, Operand], depth: int) -> list[Operand]:
        """A branch whose index is known; one out of range is the last."""
        chosen, count = hlo.number(0), len(hlo.op.regions)
        if chosen is None:
            raise hlo.refuse("expected a branch that is known when the program is read, got one that data decides")
        position = int(chosen) if hlo.name == "stablehlo.case" else 1 - int(chosen)
        region = hlo.op.regions[position if 0 <= position < count else count - 1]
        return self._block(region.block, [], values, depth + 1)


def _of_no_elements(hlo: HloOp, g: Emitter) -> list[Value]:
    """The results where all are known to be empty, such as those of windows that do not fit; else nothing."""
    types = [result.type for result in hlo.op.results]
    if not all(
        isinstance(type_, TensorType) and 0 in type_.get_shape() and min(type_.get_shape()) >= 0 for type_ in types
    ):
        return []
    return [g.number(0, hlo.dtype(number), hlo.shape(number)) for number in range(len(types))]
