"""A Graphviz graph: ops as nodes, kernels as clusters of theirs, values as edges with their types."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import IO

from xdsl.context import Context
from xdsl.dialects.builtin import ModuleOp
from xdsl.dialects.func import FuncOp
from xdsl.ir import Attribute, Block, BlockArgument, Operation, SSAValue
from xdsl.utils.target import Target

from fuse_opt.dialects.fused import OutlinedOp
from fuse_opt.dialects.interfaces.opaque_op import OpaqueOp
from fuse_opt.tools.source.value_names import value_names
from fuse_opt.tools.targets.target_json import describe_attribute

_LONGEST_LABEL = 60


@dataclass(frozen=True)
class DotTarget(Target):
    """One cluster for each function, in it one for each kernel; ops run by a library are boxes with a bold frame."""

    name = "dot"

    def emit(self, ctx: Context, module: ModuleOp, output: IO[str]) -> None:
        output.write("\n".join(_Drawing(module).lines()) + "\n")


class _Drawing:
    def __init__(self, module: ModuleOp) -> None:
        self._module = module
        self._names = value_names(module)
        self._node: dict[SSAValue, str] = {}
        """By value: the node it comes from."""
        self._count = 0

    def lines(self) -> Iterator[str]:
        yield "digraph program {"
        yield "  rankdir = TB;"
        yield '  node [shape = box, style = rounded, fontname = "Helvetica", fontsize = 10];'
        yield '  edge [fontname = "Helvetica", fontsize = 9];'
        for op in self._module.ops:
            if isinstance(op, FuncOp):
                yield from self._function(op)
        yield "}"

    def _function(self, function: FuncOp) -> Iterator[str]:
        yield f"  subgraph {self._fresh('cluster_')} {{"
        yield f"    label = {_quoted('@' + function.sym_name.data)};"
        for block in function.body.blocks:
            for value in block.args:
                yield f"    {self._argument(value)} [shape = ellipse, label = {_quoted(self._name(value))}];"
            yield from self._ops(block, "    ")
        yield "  }"

    def _ops(self, block: Block, indent: str) -> Iterator[str]:
        for op in block.ops:
            if isinstance(op, OutlinedOp):
                yield from self._kernel(op, indent)
            else:
                yield from self._plain(op, indent)

    def _kernel(self, kernel: OutlinedOp, indent: str) -> Iterator[str]:
        """The ops of a kernel take their operands from outside; what it yields is what its results come from."""
        for inner, outer in zip(kernel.block.args, kernel.operands, strict=True):
            if outer in self._node:
                self._node[inner] = self._node[outer]
        yield f"{indent}subgraph {self._fresh('cluster_')} {{"
        yield f"{indent}  label = {_quoted(_label('fused.kernel', {**kernel.properties, **kernel.attributes}))};"
        yield f'{indent}  style = "rounded,filled"; fillcolor = "#eef3fa";'
        body = [op for op in kernel.block.ops if op is not kernel.block.last_op]
        edges: list[str] = []
        for op in body:
            node, *rest = self._plain(op, f"{indent}  ")
            yield node
            edges += rest
        if not body:
            yield f"{indent}  {self._fresh('empty_')} [style = invis, label = {_quoted('')}];"
        yield f"{indent}}}"
        yield from (f"{indent}{edge.lstrip()}" for edge in edges)
        for result, yielded in zip(kernel.results, kernel.yielded(), strict=True):
            if yielded in self._node:
                self._node[result] = self._node[yielded]

    def _plain(self, op: Operation, indent: str) -> Iterator[str]:
        node = self._fresh("op_")
        for result in op.results:
            self._node[result] = node
        frame = ", style = bold" if isinstance(op, OpaqueOp) else ""
        yield f"{indent}{node} [label = {_quoted(_label(op.name, {**op.properties, **op.attributes}))}{frame}];"
        for value in op.operands:
            if value in self._node:
                label = f"{self._name(value)}: {value.type}"
                yield f"{indent}{self._node[value]} -> {node} [label = {_quoted(label)}];"
        for region in op.regions:
            for block in region.blocks:
                for value in block.args:
                    yield f"{indent}{self._argument(value)} [shape = ellipse, label = {_quoted(self._name(value))}];"
                yield from self._ops(block, indent)

    def _argument(self, value: BlockArgument) -> str:
        node = self._node[value] = self._fresh("arg_")
        return node

    def _name(self, value: SSAValue) -> str:
        return self._names.get(value, "?")

    def _fresh(self, prefix: str) -> str:
        self._count += 1
        return f"{prefix}{self._count}"


def _label(name: str, attributes: Mapping[str, Attribute]) -> str:
    lines = [name]
    for key, value in attributes.items():
        text = f"{key} = {json.dumps(describe_attribute(value), ensure_ascii=False)}"
        lines.append(text if len(text) <= _LONGEST_LABEL else f"{text[: _LONGEST_LABEL - 3]}...")
    return "\n".join(lines)


def _quoted(text: str) -> str:
    """A DOT string of exactly this text: backslashes must not start its escapes."""
    escaped = text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n").replace("\r", "")
    return f'"{escaped}"'
