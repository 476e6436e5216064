"""Programs of torch.export: compiled once for the range of each `Dim`, called as the module was that they were exported of.

program = torch.export.export(model, (x,), dynamic_shapes=({0: Dim("batch", max=512)},))
fast = compile_exported(program, ({0: Dim("batch", max=512)},))
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from importlib import import_module
from typing import Any, cast

from xdsl.dialects.builtin import DYNAMIC_INDEX

from fuse_opt.dialects.interfaces.shapes import sizes_asked_for
from fuse_opt.dialects.types.extents import is_symbol, substitute
from fuse_opt.dialects.types.size import Extent, Size, symbol
from fuse_opt.frontends.torch.backend import Options, compile_graph
from fuse_opt.frontends.torch.dynamic_shapes import is_known
from fuse_opt.frontends.torch.fx.api import is_tensor, torch
from fuse_opt.frontends.torch.fx.symbols import known_shape
from fuse_opt.frontends.torch.operators.decompositions import decompositions
from fuse_opt.tools.compiler.specialization import bind_extents


@dataclass(frozen=True)
class _Output:
    """What becomes of a result of the graph."""

    kind: str
    target: str


class ExportedCall:
    """A program as a function of what its module takes; extents are checked by the names of its dimensions."""

    def __init__(self, program: Any, dynamic_shapes: Any = None, options: Options | None = None) -> None:
        """See `compile_exported`."""
        lowered = program.run_decompositions(decompositions())
        self._tree: Any = import_module("torch.utils._pytree")
        self._spec, self._out_spec = lowered.call_spec.in_spec, lowered.call_spec.out_spec
        signature = lowered.graph_signature
        placeholders = [node for node in lowered.graph.nodes if node.op == "placeholder"]
        self._inputs = [spec.kind.name == "USER_INPUT" for spec in signature.input_specs]
        self._state = [
            None if spec.kind.name == "USER_INPUT" else _state_of(lowered, spec) for spec in signature.input_specs
        ]
        self._positions = {node.name: number for number, node in enumerate(placeholders)}
        self._targets = {spec.target: number for number, spec in enumerate(signature.input_specs) if spec.target}
        self._outputs = [_Output(spec.kind.name, spec.target or "") for spec in signature.output_specs]
        if unknown := sorted({one.kind for one in self._outputs} - set(_KINDS)):
            raise ValueError(f"expected results of kinds {', '.join(_KINDS)}, got {unknown[0]}; export for inference")
        values = [node.meta.get("val") for node, given in zip(placeholders, self._inputs, strict=True) if given]
        with sizes_asked_for():
            shapes = [known_shape(value) if is_tensor(value) else () for value in values]
        if any(shape is None for shape in shapes):
            raise ValueError("expected extents that follow from those of arguments")
        self._known = _renamed(cast("list[tuple[Extent, ...]]", shapes), _names(self._tree, dynamic_shapes, shapes))
        self._dtypes = [value.dtype if is_tensor(value) else None for value in values]
        self._values = values
        self._checked: set[tuple[Any, ...]] = set()
        examples = [node.meta.get("val") for node in placeholders]
        self._run = compile_graph(lowered.graph_module, examples, kind="inference", options=options or Options())

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Raises ValueError for extents that the program is not for, TypeError for other arguments than it takes."""
        given, spec = self._tree.tree_flatten((args, kwargs))
        if spec != self._spec:
            raise TypeError(f"expected arguments as {self._spec}, got {spec}; call it as the module was exported")
        self._check(given)
        rest = iter(given)
        full = [next(rest) if is_input else state for is_input, state in zip(self._inputs, self._state, strict=True)]
        with torch.no_grad():
            results = self._run(list(full))
            found = [self._kept(output, value, full) for output, value in zip(self._outputs, results, strict=True)]
        outputs = [value for output, value in zip(self._outputs, found, strict=True) if output.kind == "USER_OUTPUT"]
        return self._tree.tree_unflatten(outputs, self._out_spec)

    def _kept(self, output: _Output, value: Any, full: Sequence[Any]) -> Any:
        """A result, written to what it changes where it is no result of the module."""
        if output.kind == "USER_INPUT_MUTATION":
            full[self._positions[output.target]].copy_(value)
        elif output.kind == "BUFFER_MUTATION":
            full[self._targets[output.target]].copy_(value)
        return value

    def _check(self, given: Sequence[Any]) -> None:
        key = tuple([value.shape if is_tensor(value) else value for value in given])
        if key in self._checked:
            return
        for number, (value, dtype, known) in enumerate(zip(given, self._dtypes, self._known, strict=True)):
            if dtype is None:
                if is_known(wanted := self._values[number]) and value != wanted:
                    raise ValueError(f"argument {number}: expected {wanted!r}, as it was exported with, got {value!r}")
                continue
            if not is_tensor(value) or value.dtype is not dtype or value.ndim != len(known):
                raise TypeError(
                    f"argument {number}: expected a tensor of {dtype} with {len(known)} axes, got {_said(value)}"
                )
            for axis, (extent, wanted) in enumerate(zip(value.shape, known, strict=True)):
                if not isinstance(wanted, Size) and wanted not in (extent, DYNAMIC_INDEX):
                    raise ValueError(f"argument {number}, axis {axis} has {extent}; expected {wanted}")
        shapes = {number: value.shape for number, value in enumerate(given) if is_tensor(value)}
        bind_extents(self._known, shapes)
        if len(self._checked) < _MOST_CHECKED:
            self._checked.add(key)


_KINDS = ("USER_OUTPUT", "USER_INPUT_MUTATION", "BUFFER_MUTATION")
_MOST_CHECKED = 1024


def compile_exported(program: Any, dynamic_shapes: Any = None, options: Options | None = None) -> ExportedCall:
    """
    One program for all extents in the ranges of an ExportedProgram, which keeps these but not the names of dimensions: errors
    name them where `dynamic_shapes` is what was given to `torch.export.export`. Raises what compiling raises, and ValueError
    for programs that are no function of their arguments and state.
    """
    return ExportedCall(program, dynamic_shapes, options)


def _state_of(program: Any, spec: Any) -> Any:
    """A parameter, a buffer or a constant."""
    for known in (program.state_dict, program.constants):
        if spec.target in known:
            return known[spec.target].detach()
    raise ValueError(f"expected a tensor for '{spec.target}' ({spec.kind.name}) in the exported program")


def _names(tree: Any, dynamic_shapes: Any, shapes: Sequence[Any]) -> dict[str, str]:
    """By symbol the name of the dimension that says so."""
    if dynamic_shapes is None:
        return {}
    leaves = tree.tree_leaves(dynamic_shapes, is_leaf=_is_of_one_tensor)
    if len(leaves) != len(shapes):
        raise ValueError(f"'dynamic_shapes': expected one entry for each of {len(shapes)} arguments, got {len(leaves)}")
    found: dict[str, str] = {}
    for leaf, shape in zip(leaves, shapes, strict=True):
        entries = cast("Mapping[int, Any]", leaf).items() if isinstance(leaf, Mapping) else enumerate(leaf or ())
        for axis, dim in entries:
            one, name = is_symbol(shape[axis]), getattr(dim, "__name__", None)
            if one is not None and name is not None:
                found.setdefault(one.name, name)
    return found


def _is_of_one_tensor(entry: Any) -> bool:
    if isinstance(entry, Mapping):
        return all(isinstance(axis, int) for axis in cast("Mapping[Any, Any]", entry))
    items = cast("Sequence[Any]", entry) if isinstance(entry, list | tuple) else ()
    return entry is None or any(getattr(item, "__name__", None) is not None or isinstance(item, int) for item in items)


def _renamed(shapes: Sequence[tuple[Extent, ...]], names: Mapping[str, str]) -> list[tuple[Extent, ...]]:
    """With symbols by the names of dimensions; `?` for sizes over symbols that no argument has by themselves."""
    found = {one.name: one for shape in shapes for one in map(is_symbol, shape) if one is not None}
    named: dict[str, Extent] = {name: symbol(names.get(name, name), one.least, one.most) for name, one in found.items()}
    return [tuple(_renamed_size(extent, named) for extent in shape) for shape in shapes]


def _renamed_size(extent: Extent, named: Mapping[str, Extent]) -> Extent:
    if isinstance(extent, Size) and any(one.name not in named for one in extent.symbols()):
        return DYNAMIC_INDEX
    return substitute(extent, named)


def _said(value: Any) -> str:
    return f"one of {value.dtype} with {value.ndim}" if is_tensor(value) else type(value).__name__
