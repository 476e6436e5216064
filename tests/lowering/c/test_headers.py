"""The files of functions of generated programs: their templates, that each function is there once, and that it is called."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from fuse_opt.lowering.c import headers
from fuse_opt.lowering.c.headers.functions import CUDA_FAMILIES, FAMILIES, called_helpers, functions_of
from fuse_opt.lowering.c.headers.templates import functions_in
from fuse_opt.lowering.c.language import CUDA, C

FOLDER = Path(headers.__file__).parent
LOWERING = FOLDER.parents[1]
SIGNATURE = re.compile(r"^(?:FO_FN|FO_APART) [\w ]+? \*?(fo_\w+)\(", re.MULTILINE)

TWIN = """/* What stands before the first function is no part of it. */

/* fo_twice_{f32|f64}: 2 x; {0.5|0.25} ULP. */
FO_FN float fo_twice_f32(float x) {
  float floats = __builtin_fabsf(x) + __builtin_inff() * 0.0f;
  return {SHIFTER} * fo_mad_f32(x, 0x1.8p-3f, 1.0f) + {1.5f|2.5} + fo_f32_only(x);
}

/* fo_plain_f32: {a|b} is as it stands here. */
FO_FN float fo_plain_f32(float x) {
  return x; /* {a|b} */
}
"""
PAIRS = """/* fo_to_{f32|f64}_{i8|i16|u8}: {-128|-32768|0} of {a|b}. */
FO_FN fo_i8 fo_to_f32_i8(float x) {
  return (fo_i8)(x * 2.0f);
}
"""


def test_a_template_is_written_out_for_each_type() -> None:
    assert dict(functions_in(TWIN)) == {
        "fo_twice_f32": """/* fo_twice_f32: 2 x; 0.5 ULP. */
FO_FN float fo_twice_f32(float x) {
  float floats = __builtin_fabsf(x) + __builtin_inff() * 0.0f;
  return 0x1.8p23f * fo_mad_f32(x, 0x1.8p-3f, 1.0f) + 1.5f + fo_f32_only(x);
}
""",
        "fo_twice_f64": """/* fo_twice_f64: 2 x; 0.25 ULP. */
FO_FN double fo_twice_f64(double x) {
  double floats = __builtin_fabs(x) + __builtin_inf() * 0.0;
  return 0x1.8p52 * fo_mad_f64(x, 0x1.8p-3, 1.0) + 2.5 + fo_f64_only(x);
}
""",
        "fo_plain_f32": """/* fo_plain_f32: {a|b} is as it stands here. */
FO_FN float fo_plain_f32(float x) {
  return x; /* {a|b} */
}
""",
    }


def test_two_lists_of_types_are_every_pair() -> None:
    found = dict(functions_in(PAIRS))
    assert list(found) == [f"fo_to_{f}_{i}" for f in ("f32", "f64") for i in ("i8", "i16", "u8")]
    assert (
        found["fo_to_f64_u8"]
        == """/* fo_to_f64_u8: 0 of b. */
FO_FN fo_u8 fo_to_f64_u8(double x) {
  return (fo_u8)(x * 2.0);
}
"""
    )


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (
            TWIN.replace("{1.5f|2.5}", "{1.5f|2.5|3.5}"),
            r"\{1.5f\|2.5\|3.5\} has 3 alternatives, the lists of types \[2\]",
        ),
        (PAIRS.replace("{i8|i16|u8}", "{i8|i16}"), r"fo_to_.*: \{f32\|f64\} has 2 alternatives|\{-128"),
    ],
)
def test_alternatives_that_fit_no_list_are_refused(text: str, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        list(functions_in(text))


def test_the_families_hold_every_function_once() -> None:
    """A file's functions are all that it defines, and no two have one name."""
    assert {path.name for path in FOLDER.glob("*.h")} == {*FAMILIES, "preamble.h", *CUDA_FAMILIES}
    for family in (*FAMILIES, *CUDA_FAMILIES):
        text, own = headers.header(family), functions_of([family])
        assert set(SIGNATURE.findall(text)) <= own.keys()
        assert text.count("FO_FN") + text.count("FO_APART") == len(re.findall(r"^/\* fo_\S+:", text, re.MULTILINE))
        for name, function in own.items():
            assert SIGNATURE.findall(function) == [name]
            assert not re.search(r"\{[^{}\n]*\|[^{}\n]*\}|\{[A-Z]", function)
    assert len(functions_of(FAMILIES)) == sum(len(functions_of([family])) for family in FAMILIES)
    with pytest.raises(ValueError, match="fo_bits_f32 is defined twice"):
        functions_of(["arithmetic.h", "integer.h", "arithmetic.h"])


def _spelled_names() -> Iterator[str]:
    """Patterns of the helpers' names that the printers' rows and the sources of lowering spell."""
    for language in (C, CUDA):
        texts = [row.text for rows in language.rows.values() for row in rows.values()]
        yield from (re.sub(r"\{\w+\}", r"[a-z0-9]+", name) for name in re.findall(r"fo_[\w{}]+(?=\()", " ".join(texts)))
    yield C.opaque.partition("(")[0].replace("{t}", r"\w+")
    for path in sorted(LOWERING.rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if (
                isinstance(node, ast.Constant)
                and isinstance(node.value, str)
                and re.fullmatch(r"fo_\w*[a-z0-9]", node.value)
            ):
                yield node.value
            elif isinstance(node, ast.Constant) and isinstance(node.value, str) and path.parent.name == "headers":
                yield from re.findall(r"\bfo_\w+(?=\()", node.value)
            elif isinstance(node, ast.JoinedStr):
                parts = [part.value if isinstance(part, ast.Constant) else r"\w+" for part in node.values]
                if re.match("fo_[a-z]", pattern := "".join(map(str, parts))):
                    yield pattern
            elif isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "_helper":
                yield rf"fo_{ast.literal_eval(node.args[0])}_[a-z0-9]+"


def test_every_function_is_called() -> None:
    """By another one, or by what lowering writes: nothing is kept that no program can have."""
    functions = functions_of(FAMILIES)
    called = {callee for name, text in functions.items() for callee in called_helpers(text) if callee != name}
    patterns = set(_spelled_names())
    dead = [name for name in functions.keys() - called if not any(re.fullmatch(each, name) for each in patterns)]
    assert sorted(dead) == []
