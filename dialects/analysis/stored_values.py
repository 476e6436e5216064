"""Arguments and results of functions that are parts of values of storage kinds.

`lower-storage` makes them. A part says what it is one of:
```mlir
func.func @f(%a_indptr: tensor<5xi32> {graph.part = ["indptr", tensor<4x8xf32, #graph.csr<capacity = 9>>]}, ...) -> ...
```
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import cast

from xdsl.dialects.builtin import ArrayAttr, StringAttr, TensorType
from xdsl.ir import Attribute

from fuse_opt.dialects.types.storage_kinds import PARTS, CsrAttr, part_types, stored_as

PART = "graph.part"
"""The attribute of an argument or a result that is a part of a value of a storage kind."""

FALLBACK = "graph.fallback"
"""The attribute of an op that makes a value dense because the op behind it has no way to run on what is stored."""


def part_attribute(type_: Attribute, number: int) -> ArrayAttr[Attribute]:
    """What the part with a number of a value of this type says."""
    return ArrayAttr([StringAttr(PARTS[number]), type_])


def whole_types(types: Sequence[Attribute], marks: Sequence[Mapping[str, Attribute]]) -> list[tuple[Attribute, int]]:
    """
    The types of values, and of how many of these arguments (or results), with attributes, each is made. Raises ValueError
    where parts are not beside each other, or not of the types that such parts have.
    """
    found: list[tuple[Attribute, int]] = []
    number = 0
    while number < len(types):
        whole, count = types[number], 1
        if (mark := marks[number].get(PART)) is not None:
            whole = _whole_type(mark)
            count = len(PARTS)
            _check_parts(whole, types[number : number + count], [m.get(PART) for m in marks[number : number + count]])
        found.append((whole, count))
        number += count
    return found


def columns_of(marks: Mapping[str, Attribute]) -> int | None:
    """What the elements of an argument with attributes are below where it has the columns of a csr matrix; None for others."""
    if (mark := marks.get(PART)) is None:
        return None
    whole = _whole_type(mark)
    if not isinstance(stored_as(whole), CsrAttr) or mark != part_attribute(whole, PARTS.index("indices")):
        return None
    return cast("TensorType[Attribute]", whole).get_shape()[1]


def _whole_type(mark: Attribute) -> Attribute:
    given = cast("ArrayAttr[Attribute]", mark).data if isinstance(mark, ArrayAttr) else ()
    if len(given) != 2 or stored_as(given[1]) is None:
        raise ValueError(
            f"attribute '{PART}': expected the name of a part and a type such as in [\"indptr\", "
            f"tensor<4x8xf32, #graph.csr<capacity = 9>>], got {mark}"
        )
    return given[1]


def _check_parts(whole: Attribute, types: Sequence[Attribute], marks: Sequence[Attribute | None]) -> None:
    wanted = [part_attribute(whole, number) for number in range(len(PARTS))]
    if list(marks) != wanted or list(types) != list(part_types(whole)):
        names = ", ".join(map(str, part_types(whole)))
        raise ValueError(
            f"attribute '{PART}': expected {', '.join(PARTS)} of '{whole}' beside each other, of types {names}"
        )
