"""Whatever the IR calls a thing, C sees a legal, unreserved, unique identifier or a harmless comment."""

from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fuse_opt.lowering.c.names import RESERVED, NameScope, comment_lines, global_identifier

LEGAL = re.compile(r"[A-Za-z][A-Za-z0-9_]*\Z")
UGLY = [
    "while", "float", "restrict", "template", "exp", "expf", "y0", "index", "linux", "main", "threadIdx", "fo_exp_f32",
    "omp_get_wtime", "size_t", "int32_t", "_Exit", "__builtin_memcpy", "__x", "a__b", "x-1", "1", "", "$", "…", "a*/b",
    "x; system(\"rm\")", "x" * 5000, "A" * 59 + "_" + "B",
]  # fmt: skip


@given(st.lists(st.one_of(st.text(), st.sampled_from([*UGLY, *sorted(RESERVED)]), st.none())))
def test_names_of_one_scope_are_legal_and_differ(hints: list[str | None]):
    scope = NameScope(["taken"])
    names = [scope.fresh(hint) for hint in [*hints, "taken", *hints]]
    assert len({"taken", *names}) == len(names) + 1
    for name in names:
        assert LEGAL.match(name) and "__" not in name and name not in RESERVED and len(name) < 80
        assert not name.startswith(("fo_", "omp_")) and not name.endswith("_t")


@given(st.one_of(st.text(), st.sampled_from([*UGLY, *sorted(RESERVED)])))
def test_names_of_functions(name: str):
    assert LEGAL.match(identifier := global_identifier(name))
    assert identifier not in RESERVED and "__" not in identifier and len(identifier) < 80
    assert global_identifier(identifier) == identifier


def test_names_of_functions_differ_where_the_symbols_do():
    symbols = ["a.b", "a_b", "a-b", "a__b", "exp", "a.b_", "kernel", "kernel.1"]
    assert len({global_identifier(symbol) for symbol in symbols}) == len(symbols)
    assert global_identifier("kernel_12") == "kernel_12"


def test_hints_are_kept_and_numbered():
    scope = NameScope()
    assert [scope.fresh(hint) for hint in ("x", "x", None, "x", "exp", None)] == [
        "x",
        "x_1",
        "v0",
        "x_2",
        "exp_1",
        "v1",
    ]
    assert scope.fresh(None, "arg") == "arg0"


def test_many_equal_hints_take_linear_time():
    scope = NameScope()
    names = [scope.fresh("x") for _ in range(100_000)]
    assert names[-1] == "x_99999"


@given(st.text())
def test_comments_cannot_be_left(text: str):
    for line in comment_lines(text):
        assert line.startswith("//") and line.isascii() and line.isprintable() and len(line) < 110
        assert "\\" not in line and "??" not in line and "*/" not in line and "/*" not in line


@pytest.mark.parametrize(
    ("text", "lines"),
    [
        ("a\nb", ["// a", "// b"]),
        ("end \\", ["// end |"]),
        ("*/ int x; /*", ["// * / int x; / *"]),
        ("??/", ["// ? ?/"]),
        ("\u202e\u2028x", ["// <U+202E>", "// x"]),
        ("", []),
    ],
)
def test_comment_text(text: str, lines: list[str]):
    assert comment_lines(text) == lines
