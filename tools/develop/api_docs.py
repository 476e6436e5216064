"""The reference of the Python interface, from docstrings and signatures: docs/api.md.

python -m fuse_opt.tools.develop.api_docs [--check]

What a package re-exports in `__all__` is public; docs promise no other path.
"""

from __future__ import annotations

import ast
import re
import sys
from collections.abc import Iterator

from fuse_opt.tools.develop.api_source import (
    Definition,
    Field,
    bases,
    constant_doc,
    decorators,
    definition,
    doc_of,
    exported,
    fields,
    methods,
    module_tree,
    signature,
)
from fuse_opt.tools.develop.generated import Files, Generator

PAGE = "docs/api.md"
FACES: tuple[str, ...] = (
    "fuse_opt",
    "fuse_opt.frontends.torch",
    "fuse_opt.frontends.onnx",
    "fuse_opt.frontends.stablehlo",
    "fuse_opt.dialects.interfaces",
    "fuse_opt.dialects.graph",
    "fuse_opt.dialects.implementation",
    "fuse_opt.lowering.reference.kernels",
    "fuse_opt.passes.decisions",
    "fuse_opt.passes.fusion.engine",
    "fuse_opt.tools.compiler",
)
"""The packages whose names are public."""

STATS: tuple[tuple[str, str, str], ...] = (
    ("fuse_opt.lowering.program.record", "ProgramStats", "every compiled program"),
    ("fuse_opt.runtime.cpu.program", "CpuStats", '`target="cpu"`, besides'),
    ("fuse_opt.runtime.cuda.program", "CudaStats", '`target="cuda"`, besides'),
)
"""Where the fields of `CompiledProgram.stats` are stated, and for which programs."""

INTRODUCTION = """# Python API

Generated from docstrings and signatures by `{command}`.
What is listed here is public; any other module may change without notice. `import fuse_opt` alone imports neither xDSL nor NumPy.

The functions that scalar meanings are written with are those of `fuse_opt.dialects.scalar`
([scalar primitives](ops/scalar-primitives.md)), the options of passes stand in `fuse-opt --help`, and the commands in
[the tour](tour.md).

{contents}
"""


def files() -> Files:
    """The page."""
    return {PAGE: "\n".join(_page()).rstrip() + "\n"}


def _page() -> Iterator[str]:
    contents = "\n".join(f"- [{face}](#{face.replace('.', '')}): {_first_line(face)}" for face in FACES)
    yield INTRODUCTION.format(command=GENERATOR.command, contents=contents)
    for face in FACES:
        yield f"## {face}\n"
        yield f"{_first_line(face)}\n"
        for name in exported(face):
            if (found := definition(face, name)) is not None:
                yield from _entry(face, name, found)
        if face == "fuse_opt":
            yield from _stats()


def _first_line(module: str) -> str:
    return (ast.get_docstring(module_tree(module)) or "").split("\n\n")[0].replace("\n", " ")


def _entry(face: str, name: str, node: Definition) -> Iterator[str]:
    yield f"### {name}\n"
    match node:
        case ast.FunctionDef():
            yield from _function(node, name)
        case ast.ClassDef():
            yield from _class(node, name)
        case _:
            yield f"A constant. {constant_doc(face, name)}\n"


def _function(node: ast.FunctionDef, name: str) -> Iterator[str]:
    with_ = "with " if "contextmanager" in decorators(node) else ""
    yield f"```python\n{with_}{signature(node, name)}\n```\n"
    if "abstractmethod" in decorators(node):
        yield "To be stated by an op.\n"
    if doc := doc_of(node):
        yield f"{doc}\n"


def _class(node: ast.ClassDef, name: str) -> Iterator[str]:
    inherited = f"({', '.join(bases(node))})" if node.bases else ""
    record = "@dataclass\n" if "dataclass" in decorators(node) else ""
    yield f"```python\n{record}class {name}{inherited}\n```\n"
    if doc := doc_of(node):
        yield f"{doc}\n"
    if listed := [_field(field) for field in fields(node)]:
        yield "\n".join(listed) + "\n"
    for method in methods(node):
        if doc_of(method) or "abstractmethod" in decorators(method):  # another one says what the base's says
            yield f"#### {name}.{method.name}\n"
            yield from _function(method, _object_of(name) if method.name == "__call__" else f"{name}.{method.name}")


def _object_of(name: str) -> str:
    """`program` for CompiledProgram."""
    return re.findall("[A-Z][a-z]*", name)[-1].lower()


def _field(field: Field) -> str:
    type_ = f": {field.type}" if field.type else ""
    default = f" = {field.default}" if field.default else ""
    doc = f". {field.doc}" if field.doc else ""
    return f"- `{field.name}{type_}{default}`" + doc.replace("\n\n", " ").replace("\n", " ")


def _stats() -> Iterator[str]:
    yield "### Stats of programs\n"
    yield "`CompiledProgram.stats` has these fields.\n"
    for module, name, where in STATS:
        node = definition(module, name)
        assert isinstance(node, ast.ClassDef)
        yield f"For {where}: {doc_of(node)}\n"
        yield "\n".join(map(_field, fields(node))) + "\n"


GENERATOR = Generator("api_docs", files)

if __name__ == "__main__":
    sys.exit(GENERATOR.main())
