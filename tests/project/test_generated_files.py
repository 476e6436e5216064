"""Generators of files; that files are up to date is checked by the command of docs/architecture.md, in test_documentation."""

from __future__ import annotations

from pathlib import Path

import pytest

from fuse_opt.tools.develop import generated
from fuse_opt.tools.develop.generated import Generator, generators, section


def test_all_generators_are_found() -> None:
    assert {"op_docs", "packages", "pass_table"} <= {generator.name for generator in generators()}


def test_what_is_not_up_to_date_is_said_and_mended(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(generated, "ROOT", tmp_path)
    generator = Generator("ours", lambda: {"pages/one.md": "one\n", "pages/two.md": "two\n"}, ("pages",))
    (tmp_path / "pages").mkdir()
    (tmp_path / "pages" / "one.md").write_text("another\n")
    (tmp_path / "pages" / "three.md").write_text("not generated any more\n")
    wanted = "not up to date: pages/one.md, pages/three.md, pages/two.md; run: python -m fuse_opt.tools.develop.ours"
    assert generator.problem() == wanted
    assert (generator.main(["--check"]), capsys.readouterr().out) == (1, f"{wanted}\n")
    assert generator.main([]) == 0
    assert capsys.readouterr().out.split() == ["pages/one.md", "pages/three.md", "pages/two.md"]
    assert sorted(path.name for path in (tmp_path / "pages").iterdir()) == ["one.md", "two.md"]
    assert (generator.main(["--check"]), capsys.readouterr().out) == (0, "")


def test_sections_of_pages() -> None:
    page = "before\n<!-- table: old -->\n1\n<!-- /table -->\nafter\n"
    assert section(page, "table", "new", "2\n3\n") == "before\n<!-- table: new -->\n2\n3\n<!-- /table -->\nafter\n"
    with pytest.raises(ValueError, match="expected the marks"):
        section("before\n", "table", "new", "2")
