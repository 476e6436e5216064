"""How ops run on operands of storage kinds: rules that an op has, derived from its scalar meaning and index maps or stated.

A rule says what kinds the results have, and names one of a few ways to compute them from the operands' parts; the ops over
parts are built elsewhere, by the rule and not by the op. An op without one takes dense operands: conversions stand before it.

What is absent is zero, of either sign. A pointwise op keeps a pattern where its scalar meaning is zero at zero: that is
evaluated, for constant operands at their value. With `fast` the other operands are taken to be finite.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from xdsl.ir import SSAValue
from xdsl.irdl import IRDLOperation

from fuse_opt.dialects import scalar as sc
from fuse_opt.dialects.interfaces.shapes import AnyTensor, dtype, is_static, shape
from fuse_opt.dialects.scalar.evaluate import Evaluator, NotKnown, known
from fuse_opt.dialects.scalar.simplify import simplified
from fuse_opt.dialects.types.encodings import with_encoding
from fuse_opt.dialects.types.index_expr import Index
from fuse_opt.dialects.types.storage_kinds import CsrAttr, RowSparseAttr, StorageKind, stored_as

Known = Callable[[SSAValue], sc.Scalar | None]
"""The number that a value has everywhere, as a constant."""


@dataclass(frozen=True)
class StoredRule:
    """A way to run an op on operands as they are stored."""

    results: tuple[AnyTensor, ...]
    """The types that results have."""

    @property
    def any_capacity(self) -> bool:
        """Whether results may have room for any number of entries: that of the types is enough, a smaller one may not be."""
        return False

    @property
    def may_be_dense(self) -> bool:
        """Whether it computes so much that dense operands may cost less than they do as they are stored."""
        return False

    @property
    def means_stored(self) -> bool:
        """Whether zeros that are stored are other than absent ones, so that dense operands would give other values."""
        return False


@dataclass(frozen=True)
class Pointwise(StoredRule):
    """The op itself on values: of one pattern, or of the union of two."""

    stored: tuple[int, ...]
    """The operands that are stored."""
    patterns: int
    """How many values these are."""

    @property
    def any_capacity(self) -> bool:
        return self.patterns > 1


@dataclass(frozen=True)
class RowUpdate(StoredRule):
    """The op itself on those rows of dense operands that a row-sparse one has; the results' other rows are the operands'."""

    kept: tuple[int, ...]
    """By result, the operand whose rows stay."""
    step: type[IRDLOperation] | None = None
    """What runs on the rows in the op's place, with its properties."""

    @property
    def means_stored(self) -> bool:
        return self.step is not None


@dataclass(frozen=True)
class Reduced(StoredRule):
    """A sum of the op's scalar meaning over axes of a csr matrix."""

    axes: tuple[int, ...]


@dataclass(frozen=True)
class Transposed(StoredRule):
    """The csr matrix of the other axis."""


@dataclass(frozen=True)
class RowSlice(StoredRule):
    """Neighbouring rows of a csr matrix, from `start` on."""

    start: int


@dataclass(frozen=True)
class RowsTaken(StoredRule):
    """Rows of a csr matrix by operand 1, a list of ids for a csr result, ids of any shape for a dense one."""

    wraps: bool

    @property
    def any_capacity(self) -> bool:
        return True


@dataclass(frozen=True)
class Product(StoredRule):
    """The product of a csr matrix and a dense one, or a vector."""

    stored: int
    """The operand that is the csr matrix."""
    transposed: tuple[bool, bool]
    """Whether the last two axes of each operand are swapped first."""

    @property
    def may_be_dense(self) -> bool:
        return True


@dataclass(frozen=True)
class SampledProduct(StoredRule):
    """`x @ y` of operands 1 and 2 at the places of operand 0."""

    @property
    def means_stored(self) -> bool:
        return True


@dataclass(frozen=True)
class StoredSoftmax(StoredRule):
    """The softmax of each row over what is stored of it."""

    @property
    def means_stored(self) -> bool:
        return True


@dataclass(frozen=True)
class GradientRows(StoredRule):
    """The rows of operand 0 summed by the ids of operand 1, which name rows of the result."""

    padding: int | None
    wraps: bool

    @property
    def any_capacity(self) -> bool:
        return True


@dataclass(frozen=True)
class Conversion(StoredRule):
    """The same elements, stored in another way."""

    @property
    def any_capacity(self) -> bool:
        return True

    @property
    def means_stored(self) -> bool:
        return stored_as(self.results[0]) is not None


def taken_rule(x: SSAValue, ids: SSAValue, type_: AnyTensor, axis: int, wraps: bool) -> StoredRule | None:
    """The rule of rows of a csr matrix that are named by ids, with a result of this type."""
    kind, extents = stored_as(x.type), tuple(type_.get_shape())
    if not isinstance(kind, CsrAttr) or axis != 0 or stored_as(ids.type) or not is_static(ids):
        return None
    if len(extents) != 2 or not all(shape(x)):
        return RowsTaken((with_encoding(type_, None),), wraps)
    return RowsTaken(
        (with_encoding(type_, kind.bounded(extents, extents[0] * min(shape(x)[1], kind.capacity.data))),), wraps
    )


def pointwise_rule(
    body: sc.Scalar, operands: Sequence[SSAValue], type_: AnyTensor, fast: bool, known_of: Known
) -> StoredRule | None:
    """The rule of a pointwise op with such a scalar meaning and a result of this type."""
    stored = [number for number, value in enumerate(operands) if stored_as(value.type) is not None]
    kinds = list(dict.fromkeys(operands[number] for number in stored))
    kind = _common_kind(kinds)
    if kind is None or any(shape(value) != tuple(type_.get_shape()) for value in kinds):
        return None
    found = at_zero(body, operands, stored, fast, known_of)
    if found is None:
        return None
    if found.function == "constant" and known(found) == 0:
        return Pointwise((with_encoding(type_, result_kind(kinds, type_)),), tuple(stored), len(kinds))
    if isinstance(kind, RowSparseAttr) and found.function == "operand" and len(kinds) == 1:
        kept = operands[int(found.value)]
        if shape(kept) == tuple(type_.get_shape()) and dtype(kept).attribute == type_.element_type:
            return RowUpdate((with_encoding(type_, None),), (int(found.value),))
    return None


def _common_kind(values: Sequence[SSAValue]) -> StorageKind | None:
    """The kind of one or two values, if it is the same but for the capacity."""
    kinds = [kind for value in values if (kind := stored_as(value.type)) is not None]
    return kinds[0] if 0 < len(kinds) < 3 and len({type(kind) for kind in kinds}) == 1 else None


def result_kind(values: Sequence[SSAValue], type_: AnyTensor) -> StorageKind:
    """That of one value; of two, one with room for the entries of both."""
    kinds = [kind for value in values if (kind := stored_as(value.type)) is not None]
    if len(kinds) == 1:
        return kinds[0]
    return kinds[0].bounded(type_.get_shape(), *(kind.capacity.data for kind in kinds))


def at_zero(
    body: sc.Scalar, operands: Sequence[SSAValue], zeros: Sequence[int], fast: bool, known_of: Known
) -> sc.Scalar | None:
    """A scalar meaning where some operands are zero: a constant or one of the operands; None for anything else."""
    if any(node.function == "index" for node in sc.topological(body)):
        return None  # what it gives depends on where an element is
    leaves: list[sc.Scalar] = []
    for number, value in enumerate(operands):
        element = dtype(value).compute
        found = sc.constant(0, element) if number in zeros else known_of(value)
        leaves.append(sc.operand(number, element) if found is None else found)
    if all(leaf.function == "constant" for leaf in leaves):
        try:
            return sc.constant(Evaluator(body, approximate=True)([known(leaf) for leaf in leaves]), body.dtype)
        except (NotKnown, ArithmeticError, ValueError):
            return None
    found = simplified(body, leaves, fast)
    return found if found is not None and found.function in ("constant", "operand") else None


def reduction_rule(
    body: sc.Scalar, x: SSAValue, type_: AnyTensor, source: Index, inner: Index, known_of: Known
) -> StoredRule | None:
    """The rule of a sum over axes, whose operand is read at `source`, with `inner` for those that are summed."""
    if not isinstance(stored_as(x.type), CsrAttr) or (found := at_zero(body, [x], [0], False, known_of)) is None:
        return None
    if found.function != "constant" or known(found) != 0:
        return None
    summed = {dim for expression in inner for dim in expression.dims()}
    axes = [axis for axis, n in enumerate(shape(x)) if n == 1 or source[axis].dims() & summed]
    return Reduced((with_encoding(type_, None),), tuple(axes))


def view_rule(x: SSAValue, type_: AnyTensor, source: Index, index: Index) -> StoredRule | None:
    """The rule of a view of a csr matrix that is read at `source` for each `index` of the result."""
    kind, extents = stored_as(x.type), tuple(type_.get_shape())
    if not isinstance(kind, CsrAttr) or len(extents) != 2 or 0 in extents:
        return None
    if source == (index[1], index[0]) and extents == shape(x)[::-1]:
        return Transposed((with_encoding(type_, kind),))
    offset = source[0] - index[0]
    if source[1] == index[1] and extents[1] == shape(x)[1] and offset.is_constant:
        return RowSlice((with_encoding(type_, kind.bounded(extents, kind.capacity.data)),), offset.constant)
    return None
