"""The text of the `fo_*` functions that printed programs call: math from `c_math.h`, narrow floats from `c_support.h`."""

from __future__ import annotations

import re
from collections.abc import Iterable
from functools import cache
from pathlib import Path

from .c_math import C_MATH_HEADER, c_math_for, c_math_names

_FUNCTION = re.compile(r"^/\* (fo_\w+):.*?^}\n", re.MULTILINE | re.DOTALL)
_CALL = re.compile(r"\bfo_\w+(?=\()")
_BUILTIN = re.compile(r"\b__builtin_(?!inf|nan)(\w+)(?=\()")
_PREAMBLE = C_MATH_HEADER.partition("/* ---- functions ---- */\n")[0]

_CUDA_PREAMBLE = """#define FO_FN [[maybe_unused]] static __device__ __forceinline__
typedef signed char fo_i8;
typedef short fo_i16;
typedef int fo_i32;
typedef long long fo_i64;
typedef unsigned char fo_u8;
typedef unsigned int fo_u32;
typedef unsigned long long fo_u64;

"""


@cache
def _own_functions() -> dict[str, str]:
    text = (Path(__file__).parent / "c_support.h").read_text(encoding="utf-8")
    return {match[1]: match[0] for match in _FUNCTION.finditer(text)}


@cache
def helper_names() -> frozenset[str]:
    """Every function that programs may call."""
    return frozenset(c_math_names()) | frozenset(_own_functions())


def called_helpers(text: str) -> list[str]:
    """The known helpers that a piece of C calls, in order and possibly several times."""
    return [name for name in _CALL.findall(text) if name in helper_names()]


def c_helpers(names: Iterable[str]) -> str:
    """Definitions of these functions and all that they call; `""` for none.

    Raises KeyError for a name that nothing defines."""
    own = _own_functions()
    pending = set(names)
    needed: set[str] = set()
    while pending & own.keys() - needed:
        needed |= pending & own.keys()
        pending.update(*(called_helpers(own[name]) for name in sorted(needed)))
    texts = [c_math_for(sorted(pending - needed)) or (_PREAMBLE if needed else "")]
    return "\n".join([*filter(None, texts), *(text for name, text in own.items() if name in needed)])


def cuda_helpers(names: Iterable[str]) -> str:
    """The same for CUDA: these are scalar C without state, so a preamble and CUDA's own names for builtins suffice."""
    text = c_helpers(names)
    if not text:
        return ""
    return _CUDA_PREAMBLE + _BUILTIN.sub(r"\1", text.removeprefix(_PREAMBLE))
