"""What each package may import, read from the source: all imports of a file count, lazy and type-only ones, too."""

import ast
import sys
from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from functools import cache
from pathlib import Path

import pytest

from fuse_opt.tools.develop.packages import Package, packages

ROOT = Path(__file__).resolve().parents[2]
FOLDERS = ("dialects", "passes", "lowering", "runtime", "frontends", "tools", "fuse_opt")
PACKAGES = packages()
SOURCES = sorted(
    path
    for folder in FOLDERS
    for path in (ROOT / folder).rglob("*.py")
    if not any(parent.is_symlink() for parent in path.parents)
)
LARGEST = 15
"""Modules of a package."""


def module_of(path: Path) -> str:
    """The name under which a file is imported."""
    parts = path.relative_to(ROOT).with_suffix("").parts
    parts = parts[:-1] if parts[-1] == "__init__" else parts
    return ".".join(parts if parts[0] == "fuse_opt" else ("fuse_opt", *parts))


MODULES = {module_of(path): path for path in SOURCES}


def package_of(module: str) -> str:
    """The folder that holds a module, as the table has it."""
    owner = module if MODULES[module].name == "__init__.py" else module.rpartition(".")[0]
    return owner.removeprefix("fuse_opt.").replace(".", "/")


def imported_names(source: str, module: str, is_package: bool) -> Iterator[str]:
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


@cache
def imports_of(module: str) -> tuple[str, ...]:
    """What a file of ours imports."""
    path = MODULES[module]
    return tuple(imported_names(path.read_text(), module, path.name == "__init__.py"))


def imported_module(name: str) -> str | None:
    """The module of ours that an imported name is or lies in."""
    while name:
        if name in MODULES:
            return name
        name = name.rpartition(".")[0]
    return None


def find_violations(package: Package, imports: Iterable[str]) -> list[str]:
    """The imports that a file of this package may not have."""
    folder = package.path.partition("/")[0]

    def allowed(name: str) -> bool:
        top = name.partition(".")[0]
        if top == "fuse_opt":
            if name == "fuse_opt.__version__":
                return True
            module = imported_module(name)
            return module is not None and package.allows(package_of(module))
        if top in FOLDERS:
            return False  # `import dialects` from the repository root would define every op twice
        if top == "pycuda":
            return folder == "runtime"
        if folder in ("dialects", "fuse_opt") and top not in sys.stdlib_module_names:
            return (folder, top) == ("dialects", "xdsl")
        return True

    return sorted({name for name in imports if not allowed(name)})


def circles(graph: Mapping[str, Collection[str]]) -> list[list[str]]:
    """The strongly connected components of more than one node (Tarjan 1972), each sorted."""
    place: dict[str, int] = {}
    low: dict[str, int] = {}
    stack: list[str] = []
    found: list[list[str]] = []

    def visit(node: str) -> None:
        place[node] = low[node] = len(place)
        stack.append(node)
        for other in sorted(graph.get(node, ())):
            if other not in place:
                visit(other)
            low[node] = min(low[node], low[other]) if other in stack else low[node]
        if low[node] == place[node]:
            component = stack[stack.index(node) :]
            del stack[stack.index(node) :]
            if len(component) > 1:
                found.append(sorted(component))

    for node in sorted(graph):
        if node not in place:
            visit(node)
    return found


def files_graph() -> dict[str, set[str]]:
    """By module: the modules of ours that it imports."""
    graph: dict[str, set[str]] = {}
    for module in MODULES:
        graph[module] = {found for name in imports_of(module) if (found := imported_module(name)) is not None} - {
            module
        }
    return graph


def packages_graph(files: Mapping[str, Collection[str]]) -> dict[str, set[str]]:
    graph: dict[str, set[str]] = {}
    for module, others in files.items():
        own = package_of(module)
        graph.setdefault(own, set()).update(package_of(other) for other in others if package_of(other) != own)
    return graph


def by_package() -> Mapping[str, list[str]]:
    found: defaultdict[str, list[str]] = defaultdict(list)
    for module in MODULES:
        found[package_of(module)].append(module)
    return found


@pytest.mark.parametrize(("package", "modules"), by_package().items(), ids=list(by_package()))
def test_files_import_only_what_their_package_may(package: str, modules: list[str]):
    wrong = {module: find_violations(PACKAGES[package], imports_of(module)) for module in modules}
    assert not {module: names for module, names in wrong.items() if names}, "see tools/develop/packages.tsv"


def test_there_are_no_circles():
    files = files_graph()
    assert circles(files) == []
    assert circles(packages_graph(files)) == []
    assert circles({"a": ["b"], "b": ["c"], "c": ["b", "d"], "d": ["a"], "e": ["a"]}) == [["a", "b", "c", "d"]]


def test_the_table_has_every_package_and_no_rule_that_nothing_needs():
    assert list(PACKAGES) == list(dict.fromkeys(PACKAGES)) and set(PACKAGES) == {package_of(m) for m in MODULES}
    rules = [rule.removesuffix("/*") for package in PACKAGES.values() for rule in package.may_import]
    assert set(rules) <= set(PACKAGES)
    order = list(PACKAGES)
    roots = {name.partition("/")[0] for name in order}
    assert [r for r in ("dialects", "passes", "lowering", "runtime", "frontends", "tools") if r not in roots] == []


@pytest.mark.parametrize("package", PACKAGES.values(), ids=list(PACKAGES))
def test_package_says_what_it_holds_and_is_of_a_size_to_look_through(package: Package):
    """`python -m fuse_opt.tools.develop.packages` writes what packages say."""
    modules = [path for path in (ROOT / package.path).glob("*.py") if not path.name.startswith("__")]
    assert len(modules) <= LARGEST
    if package.path != "fuse_opt":
        text = (ROOT / package.path / "__init__.py").read_text()
        assert text.startswith(package.docstring), "python -m fuse_opt.tools.develop.packages"


@pytest.mark.parametrize(
    ("path", "others"),
    [
        ("dialects/verify", ["dialects/analysis"]),
        ("lowering/cpu", ["lowering/gpu"]),
        ("lowering/gpu", ["lowering/cpu"]),
        ("tools/compiler", ["frontends", "frontends/torch", "tools/commands"]),
        ("passes/fusion/engine", ["passes/fusion", "passes/fusion/patterns"]),
        ("passes/memory/packing", ["dialects/interfaces", "passes/memory"]),
        ("runtime/cpu", ["lowering/cpu", "dialects/fused"]),
    ],
)
def test_what_the_design_keeps_apart_no_rule_joins(path: str, others: Sequence[str]):
    assert [other for other in others if PACKAGES[path].allows(other)] == []


@pytest.mark.parametrize(
    ("package", "source"),
    [
        ("dialects/types", "import numpy as np"),
        ("dialects/graph/elementwise", "from fuse_opt.passes.simplify import cse"),
        ("dialects/interfaces", "from fuse_opt import compile"),
        ("dialects/verify", "from fuse_opt.dialects.analysis.loop_body import LoopBody"),
        ("passes/simplify", "def f():\n    from fuse_opt.lowering.program import Program"),
        ("passes/memory", "import typing\nif typing.TYPE_CHECKING:\n    from fuse_opt.runtime import buffers"),
        ("passes/fusion/engine", "from fuse_opt.passes.fusion import fuse_row"),
        ("passes/memory/packing", "from fuse_opt.dialects.fused import KernelOp"),
        ("passes/devices", "import importlib\nimportlib.import_module('fuse_opt.runtime.cuda.program')"),
        ("lowering/cpu", "from dialects import graph"),
        ("lowering/cpu", "from fuse_opt.lowering.gpu.split import Phase"),
        ("lowering/gpu", "from fuse_opt.lowering import cpu"),
        ("lowering/c", "import pycuda.driver"),
        ("runtime/cpu", "import fuse_opt.lowering.c.printer"),
        ("runtime/host", "from fuse_opt.lowering.c import printer"),
        ("tools/compiler", "def f():\n    from fuse_opt.frontends import onnx"),
        ("frontends/torch/importer", "from fuse_opt.tools.compiler.api import compile"),
        ("fuse_opt", "import xdsl.ir"),
    ],
)
def test_violations_are_found(package: str, source: str):
    module = f"fuse_opt.{package.replace('/', '.')}.module"
    assert find_violations(PACKAGES[package], imported_names(source, module, False)) != []


@pytest.mark.parametrize(
    ("package", "source"),
    [
        ("dialects/interfaces", "from xdsl.ir import Dialect\nfrom fuse_opt.dialects import scalar\nimport math"),
        ("passes/simplify", "from fuse_opt.dialects import fused\nfrom ..rewrite_pass import RewritePass"),
        ("runtime/host", "from fuse_opt import __version__\nfrom fuse_opt.lowering.program import Program"),
        ("runtime/device", "import numpy as np\nimport pycuda.driver"),
        ("runtime", "from fuse_opt.lowering import program"),
        ("tools/commands", "import fuse_opt.runtime.cuda.program"),
    ],
)
def test_permitted_imports_pass(package: str, source: str):
    module = f"fuse_opt.{package.replace('/', '.')}.module"
    assert find_violations(PACKAGES[package], imported_names(source, module, False)) == []


def test_face_imports_nothing_when_imported():
    body = ast.parse((ROOT / "fuse_opt" / "__init__.py").read_text()).body
    at_import = [node for node in body if isinstance(node, (ast.Import, ast.ImportFrom))]
    assert [ast.unparse(node) for node in at_import] == ["from typing import TYPE_CHECKING"]


def test_no_file_is_a_drawer_for_everything():
    folders = {*FOLDERS, "benchmarks", "examples", "tests", "test_lit"}
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


def test_file_of_a_pass_is_named_after_it():
    found = 0
    for path in (path for path in SOURCES if path.relative_to(ROOT).parts[0] in ("passes", "lowering")):
        names = pass_names(text) if "Pass" in (text := path.read_text()) else []
        if names or path.stem.startswith("convert_"):
            assert names == [path.stem.replace("_", "-")], path
            found += 1
    assert found > 30


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
