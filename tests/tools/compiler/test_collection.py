"""No garbage is looked for while a program is made: IR is many objects in cycles, and each search would look at all of them."""

from __future__ import annotations

import gc
from typing import Any

import pytest

import fuse_opt
from fuse_opt.tools.compiler import api

PROGRAM = """\
func.func @main(%x: tensor<4x8xf32>) -> tensor<4x8xf32> {
  %0 = graph.exp %x : (tensor<4x8xf32>) -> tensor<4x8xf32>
  func.return %0 : tensor<4x8xf32>
}
"""


@pytest.mark.parametrize("enabled", [True, False])
def test_it_is_off_meanwhile_and_as_it_was_behind(monkeypatch: pytest.MonkeyPatch, enabled: bool) -> None:
    seen: dict[str, bool] = {}

    def note(name: str) -> None:
        whole = getattr(api, name)

        def noted(*given: Any, **options: Any) -> Any:
            seen[name] = gc.isenabled()
            return whole(*given, **options)

        monkeypatch.setattr(api, name, noted)

    for name in ("parse_module", "build_unfusing"):
        note(name)
    if not enabled:
        gc.disable()
    try:
        fuse_opt.compile(PROGRAM)
        assert gc.isenabled() is enabled
    finally:
        gc.enable()
    assert seen["parse_module"] is False and not any(seen.values())


def test_a_refusal_leaves_it_as_it_was() -> None:
    with pytest.raises(fuse_opt.InputError):
        fuse_opt.compile("func.func @main() { graph.unknown }\n")
    assert gc.isenabled()


@pytest.mark.parametrize("enabled", [True, False])
def test_first_use_leaves_it_as_it_was(enabled: bool) -> None:
    if not enabled:
        gc.disable()
    try:
        assert fuse_opt.__getattr__("compile") is api.compile
        assert gc.isenabled() is enabled
    finally:
        gc.enable()
