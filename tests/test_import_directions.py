"""Which house may know which, read from the source: imports anywhere in a file count, also those in functions."""

import ast
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]

MAY_IMPORT = {
    "dialects": ("fuse_opt.dialects",),
    "passes": ("fuse_opt.dialects", "fuse_opt.passes"),
    "lowering": ("fuse_opt.dialects", "fuse_opt.lowering"),
    "runtime": ("fuse_opt.lowering.program", "fuse_opt.lowering.narrow_floats", "fuse_opt.runtime"),
    "frontends": ("fuse_opt.dialects", "fuse_opt.frontends", "fuse_opt.lowering.library", "fuse_opt.tools.api"),
    "tools": ("fuse_opt",),
    "fuse_opt": ("fuse_opt.tools.api",),
}
"""By house: the modules it may import, each with what lies under it. Everyone may read `fuse_opt.__version__`."""

SOURCES = sorted(
    path
    for house in MAY_IMPORT
    for path in (ROOT / house).rglob("*.py")
    if not any(parent.is_symlink() for parent in path.parents)
)


def imported_modules(source: str, module: str, is_package: bool) -> Iterator[str]:
    """Dotted names of all that a file imports; `from a import b` gives `a.b`, be it a module or a name in one."""
    for node in ast.walk(ast.parse(source)):
        match node:
            case ast.Import(names):
                yield from (alias.name for alias in names)
            case ast.ImportFrom(base, names, level):
                parents = module.split(".")
                anchor = parents[: len(parents) + is_package - level] if level else []
                yield from (".".join([*anchor, *([base] if base else []), alias.name]) for alias in names)
            case ast.Call(ast.Name(name) | ast.Attribute(_, name), [ast.Constant(str(target)), *_]) if name in (
                "import_module",
                "__import__",
            ):
                yield target
            case _:
                pass


def is_within(name: str, module: str) -> bool:
    return name == module or name.startswith(f"{module}.")


def find_violations(house: str, imports: Iterator[str]) -> list[str]:
    """The imports that a file of this house may not have."""

    def allowed(name: str) -> bool:
        top = name.partition(".")[0]
        if top == "fuse_opt":
            return name == "fuse_opt.__version__" or any(is_within(name, module) for module in MAY_IMPORT[house])
        if top in MAY_IMPORT:
            return False  # `import dialects` from the repository root would define every op twice
        if top == "pycuda":
            return house == "runtime"
        if house in ("dialects", "fuse_opt") and top not in sys.stdlib_module_names:
            return (house, top) == ("dialects", "xdsl")
        return True

    return sorted({name for name in imports if not allowed(name)})


@pytest.mark.parametrize("path", SOURCES, ids=lambda path: path.relative_to(ROOT).as_posix())
def test_house_imports_only_what_it_may_know(path: Path):
    relative = path.relative_to(ROOT)
    house = relative.parts[0]
    parts = relative.with_suffix("").parts if house == "fuse_opt" else ("fuse_opt", *relative.with_suffix("").parts)
    is_package = path.name == "__init__.py"
    module = ".".join(parts[:-1] if is_package else parts)
    assert find_violations(house, imported_modules(path.read_text(), module, is_package)) == []


@pytest.mark.parametrize(
    ("house", "source"),
    [
        ("dialects", "import numpy as np"),
        ("dialects", "from fuse_opt.passes import cse"),
        ("dialects", "from fuse_opt import compile"),
        ("passes", "def f():\n    from fuse_opt.lowering.program import Program"),
        ("passes", "from ..runtime import cache"),
        ("passes", "import importlib\nimportlib.import_module('fuse_opt.runtime.cuda')"),
        ("lowering", "from dialects import graph"),
        ("lowering", "import pycuda.driver"),
        ("runtime", "import fuse_opt.lowering.c_printer"),
        ("runtime", "from fuse_opt.lowering import c_printer"),
        ("fuse_opt", "import xdsl.ir"),
    ],
)
def test_violations_are_found(house: str, source: str):
    assert find_violations(house, imported_modules(source, f"fuse_opt.{house}.module", False)) != []


@pytest.mark.parametrize(
    ("house", "source"),
    [
        ("dialects", "from xdsl.ir import Dialect\nfrom . import scalar\nimport math"),
        ("passes", "from fuse_opt.dialects import fused\nfrom ..dialects.graph import AddOp"),
        ("runtime", "from fuse_opt import __version__\nfrom fuse_opt.lowering.program import Program"),
        ("runtime", "import numpy as np\nimport pycuda.driver"),
        ("runtime", "from fuse_opt.lowering import program"),
        ("tools", "import fuse_opt.runtime.cuda"),
    ],
)
def test_permitted_imports_pass(house: str, source: str):
    assert find_violations(house, imported_modules(source, f"fuse_opt.{house}.module", False)) == []


def test_face_imports_nothing_when_imported():
    body = ast.parse((ROOT / "fuse_opt" / "__init__.py").read_text()).body
    at_import = [node for node in body if isinstance(node, (ast.Import, ast.ImportFrom))]
    assert [ast.unparse(node) for node in at_import] == ["from typing import TYPE_CHECKING"]


def test_no_file_is_a_drawer_for_everything():
    folders = {*MAY_IMPORT, "benchmarks", "examples", "tests", "test_lit"}
    names = ("utils", "util", "common", "helpers", "misc")
    assert [path for folder in folders for path in (ROOT / folder).rglob("*.py") if path.stem in names] == []


def pass_names(source: str) -> list[str | None]:
    """The `name` of each pass that a file defines: of each class over one called `...Pass` that is not an ABC."""
    names: list[str | None] = []
    for node in ast.walk(ast.parse(source)):
        if not isinstance(node, ast.ClassDef):
            continue
        bases = [ast.unparse(base).partition("[")[0].rpartition(".")[2] for base in node.bases]
        if "ABC" in bases or not any(base.endswith("Pass") for base in bases):
            continue
        names.append(None)
        for statement in node.body:
            match statement:
                case ast.Assign([ast.Name("name")], ast.Constant(str(name))):
                    names[-1] = name
                case ast.AnnAssign(ast.Name("name"), _, ast.Constant(str(name))):
                    names[-1] = name
                case _:
                    pass
    return names


@pytest.mark.parametrize(
    "path",
    [path for path in SOURCES if path.relative_to(ROOT).parts[0] in ("passes", "lowering")],
    ids=lambda path: path.relative_to(ROOT).as_posix(),
)
def test_file_of_a_pass_is_named_after_it(path: Path):
    names = pass_names(path.read_text())
    if names or path.stem.startswith("convert_"):
        assert names == [path.stem.replace("_", "-")]


def test_pass_names_are_found():
    source = """
class FuseRowsPattern(RewritePattern): ...
@dataclass(frozen=True)
class FusionRulePass(ModulePass, ABC): ...
@dataclass(frozen=True)
class FuseRowsPass(FusionRulePass):
    name: ClassVar[str] = "fuse-rows"
class CsePass(passes.ModulePass):
    name = "cse"
class NamelessPass(ModulePass): ...
"""
    assert pass_names(source) == ["fuse-rows", "cse", None]
