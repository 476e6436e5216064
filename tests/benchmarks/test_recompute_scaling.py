"""What is looked at in part in large programs changes no decision."""

from __future__ import annotations

import pytest
from ir_testing import text_of
from recompute_scaling import tangled
from xdsl.context import Context

from fuse_opt.passes.recompute.times import Times
from fuse_opt.passes.remarks import collect
from fuse_opt.tools.compiler.api import load
from fuse_opt.tools.compiler.pipeline import make_passes


@pytest.mark.parametrize(("count", "most"), [(600, 8), (800, 32), (500, 512)])
def test_nothing_hangs_on_how_much_is_looked_at(count: int, most: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Remarks included: with nothing known to be sure all of what values are computed from is looked at."""
    found: list[tuple[str, list[str]]] = []
    for sure in (Times.sure, frozenset[object]()):
        monkeypatch.setattr(Times, "sure", sure)
        module = load(tangled(count, most))
        with collect() as remarks:
            make_passes(f"rematerialize{{slower=1000.0 rows=true products=1 target=4194304 max-ops={most}}}")[0].apply(
                Context(), module
            )
        found.append((text_of(module), [f"{each.code} {each.message} {each.numbers}" for each in remarks]))
    assert found[0] == found[1] and found[0][1]
