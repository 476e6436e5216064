"""What notebooks show of modules and programs: a page in a frame of its own, and nothing beside it."""

from __future__ import annotations

from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest

import fuse_opt
from fuse_opt.tools.commands.fuse_opt_main import main
from fuse_opt.tools.compiler import notebook

FFN = Path(__file__).resolve().parents[3] / "examples" / "ffn.mlir"
ODD = """\
func.func @"</script><b id='x'>\\22&quot;"(%x: tensor<4xf32>) -> tensor<4xf32> {
  %0 = graph.exp %x : (tensor<4xf32>) -> tensor<4xf32>
  func.return %0 : tensor<4xf32>
}
"""


class Elements(HTMLParser):
    """The elements of a text with their attributes, and what stands outside of any."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.found: list[tuple[str, dict[str, str | None]]] = []
        self.text = ""
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.found.append((tag, dict(attrs)))

    def handle_data(self, data: str) -> None:
        self.text += data


def framed(shown: Any) -> str:
    """The page in the one frame that a notebook gets."""
    elements = Elements(shown._repr_html_())
    [(tag, attributes)] = elements.found
    assert tag == "iframe" and elements.text == ""
    assert attributes["sandbox"] == "allow-scripts", "it may not reach the notebook"
    assert set(attributes) == {"title", "sandbox", "style", "srcdoc"}
    return attributes["srcdoc"] or ""


def test_a_program_shows_what_it_became(tmp_path: Path) -> None:
    program = fuse_opt.compile(FFN)
    page = framed(program)
    assert page == fuse_opt.show(program).html == framed(fuse_opt.show(program.module))
    assert page.startswith("<!DOCTYPE html>") and "@ffn" in page and "graph.matmul" in page
    assert [tag for tag, attributes in Elements(page).found if {"src", "href"} & attributes.keys() and tag != "a"] == [
        "link"
    ]


def test_it_is_the_page_of_the_command(tmp_path: Path) -> None:
    saved = fuse_opt.show(fuse_opt.optimize(FFN)).save(tmp_path / "page.html")
    assert main([str(FFN), "--default", "-t", "html", "-o", str(tmp_path / "other.html")]) == 0
    assert saved == tmp_path / "page.html"
    assert saved.read_text() == (tmp_path / "other.html").read_text()


def test_a_module_as_it_was_loaded() -> None:
    assert framed(fuse_opt.show(fuse_opt.load(FFN))) == framed(fuse_opt.show(str(FFN)))


@pytest.mark.parametrize("shown", ["module", "program"])
def test_odd_names_stay_in_the_frame(shown: str) -> None:
    page = framed(fuse_opt.show(ODD) if shown == "module" else fuse_opt.compile(ODD, target="reference"))
    elements = Elements(page)
    assert "b" not in [tag for tag, _ in elements.found]
    assert page.count("</script>") == 1


def test_a_program_of_unknown_extents_shows_its_source() -> None:
    text = FFN.read_text().replace("8x", "?x")
    assert "?x256xf32" in framed(fuse_opt.compile(text))


def test_large_pages_are_for_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(notebook, "_MOST_SHOWN", 1000)
    page = fuse_opt.show(FFN)
    assert [tag for tag, _ in Elements(getattr(page, "_repr_html_")()).found] == ["p", "code"]  # noqa: B009
    assert len(page.save(tmp_path / "page.html").read_text()) > 1000


def test_the_text_of_a_page_is_short() -> None:
    assert repr(fuse_opt.show(FFN)) == "Page()"


def test_an_onnx_model(tmp_path: Path) -> None:
    helper: Any = pytest.importorskip("onnx.helper")
    from fuse_opt.frontends import onnx

    number = 1  # TensorProto.FLOAT

    def model(*nodes: Any, extent: int | str) -> Any:
        x, y = (helper.make_tensor_value_info(name, number, [extent, 4]) for name in "xy")
        graph = helper.make_graph(list(nodes), "g", [x], [y])
        return onnx.load(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)]))

    assert "graph.exp" in framed(model(helper.make_node("Exp", ["x"], ["y"]), extent=2))
    unknown = model(helper.make_node("Reshape", ["x", "x"], ["y"]), extent="<n>")
    shown = unknown._repr_html_()
    assert Elements(shown).found == [("p", {})] and "ONNX model: " in shown
