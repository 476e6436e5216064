"""`-t html`: one well-formed page that needs nothing else, shows every op, and says no name unescaped."""

from __future__ import annotations

import random
import re
import shutil
import subprocess
import time
from io import StringIO
from pathlib import Path

import pytest
from html_pages import read, script_problem
from ir_testing import CONTEXT, apply, parse
from xdsl.dialects.builtin import ModuleOp, StringAttr

from fuse_opt.dialects.analysis.storage import analyse_storage, functions_of
from fuse_opt.dialects.fused import KernelOp
from fuse_opt.dialects.interfaces.op import GraphOp
from fuse_opt.tools.compiler.pipeline import DEFAULT_PIPELINE
from fuse_opt.tools.targets.html.graph_drawing import arrange
from fuse_opt.tools.targets.html.target_html import HtmlTarget

EXAMPLES = sorted((Path(__file__).resolve().parents[3] / "examples").glob("*.mlir"))
BROWSER = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome", "chrome"))), None)
SMALL = """
func.func @main(%x: tensor<4x8xf32> {graph.donated}, %y: tensor<8xf32>) -> tensor<4x8xf32> {
  %0 = graph.add %x, %y : (tensor<4x8xf32>, tensor<8xf32>) -> tensor<4x8xf32>
  %1 = graph.exp %0 : (tensor<4x8xf32>) -> tensor<4x8xf32>
  %2 = graph.abs %0 : (tensor<4x8xf32>) -> tensor<4x8xf32>
  %3 = graph.multiply %1, %2 : (tensor<4x8xf32>, tensor<4x8xf32>) -> tensor<4x8xf32>
  func.return %3 : tensor<4x8xf32>
}
"""


def page(module: ModuleOp) -> str:
    output = StringIO()
    HtmlTarget().emit(CONTEXT, module, output)
    return output.getvalue()


def test_small_page_shows_graph_arena_and_table() -> None:
    found = read(page(apply(parse(SMALL), DEFAULT_PIPELINE)))
    assert found.texts["h2"] == ["@main"] and found.texts["h3"] == ["Graph", "Kernels"]
    assert len(found.boxes("kernel")) == 1 and len(found.boxes("op")) == 5 and len(found.boxes("argument")) == 2
    assert {"%x", "4x8xf32", "donated", "add", "exp", "return"} <= set(found.texts["text"])
    details = "".join(found.texts["desc"])
    for words in ("graph.exp", "schedule =", "segment = 0", "test.mlir:", "in place: %0 ← %x", "outside", "%x_1 is %x"):
        assert words in details
    assert "1 kernels of 4 ops, 0 library calls; 160 bytes read, 128 bytes written" in "".join(found.texts["p"])


@pytest.mark.sampled(9)
@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: path.stem)
@pytest.mark.parametrize("pipeline", [DEFAULT_PIPELINE, ""], ids=["default", "none"])
def test_examples_show_every_op(path: Path, pipeline: str) -> None:
    module = apply(parse(path.read_text()), pipeline) if pipeline else parse(path.read_text())
    started = time.perf_counter()
    text = page(module)
    assert time.perf_counter() - started < 2
    assert len(text.encode()) < 2 << 20
    assert text == page(module)
    found = read(text)
    drawn = [op for op in module.walk() if isinstance(op, GraphOp | KernelOp)]
    alone = sum(isinstance(op, KernelOp) and len(op.ops()) == 1 for op in drawn)
    assert sum(len(found.boxes(kind)) for kind in ("op", "constant", "kernel")) == len(drawn) - alone + 1
    assert all(op.name in "".join(found.texts["desc"]) for op in drawn)
    kernels = [op for op in drawn if isinstance(op, KernelOp)]
    if any(slot >= 0 for op in kernels if op.slots is not None for slot in op.slots.get_values()):
        assert "Arena over time" in found.texts["h3"] and found.boxes("storage")


def test_arena_has_one_rectangle_for_each_storage() -> None:
    found = read(page(apply(parse(SMALL), "wrap-kernels,plan-memory")))
    titles = [title for title in found.texts["title"] if "bytes at" in title]
    assert [re.sub(r" at \d+", "", title) for title in titles] == [
        "%0: 128 bytes, steps 0 to 2",
        "%1: 128 bytes, steps 1 to 3",
        "%2: 128 bytes, steps 2 to 3",
    ]
    assert len(found.boxes("storage")) == 3
    said = "arena 384 bytes, lower bound 384 bytes (no plan can be smaller); most values alive at once: 384 bytes, at step 2"
    assert said in "".join(found.texts["p"])
    text = (EXAMPLES[0].parent / "transformer_block.mlir").read_text()
    module = apply(parse(text), DEFAULT_PIPELINE)
    storages = [s for f in functions_of(module) for s in analyse_storage(f).storages if s.kind == "intermediate"]
    assert len(storages) >= 5 and len(read(page(module)).boxes("storage")) == len(storages)


def test_names_are_escaped() -> None:
    bad = "</title></desc></script><script>alert(1)</script>&amp;\"'"
    quoted = "".join(c if c.isalnum() else f"\\{ord(c):02X}" for c in bad)
    text = SMALL.replace("@main", f'@"{quoted}"').replace("exp %0", f'exp %0 {{note = "{quoted}"}}')
    module = parse(text)
    module.body.block.first_op.attributes["other"] = StringAttr(bad)  # pyright: ignore[reportOptionalMemberAccess]
    found = read(page(module))
    assert found.texts["h2"] == [f"@{bad}"]
    assert any("note = " in text and "alert(1)" in text for text in found.texts["desc"])
    assert len([tag for tag, _ in found.tags if tag == "script"]) == 1


def test_control_characters_are_spelled_out() -> None:
    found = page(parse(SMALL.replace("@main", r'@"a\00b\1Bc"')))
    assert "\0" not in found and "\x1b" not in found and r"@a\x00b\x1bc" in found
    read(found)


@pytest.mark.parametrize(
    "text",
    [
        "builtin.module {}",
        "func.func private @f(tensor<4xf32>) -> tensor<4xf32>",
        SMALL + SMALL.replace("@main", "@other"),
        "func.func @f(%x: tensor<?xf32>) -> tensor<?xf32> { func.return %x : tensor<?xf32> }",
        "func.func @f() { func.return }",
    ],
    ids=["empty", "declaration", "two", "unknown extent", "nothing"],
)
def test_odd_modules(text: str) -> None:
    read(page(parse(text)))


@pytest.mark.parametrize("last", ["wrap-kernels", "schedule-kernels", "convert-fused-to-loops", "convert-fused-to-gpu"])
def test_every_stage_of_the_pipeline(last: str) -> None:
    module = parse(SMALL)
    if last.startswith("convert"):
        module = apply(module, DEFAULT_PIPELINE)
    read(page(apply(module, ["wrap-kernels", last] if last == "schedule-kernels" else [last])))


def chain(length: int) -> ModuleOp:
    names = ("exp", "abs", "tanh")
    ops = [f"  %{k + 1} = graph.{names[k % 3]} %{k} : (tensor<4xf32>) -> tensor<4xf32>\n" for k in range(length)]
    return parse(
        "func.func @main(%0: tensor<4xf32>) -> tensor<4xf32> {\n"
        f"{''.join(ops)}  func.return %{length} : tensor<4xf32>\n}}"
    )


@pytest.mark.parametrize(("length", "is_drawn"), [(1_990, True), (2_000, False)])
def test_long_chains(length: int, is_drawn: bool) -> None:
    module = chain(length)
    started = time.perf_counter()
    text = page(module)
    assert time.perf_counter() - started < 10
    found = read(text)
    assert ("Graph" in found.texts["h3"]) is is_drawn
    assert [tag for tag, _ in found.tags].count("tr") == length + 1


GRAPHS: dict[str, tuple[int, list[tuple[int, int]]]] = {
    "chain": (2_000, [(k, k + 1) for k in range(1_999)]),
    "one value read everywhere": (2_000, [(0, k) for k in range(1, 2_000)] + [(k, k + 1) for k in range(1_999)]),
    "long lives": (2_000, [(k, k + 1_000) for k in range(1_000)] + [(k, k + 1) for k in range(1_999)]),
    "random": (600, [(random.Random(k).randrange(k), k) for k in range(1, 600)] + [(k // 7, k) for k in range(1, 600)]),
    "backwards": (4, [(3, 0), (1, 1), (2, 1), (0, 1)]),
    "empty": (0, []),
}


@pytest.mark.sampled(4)
@pytest.mark.parametrize("name", GRAPHS)
def test_boxes_do_not_overlap_and_edges_run_down(name: str) -> None:
    count, edges = GRAPHS[name]
    sizes = [(40.0 + 7 * (k % 5), 20.0 + 11 * (k % 3)) for k in range(count)]
    started = time.perf_counter()
    found = arrange(sizes, edges)
    assert time.perf_counter() - started < 5
    assert found == arrange(sizes, edges)
    assert sum(map(len, found.paths)) < 1_000 * (len(edges) + 1)
    boxes = sorted((y, x, w, h) for (x, y), (w, h) in zip(found.places, sizes, strict=True))
    for number, (y, x, w, h) in enumerate(boxes):
        assert x >= -0.01 and y >= 0 and x + w <= found.width + 0.01 and y + h <= found.height + 0.01
        for other_y, other_x, other_w, _ in boxes[number + 1 :]:
            if other_y >= y + h:
                break
            assert other_x + other_w < x or x + w < other_x
    for (a, b), path in zip(edges, found.paths, strict=True):
        low, high = min(a, b), max(a, b)
        assert a == b or found.places[low][1] + sizes[low][1] <= found.places[high][1]
        assert path.startswith("M")


def test_order_has_no_needless_crossings() -> None:
    found = arrange([(10.0, 10.0)] * 6, [(0, 5), (1, 4), (2, 3)])
    left = [x for x, _ in found.places]
    assert sorted(range(3), key=left.__getitem__) == sorted(range(3), key=lambda k: left[5 - k])


def test_script_parses(tmp_path: Path) -> None:
    node = shutil.which("node")
    if node is None:
        pytest.skip("no node to read the page's script")
    path = tmp_path / "page.js"
    path.write_text("".join(read(page(parse(SMALL))).texts["script"]))
    done = subprocess.run([node, "--check", str(path)], capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("f(`a ${g({b: '}'})} c`); // it's\n/* { */", None),
        ("f(1;", "( is open"),
        ("f(1]);", "] closes nothing at 3"),
        ("'it\n", "' is open at 0"),
        ("`a ${b`", "` is open"),
        ("`a", "a template is open"),
        ("/* a", "/* is open at 0"),
    ],
)
def test_scripts_that_are_not_whole(text: str, problem: str | None) -> None:
    assert script_problem(text) == problem


@pytest.mark.skipif(BROWSER is None, reason="no Chromium in PATH to open the page in")
def test_browser_opens_the_page(tmp_path: Path) -> None:
    path = tmp_path / "page.html"
    path.write_text(page(apply(parse(SMALL), DEFAULT_PIPELINE)))
    options = ["--headless", "--no-sandbox", "--disable-gpu", "--enable-logging=stderr", "--dump-dom"]
    done = subprocess.run(
        [str(BROWSER), *options, path.as_uri()], capture_output=True, text=True, timeout=120, check=False
    )
    assert done.returncode == 0 and 'aria-label="Zoom in"' in done.stdout
    assert ":CONSOLE" not in done.stderr
