"""The installed package is the source tree: package list, data files, links, and what `import fuse_opt` costs."""

import ast
import os
import subprocess
import sys
import tomllib
from importlib.metadata import distribution
from importlib.util import find_spec
from pathlib import Path
from typing import cast

import pytest

import fuse_opt

ROOT = Path(__file__).resolve().parents[2]
PYPROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())
SETUPTOOLS = PYPROJECT["tool"]["setuptools"]
FOLDERS = sorted(
    folder.name
    for folder in (ROOT / name for name in ("dialects", "frontends", "lowering", "passes", "runtime", "tools"))
    if any(folder.rglob("*.py"))
)
"""The root folders that are sub-packages of fuse_opt."""
EXAMPLES = {"fuse_opt.examples": "examples"}
"""Programs that the demo takes, also where there is no checkout."""


def packages_in_tree() -> dict[str, str]:
    """Every package that the tree holds, with its folder."""
    packages = {"fuse_opt": "fuse_opt"}
    for folder in FOLDERS:
        folders = {path.parent for path in (ROOT / folder).rglob("*.py")}
        relative = [folder.relative_to(ROOT) for folder in folders]
        packages |= {".".join(("fuse_opt", *folder.parts)): folder.as_posix() for folder in relative}
    return packages


def test_every_folder_with_python_files_is_packaged():
    packages = packages_in_tree() | EXAMPLES
    assert SETUPTOOLS["packages"] == sorted(packages)
    assert SETUPTOOLS["package-dir"] == {
        name: packages[name] for name in ("fuse_opt", *EXAMPLES, *(f"fuse_opt.{f}" for f in FOLDERS))
    }
    assert SETUPTOOLS["package-data"]["fuse_opt.examples"] == ["*.mlir"]


@pytest.mark.parametrize("folder", sorted(packages_in_tree().values()))
def test_every_package_has_an_init_file(folder: str):
    assert (ROOT / folder / "__init__.py").is_file()


@pytest.mark.parametrize("folder", FOLDERS)
def test_every_data_file_is_packaged(folder: str):
    patterns = cast(list[str], SETUPTOOLS["package-data"]["*"])
    folders = {ROOT / folder for folder in packages_in_tree().values()}
    files = [
        p for p in (ROOT / folder).rglob("*") if p.is_file() and "__pycache__" not in p.parts and p.suffix != ".py"
    ]
    left_out = [p for p in files if p.parent not in folders or not any(p.match(pattern) for pattern in patterns)]
    assert left_out == []


def test_links_show_the_folders_to_editors():
    links = {path.name: os.readlink(path) for path in (ROOT / "fuse_opt").iterdir() if path.is_symlink()}
    assert links == {folder: f"../{folder}" for folder in FOLDERS}


def test_type_checker_reads_each_file_as_imports_do():
    included = cast(list[str], PYPROJECT["tool"]["pyright"]["include"])
    assert included == ["fuse_opt/*.py", *(f"fuse_opt/{folder}" for folder in FOLDERS), "tests"]


def test_requirements_stay_small():
    project = PYPROJECT["project"]
    assert project["dependencies"] == ["xdsl>=0.74,<0.75", "numpy"]
    extras = cast(dict[str, list[str]], project["optional-dependencies"])
    assert [name for name, wanted in extras.items() if name != "cuda" and any("cuda" in item for item in wanted)] == []


def test_no_tool_hides_a_standard_module():
    # `python3 tools/bootstrap.py` puts tools/ first on sys.path, before the standard library.
    assert [p.name for p in (ROOT / "tools").glob("*.py") if p.stem in sys.stdlib_module_names] == []


def test_import_is_lazy():
    probe = "import sys, fuse_opt; print([m for m in ('xdsl', 'numpy', 'fuse_opt.tools') if m in sys.modules])"
    result = subprocess.run([sys.executable, "-c", probe], capture_output=True, text=True, check=True)
    assert result.stdout.strip() == "[]"


def test_face_lists_and_loads_its_names():
    assert set(fuse_opt.__all__) <= set(dir(fuse_opt))
    for name in fuse_opt.__all__:
        assert getattr(fuse_opt, name) is not None
    with pytest.raises(AttributeError, match="no attribute 'no_such_name'"):
        _ = fuse_opt.no_such_name  # pyright: ignore[reportAttributeAccessIssue,reportUnknownMemberType,reportUnknownVariableType]


def test_entry_points_load():
    commands = ("fuse-opt", "fuse-pack", "fuse-run", "fuse-tune")
    optional = {("torch_dynamo_backends", "fuse_opt"): "torch"}
    declared = {("xdsl.universe", "fuse-opt"), *(("console_scripts", name) for name in commands), *optional}
    ours = distribution("fuse-opt").entry_points
    assert {(entry.group, entry.name) for entry in ours} == declared
    for entry in ours:
        needed = optional.get((entry.group, entry.name))
        if needed is None or find_spec(needed) is not None:
            assert entry.load() is not None


def test_version_is_stated_once():
    assert "version" in PYPROJECT["project"]["dynamic"]
    tree = ast.parse((ROOT / "fuse_opt" / "__init__.py").read_text())
    values = [ast.literal_eval(node.value) for node in tree.body if isinstance(node, ast.Assign)]
    assert values[0] == fuse_opt.__version__
