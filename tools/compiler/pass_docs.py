"""What passes say of themselves: their group, docstring and options, read from their files without importing any."""

from __future__ import annotations

import ast
import functools
import inspect
from dataclasses import dataclass
from pathlib import Path
from typing import cast

from fuse_opt.tools.compiler.registry import ROOT, pass_files

_VALUES = {
    "int": "N",
    "float": "X",
    "str": "WORD",
    "tuple[str, ...]": "WORD,...",
    "tuple[int, ...]": "N,...",
    "bool": "",
}
"""By the type of a field: what stands behind `option=`; nothing for a switch, which is written alone."""


@dataclass(frozen=True)
class Option:
    """An option of a pass, as users type it."""

    name: str
    values: str
    """What may be given: `N`, `WORD`, `WORD,...`, `strict|fast`; empty for a switch."""
    default: str
    """Empty where leaving the option out means none of it."""
    doc: str
    stated_by: str
    """The class whose field it is: the pass, or a base that several passes have."""

    @property
    def usage(self) -> str:
        return f"{self.name}={self.values}" if self.values else self.name

    @property
    def text(self) -> str:
        """The doc, with the default behind it."""
        return f"{self.doc} (default: {self.default})" if self.default else self.doc


@dataclass(frozen=True)
class PassDocs:
    """What one pass says."""

    class_name: str
    doc: str
    options: tuple[Option, ...]

    @property
    def own_options(self) -> tuple[Option, ...]:
        """Those that the pass does not share with others."""
        return tuple(option for option in self.options if option.stated_by == self.class_name)


@functools.cache
def pass_docs(name: str) -> PassDocs:
    """The docstring and the options of a pass, in the order of its fields. Raises KeyError for an unknown pass."""
    path = pass_files()[name]
    class_ = next(node for node in _classes(path).values() if _assigned(node, "name") == name)
    return PassDocs(class_.name, _docstring(class_), tuple(_options(path, class_).values()))


def pass_groups() -> dict[str, list[str]]:
    """Names of passes by the folder of the package that holds them, folders and names sorted."""
    groups: dict[str, list[str]] = {}
    for name, path in pass_files().items():
        groups.setdefault(path.parent.relative_to(ROOT).as_posix(), []).append(name)
    return {folder: groups[folder] for folder in sorted(groups)}


def group_summary(folder: str) -> str:
    """What a package says it holds: the first line of its docstring."""
    return (ast.get_docstring(_parsed(ROOT / folder / "__init__.py")) or "").partition("\n")[0]


def shared_options() -> dict[tuple[Option, ...], list[str]]:
    """The options that a base of several passes states, with the names of those passes."""
    found: dict[tuple[Option, ...], list[str]] = {}
    for name in pass_files():
        docs = pass_docs(name)
        for base in dict.fromkeys(o.stated_by for o in docs.options if o.stated_by != docs.class_name):
            found.setdefault(_stated_by(base, name), []).append(name)
    return found


def _stated_by(base: str, name: str) -> tuple[Option, ...]:
    path = pass_files()[name]
    places = _bases(path, _classes(path)[pass_docs(name).class_name])
    for place in places:  # grows: bases of bases come behind all nearer ones
        if place[1].name == base:
            return tuple(_options(*place).values())
        places += _bases(*place)
    return ()


def _options(path: Path, class_: ast.ClassDef) -> dict[str, Option]:
    """By the names of fields; those of bases come first, and a field stated again keeps its position, as in dataclasses."""
    found: dict[str, Option] = {}
    for base in _bases(path, class_):
        found |= _options(*base)
    for node, behind in zip(class_.body, [*class_.body[1:], None], strict=True):
        if isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name) and node.target.id != "name":
            annotation = ast.unparse(node.annotation)
            if not annotation.startswith("ClassVar"):
                default = "" if node.value is None else _default_text(path, node.value)
                shown = node.target.id.rstrip("_").replace("_", "-")
                found[node.target.id] = Option(shown, _values(path, annotation), default, _text_of(behind), class_.name)
    return found


def _bases(path: Path, class_: ast.ClassDef) -> list[tuple[Path, ast.ClassDef]]:
    """The bases that are classes of this file, or of another file of this library."""
    found: list[tuple[Path, ast.ClassDef]] = []
    for base in class_.bases:
        name = base.id if isinstance(base, ast.Name) else ""
        place = path if name in _classes(path) else _imported_from(path, name)
        if place is not None:
            found.append((place, _classes(place)[name]))
    return found


def _imported_from(path: Path, name: str) -> Path | None:
    for node in _parsed(path).body:
        if isinstance(node, ast.ImportFrom) and name in (alias.name for alias in node.names):
            library, _, rest = (node.module or "").partition(".")
            return ROOT.joinpath(*rest.split(".")).with_suffix(".py") if library == "fuse_opt" else None
    return None


def _values(path: Path, annotation: str) -> str:
    """The values of a field's type as a person writes them; `path` is the file whose names the type is said with."""
    plain = annotation.removesuffix(" | None")
    if (named := _constants(_imported_from(path, plain) or path).get(plain)) is not None:
        plain = ast.unparse(named)
    if plain.startswith("Literal["):
        return "|".join(str(ast.literal_eval(word)) for word in plain[len("Literal[") : -1].split(", "))
    return _VALUES.get(plain, plain)


def _default_text(path: Path, value: ast.expr) -> str:
    if isinstance(value, ast.Call) and isinstance(value.func, ast.Name) and value.func.id == "field":
        value = next((word.value for word in value.keywords if word.arg == "default"), ast.Constant(None))
    if isinstance(value, ast.Name):
        value = _constants(path).get(value.id, value)
    try:
        default = ast.literal_eval(value)
    except ValueError:
        return ast.unparse(value)
    if default is None or default == () or default == "":
        return ""
    if isinstance(default, tuple):
        return ",".join(map(str, cast("tuple[object, ...]", default)))
    return str(default).lower() if isinstance(default, bool) else str(default)


@functools.cache
def _constants(path: Path) -> dict[str, ast.expr]:
    """By name: what the file states, or has from another file of ours."""
    found: dict[str, ast.expr] = {}
    for node in _parsed(path).body:
        match node:
            case ast.Assign([ast.Name(name)], value) | ast.AnnAssign(ast.Name(name), _, ast.expr() as value):
                found[name] = value
            case ast.ImportFrom(str(module), names) if module.startswith("fuse_opt.passes."):
                stated = _constants(ROOT / (module.removeprefix("fuse_opt.").replace(".", "/") + ".py"))
                found.update((each.name, stated[each.name]) for each in names if each.name in stated)
            case _:
                pass
    return found


def _assigned(class_: ast.ClassDef, name: str) -> object:
    for node in class_.body:
        if isinstance(node, ast.Assign) and any(isinstance(t, ast.Name) and t.id == name for t in node.targets):
            return node.value.value if isinstance(node.value, ast.Constant) else None
    return None


def _docstring(class_: ast.ClassDef) -> str:
    return ast.get_docstring(class_) or ""


def _text_of(node: ast.stmt | None) -> str:
    """A string that stands alone, as one line."""
    if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant) and isinstance(node.value.value, str):
        return " ".join(inspect.cleandoc(node.value.value).split())
    return ""


@functools.cache
def _classes(path: Path) -> dict[str, ast.ClassDef]:
    return {node.name: node for node in _parsed(path).body if isinstance(node, ast.ClassDef)}


@functools.cache
def _parsed(path: Path) -> ast.Module:
    return ast.parse(path.read_text(encoding="utf-8"))
