"""What the source says of public names, read without importing it: front ends import libraries that may not be there."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from inspect import cleandoc
from itertools import pairwise

from fuse_opt.tools.develop.generated import ROOT, read

Definition = ast.ClassDef | ast.FunctionDef | ast.Assign | ast.AnnAssign


@dataclass(frozen=True, slots=True)
class Field:
    """A field of a class, or a property."""

    name: str
    type: str
    default: str
    doc: str


@cache
def module_tree(module: str) -> ast.Module:
    """The tree of `fuse_opt.a.b`. Raises FileNotFoundError."""
    return ast.parse(read(_path(module)))


def _path(module: str) -> str:
    folders = module.split(".")
    base = "/".join(folders if len(folders) == 1 else folders[1:])
    return f"{base}.py" if (ROOT / f"{base}.py").is_file() else f"{base}/__init__.py"


def exported(module: str) -> list[str]:
    """The names in a package's `__all__`, in its order; those that begin with `__` left out."""
    for node in module_tree(module).body:
        if isinstance(node, ast.Assign) and any(isinstance(t, ast.Name) and t.id == "__all__" for t in node.targets):
            return [name for name in ast.literal_eval(node.value) if not name.startswith("__")]
    raise ValueError(f"{module} states no __all__")


def definition(module: str, name: str) -> Definition | None:
    """What defines a name, through re-exports; None where it is a module."""
    tree = module_tree(module)
    for node in tree.body:
        if isinstance(node, ast.ClassDef | ast.FunctionDef) and node.name == name:
            return node
        if isinstance(node, ast.Assign | ast.AnnAssign) and name in _targets(node):
            return node
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and node.module:
            for alias in node.names:
                if (alias.asname or alias.name) == name:
                    is_module = (ROOT / _path(f"{node.module}.{alias.name}")).is_file()
                    return None if is_module else definition(node.module, alias.name)
    raise ValueError(f"{module} has no '{name}'")


def _targets(node: ast.Assign | ast.AnnAssign) -> list[str]:
    targets = node.targets if isinstance(node, ast.Assign) else [node.target]
    return [target.id for target in targets if isinstance(target, ast.Name)]


def doc_of(node: ast.AST) -> str:
    """The docstring of a class or function, its lines as they are."""
    return ast.get_docstring(node) or "" if isinstance(node, ast.ClassDef | ast.FunctionDef) else ""


def constant_doc(module: str, name: str) -> str:
    """The string below a constant, in the module that re-exports it or where it is defined."""
    for node in ast.walk(module_tree(module)):
        if isinstance(node, ast.ImportFrom) and node.module and name in [alias.name for alias in node.names]:
            return constant_doc(node.module, name)
    body = module_tree(module).body
    for node, below in pairwise(body):
        if isinstance(node, ast.Assign | ast.AnnAssign) and name in _targets(node):
            match below:
                case ast.Expr(ast.Constant(str(text))):
                    return cleandoc(text)
                case _:
                    break
    return ""


def bases(node: ast.ClassDef) -> list[str]:
    return [ast.unparse(base) for base in node.bases]


def decorators(node: ast.ClassDef | ast.FunctionDef) -> set[str]:
    return {ast.unparse(each).partition("(")[0] for each in node.decorator_list}


def fields(node: ast.ClassDef) -> Iterator[Field]:
    """The public fields of a class with the strings below them, those that `__init__` documents, and its properties."""
    yield from _fields(node.body)
    for function in node.body:
        if isinstance(function, ast.FunctionDef) and function.name == "__init__":
            yield from (field for field in _fields(function.body) if field.doc)
        if isinstance(function, ast.FunctionDef) and _is_property(function) and not function.name.startswith("_"):
            yield Field(function.name, _text(function.returns), "", doc_of(function))


def _is_property(function: ast.FunctionDef) -> bool:
    return bool(decorators(function) & {"property", "cached_property"})


def _fields(body: list[ast.stmt]) -> Iterator[Field]:
    for number, node in enumerate(body):
        below = body[number + 1] if number + 1 < len(body) else None
        match below:
            case ast.Expr(ast.Constant(str(text))):
                doc = cleandoc(text)
            case _:
                doc = ""
        match node:
            case ast.AnnAssign(ast.Name(name), type_, value):
                default = _text(value)
            case ast.Assign([ast.Attribute(ast.Name("self"), name)]) if doc:
                type_, default = None, ""
            case _:
                continue
        if not name.startswith("_"):
            yield Field(name, _text(type_), default, doc)


def methods(node: ast.ClassDef) -> Iterator[ast.FunctionDef]:
    """The public methods, and `__call__`."""
    for function in node.body:
        if isinstance(function, ast.FunctionDef) and not _is_property(function):
            yield from [function] if function.name == "__call__" or not function.name.startswith("_") else []


def signature(function: ast.FunctionDef, name: str, width: int = 100) -> str:
    """`name(a: int, *, b: str = "x") -> None`, a line for each argument where one line is too long."""
    parts = list(_arguments(function.args))
    returns = f" -> {_text(function.returns)}" if function.returns is not None else ""
    line = f"{name}({', '.join(parts)}){returns}"
    if len(line) <= width:
        return line
    inner = "".join(f"    {part},\n" for part in parts)
    return f"{name}(\n{inner}){returns}"


def _arguments(given: ast.arguments) -> Iterator[str]:
    positional = [*given.posonlyargs, *given.args]
    defaults = [None] * (len(positional) - len(given.defaults)) + list(given.defaults)
    for argument, default in zip(positional, defaults, strict=True):
        if argument.arg not in ("self", "cls"):
            yield _argument(argument, default)
    if given.vararg is not None:
        yield f"*{_argument(given.vararg, None)}"
    elif given.kwonlyargs:
        yield "*"
    for argument, default in zip(given.kwonlyargs, given.kw_defaults, strict=True):
        yield _argument(argument, default)
    if given.kwarg is not None:
        yield f"**{_argument(given.kwarg, None)}"


def _argument(argument: ast.arg, default: ast.expr | None) -> str:
    text = argument.arg + (f": {_text(argument.annotation)}" if argument.annotation is not None else "")
    return text if default is None else f"{text} = {_text(default)}"


def _text(node: ast.expr | None) -> str:
    return "" if node is None else ast.unparse(node).replace("'", '"')
