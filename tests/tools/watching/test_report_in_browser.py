"""Reports as a browser shows them: no errors, nothing beside the window, every text to be read without colours."""

from __future__ import annotations

from pathlib import Path

import pytest
from browser import console, measures, needs_browser, screenshot
from c_printing import needs_cc
from model_texts import gradient_text

from fuse_opt.tools.commands.fuse_run_main import main

pytestmark = [needs_browser, needs_cc]
DARK = ("--blink-settings=preferredColorScheme=0",)


@pytest.fixture(scope="module")
def report(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Of a program with library calls, kernels, an arena, and plans."""
    folder = tmp_path_factory.mktemp("report")
    (model := folder / "net.mlir").write_text(gradient_text(3, "softmax $ {axis = 1 : i64}", ""))
    assert main([str(model), "--report", str(folder / "report.html"), "--repeat", "2"]) == 0
    return folder / "report.html"


def test_the_console_is_empty(report: Path) -> None:
    assert console(report) == []
    (bad := report.with_name("bad.html")).write_text("<script>nothing.there;</script><img src='none.png'>")
    assert any("nothing is not defined" in line for line in console(bad))


@pytest.mark.parametrize("flags", [(), DARK], ids=["light", "dark"])
@pytest.mark.parametrize("width", [1280, 560])
def test_all_is_in_the_window_and_can_be_read(report: Path, width: int, flags: tuple[str, ...]) -> None:
    found = measures(report, width, flags=flags)
    assert found["width"] == width and found["drawings"] == 4
    assert found["wider"] <= 0, "what is wide scrolls by itself"
    assert found["faint"] == [] and found["outside"] == [] and found["overlapping"] == []


def test_faults_are_found(tmp_path: Path) -> None:
    texts = "".join(f'<text x="{x}" y="15">word</text>' for x in (0, 5, 90))
    wide = '<p style="width: 3000px; color: #aaa">faint</p>'
    page = tmp_path / "page.html"
    page.write_text(f'<body>{wide}<svg viewBox="0 0 99 20" width="99" height="20">{texts}</svg></body>')
    found = measures(page, 1280)
    assert found["wider"] > 1000 and [text for text, _ in found["faint"]] == ["faint"]
    assert [text for _, text in found["outside"]] == ["word"] and len(found["overlapping"]) == 1


@pytest.mark.parametrize("grey", [False, True], ids=["colours", "grey"])
@pytest.mark.parametrize("width", [1280, 560])
def test_pictures(report: Path, tmp_path: Path, width: int, grey: bool) -> None:
    assert screenshot(report, width, 1600, tmp_path / "window.png", grey=grey) == (width, 1600)
    assert (tmp_path / "window.png").stat().st_size > 20_000
