"""What an ONNX model takes, and the module that it becomes with the arrays that belong to it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from xdsl.dialects.builtin import ModuleOp

from fuse_opt.dialects.types.dtypes import DType
from fuse_opt.frontends.builder import Array


@dataclass(frozen=True)
class Input:
    """An input of a model; an extent that is not known is its name, or empty."""

    name: str
    element: DType
    shape: tuple[int | str, ...] | None
    """None where not even the number of axes is known."""

    def __str__(self) -> str:
        if self.shape is None:
            return f"{self.name}: {self.element}"
        return f"{self.name}: {self.element} [{', '.join(str(extent) or '?' for extent in self.shape)}]"


@dataclass(frozen=True)
class Imported:
    """A module for inputs of certain shapes and, of some, values."""

    module: ModuleOp
    arguments: tuple[str | None, ...]
    """By argument of `main`: the input of the model that it is; None for a weight."""
    names: tuple[str, ...]
    """By argument: its name in the text."""
    weights: Mapping[str, Array] = field(repr=False)
    """By name in the text: the arrays bound to the other arguments."""

    def bind(self, inputs: Mapping[str, Array]) -> list[Array]:
        """The arguments that are no weights, from the model's inputs by name."""
        return [inputs[source] for source in self.arguments if source is not None]

    def frozen(self) -> dict[int | str, Array]:
        """The weights, by the number of the argument."""
        pairs = enumerate(zip(self.arguments, self.names, strict=True))
        return {number: self.weights[name] for number, (source, name) in pairs if source is None}
