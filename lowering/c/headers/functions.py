"""The `fo_*` functions that printed programs call, cut down to what a program needs: those of C from the files of `FAMILIES`;
CUDA has some of its own, in the files of `CUDA_FAMILIES`."""

from __future__ import annotations

import re
from collections.abc import Iterable
from functools import cache

from fuse_opt.lowering.c.headers import header
from fuse_opt.lowering.c.headers.lane_tiles import lanes_text
from fuse_opt.lowering.c.headers.plane_sums import plane_sums_text
from fuse_opt.lowering.c.headers.position_dots import position_dots_text
from fuse_opt.lowering.c.headers.product_dots import dot_text
from fuse_opt.lowering.c.headers.product_groups import group_text
from fuse_opt.lowering.c.headers.product_tiles import tile_text
from fuse_opt.lowering.c.headers.row_sums import streamed_text
from fuse_opt.lowering.c.headers.templates import functions_in

MATH: tuple[str, ...] = (
    "arithmetic.h",
    "exp_log.h",
    "hyperbolic.h",
    "trigonometric.h",
    "error_gamma.h",
    "integer.h",
    "shared_exponentials.h",
)
"""The files of functions of scalars in types that C has, a function behind all it calls."""
FAMILIES: tuple[str, ...] = (*MATH, "narrow_floats.h", "memory.h", "product_panels.h", "matrix_tiles.h", "fast_math.h")
"""All files of functions of C, in the order in which programs define them."""
CUDA_FAMILIES = ("cuda_math.h", "cuda_matrices.h", "cuda_groups.h")
"""The files of functions that CUDA has of its own."""

_CALL = re.compile(r"\bfo_\w+(?=\()")
_BUILTIN = re.compile(r"\b__builtin_(?!inf|nan|constant_p)(\w+)(?=\()")

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
_ONCE = """// Loads and stores of what is not wanted again: caches give it up first.
template <int N> struct fo_word;
template <> struct fo_word<1> { typedef signed char type; };
template <> struct fo_word<2> { typedef short type; };
template <> struct fo_word<4> { typedef int type; };
template <> struct fo_word<8> { typedef int2 type; };
template <> struct fo_word<16> { typedef int4 type; };
template <class T> [[maybe_unused]] static __device__ __forceinline__ T fo_load_once(const T *from) {
  typename fo_word<sizeof(T)>::type word = __ldcs((const typename fo_word<sizeof(T)>::type *)from);
  T value;
  memcpy(&value, &word, sizeof(T));
  return value;
}
template <class T, class V> [[maybe_unused]] static __device__ __forceinline__ void fo_store_once(T *to, V stored) {
  T value = stored;
  typename fo_word<sizeof(T)>::type word;
  memcpy(&word, &value, sizeof(T));
  __stcs((typename fo_word<sizeof(T)>::type *)to, word);
}
"""
_ONCE_NAMES = frozenset(("fo_load_once", "fo_store_once"))


def functions_of(files: Iterable[str]) -> dict[str, str]:
    """The functions that these files define, each with its comment. Raises ValueError for one that is defined twice."""
    found: dict[str, str] = {}
    for name, text in (function for file in files for function in functions_in(header(file))):
        if name in found:
            raise ValueError(f"{name} is defined twice")
        found[name] = text
    return found


@cache
def _c_functions() -> dict[str, str]:
    return functions_of(FAMILIES)


@cache
def _calls(name: str) -> frozenset[str]:
    """Which functions of C one of them calls."""
    return frozenset(
        called for called in _CALL.findall(_c_functions()[name]) if called in _c_functions() and called != name
    )


@cache
def _cuda_functions() -> dict[str, str]:
    """Those that CUDA has of its own, with those of C of the same names."""
    return functions_of(CUDA_FAMILIES)


@cache
def helper_names() -> frozenset[str]:
    """Every function that programs may call, but for the tiles of products, of which there are too many to list."""
    return frozenset(_c_functions()) | frozenset(_cuda_functions())


def is_helper(name: str) -> bool:
    """Whether programs may call a function of that name."""
    return name in helper_names() or _product_text(name) is not None


def is_helper_target(callee: str, position: int) -> bool:
    """Whether a function may write to the memory of an argument: as its definition says, and if there is none, to any."""
    targets = _targets(callee)
    return targets is None or position in targets


@cache
def _targets(name: str) -> frozenset[int] | None:
    """The parameters that point to what is not constant; None where no helper has that name."""
    texts = [text for text in (_product_text(name), _c_functions().get(name), _cuda_functions().get(name)) if text]
    if not texts:
        return None
    return frozenset(
        number
        for text in texts
        for number, parameter in enumerate(_parameters(name, text))
        if ("*" in parameter or "[" in parameter) and "const" not in parameter.split("*")[0].split()
    )


def _parameters(name: str, text: str) -> list[str]:
    found = re.search(rf"\b{name}\(([^()]*)\)\s*\{{", text)
    if found is None:
        raise ValueError(f"{name}: no definition with parameters in its text")
    return found[1].split(",")


def _product_text(name: str) -> str | None:
    """The tile of a product of that name."""
    sums = lanes_text(name) or plane_sums_text(name) or position_dots_text(name)
    return sums or tile_text(name) or dot_text(name) or group_text(name) or streamed_text(name)


def called_helpers(text: str) -> list[str]:
    """The known helpers that a piece of C calls, in order and possibly several times."""
    return [name for name in _CALL.findall(text) if is_helper(name)]


def c_helpers(names: Iterable[str]) -> str:
    """A preamble and the definitions of these functions and of all that they call, in the order of `FAMILIES`; `""` for none.

    Raises KeyError for a name that nothing defines."""
    wanted = set(names)
    tiles = generated_tiles(wanted)
    wanted |= {called for name in tiles for called in _called_by_tile(name) if called in _c_functions()}
    definitions = "\n".join([*filter(None, [_c_definitions(wanted - tiles.keys())]), *tiles.values()])
    return header("preamble.h") + definitions if definitions else ""


def generated_tiles(names: Iterable[str]) -> dict[str, str]:
    """By name, the tiles of products among these functions, which are written for their shapes, each behind those it calls."""
    found: dict[str, str] = {}
    for name in sorted(names):
        _add_tile(name, found)
    return found


def _add_tile(name: str, found: dict[str, str]) -> None:
    """Those that it calls, which call others at most, come before it."""
    if name in found or (text := _product_text(name)) is None:
        return
    for called in _called_by_tile(name):
        if called != name:
            _add_tile(called, found)
    found[name] = text


@cache
def _called_by_tile(name: str) -> tuple[str, ...]:
    return tuple(called_helpers(_product_text(name) or ""))


def _c_definitions(names: Iterable[str]) -> str:
    needed: set[str] = set()
    pending = list(names)
    while pending:
        name = pending.pop()
        if name not in _c_functions():
            raise KeyError(f"no header defines a function {name!r}")
        if name not in needed:
            needed.add(name)
            pending.extend(_calls(name))
    return "\n".join(text for name, text in _c_functions().items() if name in needed)


def cuda_helpers(names: Iterable[str]) -> str:
    """The same for CUDA: these are scalar C without state, so a preamble and CUDA's own names for builtins suffice."""
    names, own = set(names), _cuda_functions()
    parts = (_VECTOR if "fo_vector" in names else "", _ONCE if names & _ONCE_NAMES else "")
    vectors = "\n".join(filter(None, parts))
    called = {*names & own.keys(), *(each for name in names & own.keys() for each in called_helpers(own[name]))}
    fast = "\n".join(text for name, text in own.items() if name in called)
    text = _BUILTIN.sub(r"\1", _c_definitions(names - {"fo_vector"} - _ONCE_NAMES - own.keys()))
    if not text and not fast:
        return vectors
    before = f"{vectors}\n" if vectors else ""
    return before + _CUDA_PREAMBLE + "\n".join(filter(None, (fast, text)))
