"""Pages lead to each other: every relative link resolves, every page is in the index, and lists of names are complete."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from fuse_opt.tools.develop.api_docs import FACES

ROOT = Path(__file__).resolve().parents[2]
DOCS = ROOT / "docs"
PAGES = [ROOT / name for name in ("README.md", "CONTRIBUTING.md", "CHANGELOG.md")] + sorted(DOCS.rglob("*.md"))
LINK = re.compile(r"\[[^\]]*\]\(([^)\s]+)\)")
FENCE = re.compile(r"^(```+).*?^\1$", re.DOTALL | re.MULTILINE)
OTHERS = ("tests", "test_lit", "docs", "examples", "benchmarks")
FOLDERS = ("dialects", "passes", "lowering", "runtime", "frontends", "tools", "fuse_opt")


def links(page: Path) -> list[str]:
    return LINK.findall(FENCE.sub("", page.read_text(encoding="utf-8")))


def anchors(page: Path) -> set[str]:
    """The names by which headings are linked, as GitHub makes them."""
    headings = re.findall(r"^#+ (.*)$", FENCE.sub("", page.read_text(encoding="utf-8")), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.relative_to(ROOT).as_posix())
def test_relative_links_resolve(page: Path) -> None:
    for link in links(page):
        path, _, anchor = link.partition("#")
        if re.match(r"[a-z]+:", link):
            continue
        target = page if not path else (page.parent / path).resolve()
        assert target.exists(), f"{link}: there is no {path}"
        if anchor:
            assert target.suffix == ".md" and anchor in anchors(target), f"{link}: no heading of that name"


@pytest.mark.parametrize("folder", [DOCS, DOCS / "ops"], ids=["docs", "docs/ops"])
def test_every_page_is_in_its_index(folder: Path) -> None:
    index = folder / "README.md"
    linked = {(folder / link.partition("#")[0]).resolve() for link in links(index)}
    assert [page.name for page in sorted(folder.glob("*.md")) if page != index and page not in linked] == []


WRITTEN = [page for page in PAGES if page.name not in ("CHANGELOG.md", "api.md") and page.parent.name != "ops"]
PUBLIC = {
    *FACES,
    "fuse_opt.dialects.scalar",
    "fuse_opt.frontends",  # as in `from fuse_opt.frontends import onnx`
    "fuse_opt.frontends.onnx.backend",  # needs onnx to be imported at all
    "fuse_opt.passes.fusion.patterns",  # what rules in files import: names of the engine
    "fuse_opt.tools.develop",
    "fuse_opt.tools.reduce",
}


@pytest.mark.parametrize("page", WRITTEN, ids=lambda page: page.relative_to(ROOT).as_posix())
def test_paths_in_the_text_exist(page: Path) -> None:
    """A file's suffix tells a path from words with a slash; `<name>` is to be filled in."""
    folders = "|".join((*FOLDERS, *OTHERS))
    paths = re.findall(rf"(?<![\w/.:*-])(?:{folders})/[\w./*-]*(?![\w<-])", page.read_text(encoding="utf-8"))
    named = [path.rstrip("./-") for path in paths if path.endswith("/") or "." in path or path.count("/") > 1]
    assert [path for path in named if not list(ROOT.glob(path))] == []


@pytest.mark.parametrize("page", WRITTEN, ids=lambda page: page.relative_to(ROOT).as_posix())
def test_no_private_module_is_promised(page: Path) -> None:
    names = re.findall(r"\bfuse_opt(?:\.[a-z_]\w*)+", page.read_text(encoding="utf-8"))
    modules = {name for name in names if (ROOT / "/".join(name.split(".")[1:])).with_suffix(".py").is_file()}
    packages = {name for name in names if (ROOT / "/".join(name.split(".")[1:])).is_dir()}
    private = [
        name for name in modules | packages if not any((name + ".").startswith(f"{p}.") for p in PUBLIC - {"fuse_opt"})
    ]
    assert sorted(private) == [], "name a package of tools/develop/api_docs.py, or add one there"


def test_entries_of_the_glossary_are_sorted() -> None:
    terms = re.findall(r"^- \*\*(.*?)\*\*", (DOCS / "glossary.md").read_text(encoding="utf-8"), re.MULTILINE)
    assert len(terms) > 40 and terms == sorted(terms, key=str.lower)


@pytest.mark.parametrize("page", [page for page in PAGES if page.name != "CHANGELOG.md"], ids=lambda page: page.name)
def test_words_of_old_are_gone(page: Path) -> None:
    text = page.read_text(encoding="utf-8").lower()
    assert re.findall(r"\b(?:houses?|dear|dearer|turned (?:loads?|squares?|in))\b", text) == []


def environment_names(source: str) -> Iterator[str]:
    """The variables that a file reads; raises AssertionError for one whose name it does not show."""
    tree = ast.parse(source)
    bound: dict[str, ast.expr] = {}
    for node in ast.walk(tree):
        match node:
            case ast.Assign([ast.Name(name)], value) | ast.AnnAssign(ast.Name(name), _, ast.expr() as value):
                bound[name] = value
            case ast.For(ast.Name(name), value) | ast.comprehension(ast.Name(name), value):
                bound[name] = value
            case _:
                pass

    def shown(node: ast.expr) -> list[str]:
        match node:
            case ast.Constant(str(text)):
                return [text]
            case ast.Tuple(parts) | ast.List(parts):
                return [name for part in parts for name in shown(part)]
            case ast.Name(name) if name in bound:
                return shown(bound[name])
            case _:
                raise AssertionError(f"write the name of the variable where it is read: {ast.unparse(node)}")

    for node in ast.walk(tree):
        match node:
            case ast.Call(ast.Attribute(_, "getenv"), [name, *_]):
                yield from shown(name)
            case ast.Call(ast.Attribute(ast.Attribute(_, "environ"), _), [name, *_]):
                yield from shown(name)
            case ast.Subscript(ast.Attribute(_, "environ"), name):
                yield from shown(name)
            case ast.Compare(name, [ast.In() | ast.NotIn()], [ast.Attribute(_, "environ")]):
                yield from shown(name)
            case _:
                pass


def test_names_of_variables_are_found() -> None:
    source = 'import os\nA = "X"\na = os.environ.get(A)\nb = [os.environ[n] for n in ("Y", "Z") if n in os.environ]\n'
    assert set(environment_names(source)) == {"X", "Y", "Z"}
    with pytest.raises(AssertionError, match="write the name"):
        list(environment_names("import os\nos.environ.get(name + '1')\n"))


def test_list_of_environment_variables_is_complete() -> None:
    sources = [path for folder in FOLDERS for path in (ROOT / folder).rglob("*.py") if path.name != "bootstrap.py"]
    owned = [path for path in sources if not any(parent.is_symlink() for parent in path.parents)]
    texts = [text for path in owned if re.search("environ|getenv", text := path.read_text(encoding="utf-8"))]
    read = {name for text in texts for name in environment_names(text)}
    section = (DOCS / "install.md").read_text(encoding="utf-8").partition("## Environment variables")[2]
    listed = {n for row in re.findall(r"^\| (`.*?) \|", section, re.MULTILINE) for n in re.findall(r"`(\w+)`", row)}
    assert listed - {"TMPDIR"} == read, "docs/install.md lists the variables that the package reads"
