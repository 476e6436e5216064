"""The text of the `fo_*` functions that printed programs call: math from `math.h` and `fast_math.h` in `headers`, the rest from
`support.h`; CUDA has some of its own, in `cuda_math.h`."""

from __future__ import annotations

import re
from collections.abc import Iterable
from functools import cache

from fuse_opt.lowering.c.headers import header
from fuse_opt.lowering.c.headers.math_library import C_MATH_HEADER, c_math_for, c_math_names
from fuse_opt.lowering.c.headers.product_tiles import tile_text

_FUNCTION = re.compile(r"^/\* (fo_\w+):.*?^}\n", re.MULTILINE | re.DOTALL)
_CALL = re.compile(r"\bfo_\w+(?=\()")
_BUILTIN = re.compile(r"\b__builtin_(?!inf|nan)(\w+)(?=\()")
_PREAMBLE = C_MATH_HEADER.partition("/* ---- functions ---- */\n")[0]

_CUDA_PREAMBLE = """#define FO_FN [[maybe_unused]] static __device__ __forceinline__
#define FO_KEPT const
typedef signed char fo_i8;
typedef short fo_i16;
typedef int fo_i32;
typedef long long fo_i64;
typedef unsigned char fo_u8;
typedef unsigned short fo_u16;
typedef unsigned int fo_u32;
typedef unsigned long long fo_u64;

"""
_VECTOR = """// Elements that one load or store moves.
template <class T, int N> struct __align__(sizeof(T) * N) fo_vector { T v[N]; };
"""


_FILES = ("support.h", "fast_math.h")
_TRANSPOSED = {
    **dict.fromkeys(("i1", "ui8", "f8E4M3FN", "f8E5M2"), ("unsigned char", 8)),
    "i8": ("signed char", 8),
    "i16": ("short", 16),
    **dict.fromkeys(("ui16", "f16", "bf16"), ("unsigned short", 16)),
    "i32": ("int", 32),
    "ui32": ("unsigned int", 32),
    "f32": ("float", 32),
    "i64": ("long", 64),
    "ui64": ("unsigned long", 64),
    "f64": ("double", 64),
}
"""By element type: the C type of a buffer's element, and its bits."""
_TRANSPOSE = """\
/* fo_transpose_{name}: the square from from[at] on, whose lines lie `step` apart, with its lines as columns of lines
   `to_step` apart from to[to_at] on. */
FO_FN void fo_transpose_{name}(const {c} *from, long at, long step, {c} *to, long to_at, long to_step) {{
  fo_turn_u{bits}(from + at, step, to + to_at, to_step);
}}
"""
_OFFSET = """\
/* fo_transpose_offset_{name}: how many elements from[at] lies behind the start of its cache line of 64 bytes. */
FO_FN long fo_transpose_offset_{name}(const {c} *from, long at) {{
  return (long)((__UINTPTR_TYPE__)(from + at) % 64 / sizeof *from);
}}
"""
_STREAM = """\
/* fo_stream_{name}: `count` elements from from[at] on become those from to[to_at] on, past the caches. */
FO_FN void fo_stream_{name}(const {c} *from, long at, {c} *to, long to_at, long count) {{
  fo_stream_bytes((const char *)(from + at), (char *)(to + to_at), count * (long)sizeof *from);
}}
"""
_STREAM_BLOCK = """\
/* fo_stream_block_{name}: the same; a whole block, of `size` elements, is lines of 64 bytes. */
FO_FN void fo_stream_block_{name}(const {c} *from, long at, {c} *to, long to_at, long count, long size) {{
  fo_stream_block_bytes(
      (const char *)(from + at), (char *)(to + to_at), count * (long)sizeof *from, size * (long)sizeof *from);
}}
"""
_PREFETCH = """\
/* fo_prefetch_{name}: asks for the cache lines of `count` elements from from[at] on, which need not be there. */
FO_FN void fo_prefetch_{name}(const {c} *from, long at, long count) {{
  for (long i = 0; i < count; i += 64 / (long)sizeof *from) __builtin_prefetch(from + at + i, 0, 2);
}}
"""
_LINE_OFFSET = """\
/* fo_line_offset_{name}: how many elements to[at] lies behind the start of its cache line of 64 bytes. */
FO_FN long fo_line_offset_{name}(const {c} *to, long at) {{
  return (long)((__UINTPTR_TYPE__)(to + at) % 64 / sizeof *to);
}}
"""


@cache
def _own_functions() -> dict[str, str]:
    text = "".join(header(name) for name in _FILES)
    found = {match[1]: match[0] for match in _FUNCTION.finditer(text)}
    for name, (kind, bits) in _TRANSPOSED.items():
        found[f"fo_transpose_{name}"] = _TRANSPOSE.format(name=name, c=kind, bits=bits)
        found[f"fo_prefetch_{name}"] = _PREFETCH.format(name=name, c=kind)
        found[f"fo_transpose_offset_{name}"] = _OFFSET.format(name=name, c=kind)
        for start, text in (("stream", _STREAM), ("stream_block", _STREAM_BLOCK), ("line_offset", _LINE_OFFSET)):
            found[f"fo_{start}_{name}"] = text.format(name=name, c=kind)
    return found


@cache
def _cuda_functions() -> dict[str, str]:
    """Those that CUDA has of its own, with those of C of the same names."""
    text = header("cuda_math.h")
    return {match[1]: match[0] for match in _FUNCTION.finditer(text)}


@cache
def helper_names() -> frozenset[str]:
    """Every function that programs may call, but for the tiles of products, of which there are too many to list."""
    return frozenset(c_math_names()) | frozenset(_own_functions()) | frozenset(_cuda_functions())


def is_helper(name: str) -> bool:
    """Whether programs may call a function of that name."""
    return name in helper_names() or tile_text(name) is not None


def called_helpers(text: str) -> list[str]:
    """The known helpers that a piece of C calls, in order and possibly several times."""
    return [name for name in _CALL.findall(text) if is_helper(name)]


def c_helpers(names: Iterable[str]) -> str:
    """Definitions of these functions and all that they call; `""` for none.

    Raises KeyError for a name that nothing defines."""
    pending = set(names)
    tiles = {name: text for name in sorted(pending) if (text := tile_text(name)) is not None}
    own = {**_own_functions(), **tiles}
    needed: set[str] = set()
    while pending & own.keys() - needed:
        needed |= pending & own.keys()
        pending.update(*(called_helpers(own[name]) for name in sorted(needed)))
    texts = [c_math_for(sorted(pending - needed)) or (_PREAMBLE if needed else "")]
    return "\n".join([*filter(None, texts), *(text for name, text in own.items() if name in needed)])


def cuda_helpers(names: Iterable[str]) -> str:
    """The same for CUDA: these are scalar C without state, so a preamble and CUDA's own names for builtins suffice."""
    names, own = set(names), _cuda_functions()
    vectors = _VECTOR if "fo_vector" in names else ""
    called = {*names & own.keys(), *(each for name in names & own.keys() for each in called_helpers(own[name]))}
    fast = "\n".join(text for name, text in own.items() if name in called)
    text = _BUILTIN.sub(r"\1", c_helpers(names - {"fo_vector"} - own.keys()).removeprefix(_PREAMBLE))
    if not text and not fast:
        return vectors
    before = f"{vectors}\n" if vectors else ""
    return before + _CUDA_PREAMBLE + "\n".join(filter(None, (fast, text)))
