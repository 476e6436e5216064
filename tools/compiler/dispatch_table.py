"""The measured times that a person's environment names: for passes that choose implementations and were given none."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import fields, replace
from typing import TYPE_CHECKING, Any, cast

if TYPE_CHECKING:
    from xdsl.passes import ModulePass

VARIABLE = "FUSE_OPT_DISPATCH_TABLE"
_OPTION = "table"


def with_dispatch_table(passes: Sequence[ModulePass]) -> list[ModulePass]:
    """The passes, of which those that take a table of times and have none get the file of `$FUSE_OPT_DISPATCH_TABLE`."""
    path = os.environ.get(VARIABLE, "")
    return [_with_table(each, path) if path else each for each in passes]


def _with_table(each: ModulePass, path: str) -> ModulePass:
    takes = any(field.name == _OPTION for field in fields(each))
    return replace(cast("Any", each), **{_OPTION: path}) if takes and not getattr(each, _OPTION) else each
