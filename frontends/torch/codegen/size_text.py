"""Sizes as Python text, over the variables that hold the values of symbols."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from fuse_opt.dialects.types.polynomial import Atom
from fuse_opt.dialects.types.size import Extent, Extreme, Floor, Size
from fuse_opt.dialects.types.symbol import Symbol


def size_text(extents: Sequence[Extent] | Extent, words: Mapping[str, str]) -> str:
    """A number, or a tuple of them; `words` are the texts of symbols, by name. Raises KeyError for a symbol without one."""
    if isinstance(extents, int):
        return repr(extents)
    if not isinstance(extents, Size):
        return f"({', '.join(size_text(each, words) for each in extents)}{',' if len(extents) == 1 else ''})"
    terms: list[str] = []
    for monomial, coefficient in extents.terms.items():
        factors = [_atom(atom, words) for atom in monomial]
        terms.append("*".join([str(coefficient), *factors] if coefficient != 1 or not factors else factors))
    return terms[0] if len(terms) == 1 else f"({' + '.join(terms)})"


def _atom(atom: Atom, words: Mapping[str, str]) -> str:
    match atom:
        case Symbol():
            word = words[atom.name]
            return word if atom.multiple == 1 else f"({word} // {atom.multiple})"
        case Floor():
            return f"({size_text(atom.numerator, words)} // {atom.divisor})"
        case Extreme():
            return f"{'max' if atom.is_largest else 'min'}({size_text(atom.a, words)}, {size_text(atom.b, words)})"
        case _:
            raise KeyError(atom.text)
