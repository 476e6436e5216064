"""Where values have their elements in memory, by the encodings of their types; and which encodings go through an op.

Index maps are about axes as a type writes them. Only addresses ask for memory: a value without an encoding lies in row-major
order, and what is asked here is then what row-major order says.
"""

from __future__ import annotations

from collections.abc import Sequence

from xdsl.dialects.builtin import NoneAttr
from xdsl.ir import SSAValue
from xdsl.utils.exceptions import VerifyException

from fuse_opt.dialects.interfaces.shapes import AnyTensor, is_static, shape, tensor
from fuse_opt.dialects.types.encodings import EncodingPart, OrderAttr, encoding_of, encoding_problem, with_encoding
from fuse_opt.dialects.types.index_expr import Index, IndexExpr, delinearize, linearize
from fuse_opt.dialects.types.storage_kinds import StorageKind
from fuse_opt.dialects.types.symbolic_shape import ShapeAttr

CURE = "convert it before by graph.to_layout"


def encoding(value: SSAValue) -> EncodingPart | None:
    """The encoding of a value; None for row-major order."""
    return encoding_of(value.type)


def any_encoded(values: Sequence[SSAValue]) -> bool:
    """Whether one of the values has an encoding written on its type that says more than its extents."""
    return any(not isinstance(tensor(value).encoding, NoneAttr | ShapeAttr) for value in values)


def any_stored(values: Sequence[SSAValue]) -> bool:
    """Whether one of the values is not stored with all its elements."""
    return any(isinstance(tensor(value).encoding, StorageKind) for value in values)


def memory_extents(value: SSAValue) -> tuple[int, ...]:
    """The extents of a value's memory, outermost first."""
    found = encoding(value)
    return shape(value) if found is None else found.memory_extents(shape(value))


def element_index(value: SSAValue, place: Index) -> Index:
    """Which element is at a place of a value's memory, by its extents."""
    found = encoding(value)
    return place if found is None else found.from_memory(place, shape(value))


def address(value: SSAValue, index: Index) -> IndexExpr:
    """Where an element of a value is in memory, counted in elements."""
    found, extents = encoding(value), shape(value)
    if found is None:
        return linearize(index, extents)
    return linearize(found.to_memory(index, extents), found.memory_extents(extents))


def element_at(value: SSAValue, position: IndexExpr) -> Index:
    """The element of a value that is at a position of its memory, counted in elements."""
    found, extents = encoding(value), shape(value)
    if found is None:
        return delinearize(position, extents)
    return found.from_memory(delinearize(position, found.memory_extents(extents)), extents)


def check_encoding(value: SSAValue) -> None:
    """Raises VerifyException for a tensor whose encoding is unknown, or does not fit its extents."""
    if (problem := encoding_problem(tensor(value))) is not None:
        raise VerifyException(problem)


def refuse_encodings(values: Sequence[SSAValue]) -> None:
    """Raises VerifyException where a value has an encoding."""
    for value in values:
        if encoding(value) is not None:
            raise VerifyException(f"takes operands and gives results in row-major order, got '{value.type}'; {CURE}")


def check_stored(
    results: Sequence[SSAValue], operands: Sequence[SSAValue], expected: Sequence[AnyTensor], any_capacity: bool
) -> None:
    """
    Raises VerifyException where a result is stored in another way than is expected by how operands are, or is not dense in
    row-major order, and where a dense operand is not.
    """
    for value in (*operands, *results):
        if (found := encoding(value)) is not None and not isinstance(found, StorageKind):
            raise VerifyException(
                f"takes and gives dense values in row-major order beside those of storage kinds, got '{value.type}'; {CURE}"
            )
    for number, (value, type_) in enumerate(zip(results, expected, strict=True)):
        found, wanted = tensor(value).encoding, type_.encoding
        if not isinstance(found, StorageKind) or found == wanted:
            continue
        if isinstance(wanted, StorageKind) and wanted.storage_kind == found.storage_kind:
            if any_capacity:
                continue
            cure = f"with a capacity of {wanted.capacity.data}"
        else:
            cure = "and convert it by graph.to_storage"
        raise VerifyException(
            f"result {number}: expected '{type_}' by how its operands are stored, got '{value.type}'; write that {cure}"
        )


def shared_encoding(operands: Sequence[SSAValue], extents: Sequence[int]) -> EncodingPart | None:
    """
    The encoding of a pointwise result of these extents: that of the operands that have as many elements, which must agree;
    others are read wherever they lie. Raises VerifyException.
    """
    whole = [value for value in operands if shape(value) == tuple(extents) and has_order(shape(value))]
    found = dict.fromkeys(encoding(value) for value in whole)
    if len(found) > 1:
        types = ", ".join(f"'{value.type}'" for value in whole)
        raise VerifyException(f"operands {types} lie in memory in different orders; convert one by graph.to_layout")
    if whole:
        return next(iter(found))
    alike = (e for value in operands if len(shape(value)) == len(extents) and (e := encoding(value)) is not None)
    return next((e for e in alike if e.problem(extents) is None), None)


def has_order(extents: Sequence[int]) -> bool:
    """Whether more than one axis has several elements, so that an order of them means something."""
    return sum(n != 1 for n in extents) > 1


def inherited_order(value: SSAValue, source: Index, index: Index) -> EncodingPart | None:
    """
    The order of a result that is made from a value's element at `source` for each `index`: its axes lie as they do in the
    value, padding included. None where that is row-major, or no order.
    """
    if not is_static(value):
        return None
    factors = address(value, tuple(expression.unlimited() for expression in source)).coefficients()
    if factors is None:
        return None
    steps: list[int] = []
    for expression in index:
        dims = list(expression.dims())
        steps.append(abs(factors.get(dims[0], 0)) if dims else -1)
    if 0 in steps or len(set(n for n in steps if n > 0)) < sum(n > 0 for n in steps):
        return None
    return order_by_steps(steps)


def order_by_steps(steps: Sequence[int]) -> OrderAttr | None:
    """Axes from the longest to the shortest step; one of a single element (-1) stays beside the axis before it."""
    moving = sorted((axis for axis, n in enumerate(steps) if n >= 0), key=lambda axis: -steps[axis])
    order = list(moving)
    for axis, n in enumerate(steps):
        if n < 0:
            order.insert(order.index(axis - 1) + 1 if axis else 0, axis)
    return None if order == sorted(order) else OrderAttr.of(order)


def encoded(type_: AnyTensor, found: EncodingPart | None) -> AnyTensor:
    """The type with an encoding, where it may have that."""
    return with_encoding(type_, None if found is None or found.problem(type_.get_shape()) is not None else found)
