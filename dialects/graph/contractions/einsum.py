"""Einstein summation, defined by decomposition: sums, matrix products and movement between them.

A label is a letter of the equation, or a number below 0 for an axis that the ellipsis stands for, counted from its end.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from math import prod
from typing import ClassVar

from xdsl.dialects.builtin import DYNAMIC_INDEX, StringAttr, TensorType
from xdsl.ir import SSAValue
from xdsl.irdl import irdl_op_definition, prop_def, result_def, var_operand_def
from xdsl.utils.exceptions import VerifyException

from fuse_opt.dialects.graph.contractions.gemm_linear import NumberProduct
from fuse_opt.dialects.graph.contractions.matmul import MatmulOp
from fuse_opt.dialects.graph.elementwise.arithmetic import MultiplyOp
from fuse_opt.dialects.graph.movement.pad_roll_tile import DiagonalOp
from fuse_opt.dialects.graph.movement.views import PermuteDimsOp, ReshapeOp
from fuse_opt.dialects.graph.reductions.composite import narrowed, reshaped, total_of, widened
from fuse_opt.dialects.interfaces.op import GraphBuilder
from fuse_opt.dialects.interfaces.properties import bool_value, int_array, int_value
from fuse_opt.dialects.interfaces.shapes import AnyTensor, shape, shape_text, tensor, tensor_type

Label = str | int


@dataclass(frozen=True)
class Equation:
    """What an equation says about operands of given ranks: the labels of their axes and of the result's."""

    operands: tuple[tuple[Label, ...], ...]
    result: tuple[Label, ...]


def parse_equation(text: str, shapes: Sequence[tuple[int, ...]]) -> Equation:
    """The labels; raises VerifyException when the equation is none, or not one for operands of these shapes."""
    inputs, arrow, output = text.replace(" ", "").partition("->")
    terms = inputs.split(",")
    if len(terms) != len(shapes):
        raise VerifyException(
            f'equation "{text}": expected {len(shapes)} terms, one for each operand, got {len(terms)}'
        )
    letters = [term.replace("...", "", 1) for term in (*terms, output)]
    if any(not (c.isascii() and c.isalpha()) for term in letters for c in term):
        raise VerifyException(f'equation "{text}": expected letters, commas, "->" and "..." at most once in each term')
    hidden = [_hidden(text, term, extents) for term, extents in zip(terms, shapes, strict=True)]
    most = max(hidden, default=0)
    operands = tuple(_labels(term, count) for term, count in zip(terms, hidden, strict=True))
    if arrow:
        _check_output(text, letters[-1], set("".join(letters[:-1])))
        return Equation(operands, _labels(output, most))
    counts = Counter("".join(letters))
    once = sorted(letter for letter, count in counts.items() if count == 1)
    return Equation(operands, (*range(-most, 0), *once))


def _hidden(text: str, term: str, extents: Sequence[int]) -> int:
    """How many axes the ellipsis of a term stands for."""
    named = len(term.replace("...", ""))
    if named > len(extents) or (named < len(extents) and "..." not in term):
        raise VerifyException(f'equation "{text}": term "{term}" does not name the axes of {shape_text(extents)}')
    return len(extents) - named


def _labels(term: str, hidden: int) -> tuple[Label, ...]:
    before, dots, behind = term.partition("...")
    return (*before, *(range(-hidden, 0) if dots else ()), *behind)


def _check_output(text: str, output: str, known: set[str]) -> None:
    for letter in output:
        if letter not in known or output.count(letter) > 1:
            raise VerifyException(
                f'equation "{text}": expected letters of the operands, each once, behind "->", got \'{letter}\''
            )


@dataclass(frozen=True)
class Labelled:
    """A value and the labels of its axes, each once."""

    value: SSAValue
    labels: tuple[Label, ...]

    def ordered(self, builder: GraphBuilder, labels: Sequence[Label]) -> SSAValue:
        """The value with its axes in another order."""
        if tuple(labels) == self.labels:
            return self.value
        return builder(PermuteDimsOp, self.value, axes=int_array([self.labels.index(label) for label in labels]))

    def summed(self, builder: GraphBuilder, kept: Sequence[Label]) -> Labelled:
        """The sum over the axes whose labels are not kept."""
        axes = [axis for axis, label in enumerate(self.labels) if label not in kept]
        return Labelled(total_of(builder, self.value, axes), tuple(label for label in self.labels if label in kept))


@irdl_op_definition
class EinsumOp(NumberProduct):
    """Einstein summation: products of elements of one or more operands, summed over the labels not in the result.

    `equation` is NumPy's and torch's: terms of letters, one for each operand, and behind "->" the result's; without it
    the letters that occur once, in alphabetical order, behind the ellipsis. A letter twice in a term takes the diagonal.
    "..." stands for axes that broadcast, and that are summed when the result's term has none; an extent of 1 broadcasts
    for letters, too. Operands are joined from left to right, two at a time, by matrix products; integers wrap. Narrow
    floats are computed in f32 and rounded once, but with two operands rounded behind each step.
    """

    name = "graph.einsum"
    SLACK: ClassVar[float] = 64.0
    operands_ = var_operand_def(TensorType)
    result = result_def(TensorType)
    equation = prop_def(StringAttr)

    def _parsed(self) -> Equation:
        return parse_equation(self.equation.data, [shape(value) for value in self._operands])

    def _extents(self, equation: Equation) -> dict[Label, int]:
        """The extent of each label; raises VerifyException when operands differ in it."""
        found: dict[Label, int] = {}
        for value, labels in zip(self._operands, equation.operands, strict=True):
            for label, extent in zip(labels, shape(value), strict=True):
                known = found.setdefault(label, extent)
                if known == 1 or (known == DYNAMIC_INDEX and extent != 1):
                    found[label] = extent
                elif extent not in (1, DYNAMIC_INDEX, known):
                    name = f"'{label}'" if isinstance(label, str) else "..."
                    raise VerifyException(
                        f'equation "{self.equation.data}": {name} has extents {known} and {extent}; make them equal or 1'
                    )
        return found

    def infer_types(self) -> Sequence[AnyTensor]:
        if not self._operands:
            raise VerifyException("expected at least one operand")
        self.check_numbers()
        equation = self._parsed()
        extents = self._extents(equation)
        return (tensor_type(tensor(self._operands[0]).element_type, [extents[label] for label in equation.result]),)

    def decompose(self, builder: GraphBuilder) -> Sequence[SSAValue]:
        equation = self._parsed()
        extents = self._extents(equation)
        values = self._operands if len(self._operands) == 2 else [widened(builder, value) for value in self._operands]
        terms = [
            _plain(builder, value, labels, extents) for value, labels in zip(values, equation.operands, strict=True)
        ]
        joined = terms[0].summed(builder, [*equation.result, *_labels_of(terms[1:])])
        for place, term in enumerate(terms[1:], start=1):
            wanted = [*equation.result, *_labels_of(terms[place + 1 :])]
            term = term.summed(builder, [*wanted, *joined.labels])
            joined = _product(builder, joined.summed(builder, [*wanted, *term.labels]), term, wanted, extents)
        result = joined.ordered(builder, equation.result)
        return (narrowed(builder, result, self._operands[0]),)


def _labels_of(terms: Sequence[Labelled]) -> list[Label]:
    return [label for term in terms for label in term.labels]


def _plain(builder: GraphBuilder, value: SSAValue, labels: Sequence[Label], extents: dict[Label, int]) -> Labelled:
    """An operand without the axes that broadcast, and with the diagonal for each label named twice."""
    kept = [axis for axis, label in enumerate(labels) if shape(value)[axis] == extents[label] or extents[label] == 1]
    if len(kept) < len(labels):
        value = builder(ReshapeOp, value, shape=int_array([shape(value)[axis] for axis in kept]))
    left = [labels[axis] for axis in kept]
    for label in dict.fromkeys(left):
        while left.count(label) > 1:
            first = left.index(label)
            second = left.index(label, first + 1)
            value = builder(DiagonalOp, value, axis1=int_value(first), axis2=int_value(second))
            left = [other for axis, other in enumerate(left) if axis not in (first, second)] + [label]
    return Labelled(value, tuple(left))


def _product(
    builder: GraphBuilder, a: Labelled, b: Labelled, wanted: Sequence[Label], extents: dict[Label, int]
) -> Labelled:
    """The product of two, summed over the labels that both have and nobody wants."""
    batch = [label for label in a.labels if label in b.labels and label in wanted]
    inner = [label for label in a.labels if label in b.labels and label not in wanted]
    rows = [label for label in a.labels if label not in b.labels]
    columns = [label for label in b.labels if label not in a.labels]
    sizes = [prod(extents[label] for label in group) for group in (rows, inner, columns)]
    leading, labels = [extents[label] for label in batch], (*batch, *rows, *columns)
    if not inner:
        left = reshaped(builder, a.ordered(builder, [*batch, *rows]), [*leading, sizes[0], 1])
        right = reshaped(builder, b.ordered(builder, [*batch, *columns]), [*leading, 1, sizes[2]])
        product = builder(MultiplyOp, left, right)
    else:
        flip_a = a.labels == (*batch, *inner, *rows) and bool(rows)
        flip_b = b.labels == (*batch, *columns, *inner) and bool(columns)
        left = a.ordered(builder, [*batch, *inner, *rows] if flip_a else [*batch, *rows, *inner])
        right = b.ordered(builder, [*batch, *columns, *inner] if flip_b else [*batch, *inner, *columns])
        left = reshaped(builder, left, [*leading, *(sizes[1::-1] if flip_a else sizes[:2])])
        right = reshaped(builder, right, [*leading, *(sizes[:0:-1] if flip_b else sizes[1:])])
        flips = {"transpose_lhs": flip_a, "transpose_rhs": flip_b}
        product = builder(MatmulOp, left, right, **{name: bool_value(True) for name, flip in flips.items() if flip})
    return Labelled(reshaped(builder, product, [extents[label] for label in labels]), labels)
