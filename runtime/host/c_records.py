"""Records that Python fills and C reads: their fields are those that the C text declares, all of 64 bits."""

from __future__ import annotations

import ctypes
import functools
import re
from pathlib import Path
from typing import Any

_RUNTIME = Path(__file__).parent.parent
_COMMENT = re.compile(r"/\*.*?\*/", re.DOTALL)
_NESTED = re.compile(r"struct \{.*?\} \w+\[\];", re.DOTALL)
_FUNCTION = re.compile(r"\(\*(\w+)\)\([^)]*\)")
_DECLARED = re.compile(r"(\w+)(\[\w*\])?\s*(?:,|$)")
_WORDS = {"int64_t", "long", "fuse_task"}
"""Types of 64 bits besides pointers."""

Fields = tuple[tuple[str, Any], ...]


@functools.cache
def runtime_text(file: str) -> str:
    """A C file of the runtime, by its path in that package, such as `host/program_call.c`."""
    return (_RUNTIME / file).read_text(encoding="utf-8")


def fields_of(file: str, record: str) -> Fields:
    """
    What ctypes calls `_fields_`, of a record that a C file of the runtime declares; an array without a length at its end
    is left out. Raises ValueError for a record that is not there, or has fields of other sizes.
    """
    text = _without_comments(file)
    found = re.search(rf"^struct {record} \{{(.*?)^\}}", text, re.DOTALL | re.MULTILINE)
    if found is None:
        raise ValueError(f"{file} declares no 'struct {record}'")
    fields: list[tuple[str, Any]] = []
    for declaration in _FUNCTION.sub(r"*\1", _NESTED.sub("", found[1])).split(";")[:-1]:
        if "*" not in declaration and declaration.split()[0] not in _WORDS:
            raise ValueError(f"{file}, 'struct {record}': expected fields of 64 bits, got '{declaration.strip()}'")
        for name, length in _DECLARED.findall(declaration):
            if length != "[]":
                fields.append((name, ctypes.c_int64 * _number(text, length[1:-1]) if length else ctypes.c_int64))
    return tuple(fields)


@functools.cache
def _without_comments(file: str) -> str:
    return _COMMENT.sub("", runtime_text(file))


def _number(text: str, length: str) -> int:
    """A length, or what it is defined as."""
    defined = re.search(rf"^#define {length} (\d+)", text, re.MULTILINE)
    return int(length if defined is None else defined[1])


def number_in(file: str, name: str) -> int:
    """What a text of the runtime defines a name as. Raises ValueError where it does not."""
    return _number(_without_comments(file), name)


def int64_table(*values: int) -> ctypes.Array[ctypes.c_int64]:
    """A record whose fields are given in order."""
    return (ctypes.c_int64 * len(values))(*values)


def address_in(library: Any, name: str) -> int:
    """The address of a function of a library of ctypes. Raises AttributeError where there is none."""
    return ctypes.cast(getattr(library, name), ctypes.c_void_p).value or 0
