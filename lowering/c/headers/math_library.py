"""The C math functions of generated programs (`math.h`), whole or cut down to what a program calls."""

from __future__ import annotations

import re
from collections.abc import Iterable
from functools import cache

from fuse_opt.lowering.c.headers import header

C_MATH_HEADER: str = header("math.h")
"""All of it, ready to be put at the top of a C file."""

_MARK = "/* ---- functions ---- */\n"
# A function is its comment and its definition, which ends at the first brace in column 0.
_FUNCTION = re.compile(r"^/\* (fo_\w+):.*?^}\n", re.MULTILINE | re.DOTALL)
_NAME = re.compile(r"\bfo_\w+(?=\()")


@cache
def _parts() -> tuple[str, dict[str, str], dict[str, tuple[str, ...]]]:
    """The preamble, each function's text in the order of the header, and which functions it calls."""
    preamble, _, rest = C_MATH_HEADER.partition(_MARK)
    texts = {match[1]: match[0] for match in _FUNCTION.finditer(rest)}
    calls = {
        name: tuple(sorted({callee for callee in _NAME.findall(text) if callee in texts} - {name}))
        for name, text in texts.items()
    }
    return preamble, texts, calls


def c_math_names() -> tuple[str, ...]:
    """Every function of the header, in its order; a function stands behind all it calls."""
    return tuple(_parts()[1])


def c_math_for(names: Iterable[str]) -> str:
    """The preamble and just these functions with all they call, in the order of the header; `""` for no names.

    Raises KeyError for a name the header does not define."""
    preamble, texts, calls = _parts()
    needed: set[str] = set()
    pending = list(names)
    while pending:
        name = pending.pop()
        if name not in texts:
            raise KeyError(f"math.h defines no function {name!r}")
        if name not in needed:
            needed.add(name)
            pending.extend(calls[name])
    if not needed:
        return ""
    return preamble + "\n".join(text for name, text in texts.items() if name in needed)
