"""What results of a module may be: a level of implementations that are taken without being asked for."""

from __future__ import annotations

from typing import Literal, get_args

from xdsl.dialects.builtin import StringAttr
from xdsl.ir import Operation

Numerics = Literal["strict", "finite", "fast"]
"""From what is always taken to what is taken on demand; who takes one takes those before it."""
LEVELS: tuple[Numerics, ...] = get_args(Numerics)
NUMERICS = "graph.numerics"
"""The attribute of a module; without it, it is strict."""


def numerics_of(op: Operation, given: Numerics = "strict") -> Numerics:
    """What the module that holds the op takes, or the level that is given, where that takes more. Raises ValueError."""
    while (parent := op.parent_op()) is not None:
        op = parent
    said = op.attributes.get(NUMERICS)
    if said is None:
        return given
    if not isinstance(said, StringAttr) or said.data not in LEVELS:
        raise ValueError(f"module attribute '{NUMERICS}': expected one of {', '.join(LEVELS)}, got {said}")
    return LEVELS[max(LEVELS.index(given), LEVELS.index(said.data))]
