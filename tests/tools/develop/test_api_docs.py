"""The page of the Python API: every public name says what it is, and what is read from the source is what is imported."""

from __future__ import annotations

import ast
import inspect
from importlib import import_module
from typing import Any

import pytest

from fuse_opt.tools.develop.api_docs import FACES, files
from fuse_opt.tools.develop.api_source import (
    constant_doc,
    decorators,
    definition,
    doc_of,
    exported,
    methods,
    signature,
)

NAMES = [(face, name) for face in FACES for name in exported(face)]
NEED_NOTHING = [face for face in FACES if "frontends" not in face]


@pytest.mark.parametrize(("face", "name"), NAMES, ids=[".".join(entry) for entry in NAMES])
def test_public_names_say_what_they_are(face: str, name: str) -> None:
    node = definition(face, name)
    if isinstance(node, ast.ClassDef | ast.FunctionDef):
        assert doc_of(node), "write a docstring"
    elif node is not None:
        assert constant_doc(face, name), "write a string below it"
    if isinstance(node, ast.ClassDef):
        stated = [m for m in methods(node) if not node.bases or "abstractmethod" in decorators(m)]
        assert [method.name for method in stated if not doc_of(method)] == [], "write docstrings"


@pytest.mark.parametrize("face", NEED_NOTHING)
def test_names_can_be_imported(face: str) -> None:
    module: Any = import_module(face)
    for name in exported(face):
        found, node = getattr(module, name), definition(face, name)
        if isinstance(node, ast.FunctionDef) and "contextmanager" not in decorators(node):
            assert set(inspect.signature(found).parameters) == {
                a.arg for a in ast.walk(node.args) if isinstance(a, ast.arg)
            }
        if isinstance(node, ast.ClassDef):
            assert found.__name__ == name


def test_signatures_are_as_written() -> None:
    source = "def f(a: int, b: str = 'x', *rest: int, c: float = 1.0, **more: str) -> None: ..."
    (node,) = ast.parse(source).body
    assert isinstance(node, ast.FunctionDef)
    assert signature(node, "f") == 'f(a: int, b: str = "x", *rest: int, c: float = 1.0, **more: str) -> None'
    assert signature(node, "f", 30).startswith("f(\n    a: int,\n")


def test_page_has_every_name() -> None:
    (text,) = files().values()
    assert [name for face, name in NAMES if definition(face, name) is not None and f"### {name}\n" not in text] == []
