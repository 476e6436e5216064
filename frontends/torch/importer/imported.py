"""What an imported FX graph is: the program, and where each of its values is found when it runs."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from xdsl.dialects.builtin import ModuleOp

from fuse_opt.frontends.torch.fx.strides import View


@dataclass(frozen=True)
class Variable:
    """A tensor, or something else, that the compiled call holds by name, or a strided view of it."""

    name: str
    view: View | None = None


@dataclass(frozen=True)
class Memory:
    """A strided tensor of a PyTorch call in the memory that operand or result `position` of its op has in the program."""

    position: int
    view: View
    dtype: Any


@dataclass(frozen=True)
class ShapeOnly:
    """A tensor of a PyTorch call of which nothing but its shape is looked at: all of its elements are one in memory."""

    shape: tuple[int, ...]
    dtype: Any


@dataclass(frozen=True)
class Argument:
    """An argument of the program: a tensor that the call holds by name."""

    name: str
    view: View
    dtype: Any
    dense: bool
    """Whether its elements fill its memory; if not, the program is given a copy in C order."""
    donated: bool = False
    frozen: bool = False
    """Whether it is seldom written to: what follows from it alone is computed again only where it was."""

    @property
    def mark(self) -> str:
        """The attribute that it has in the program's text; empty for none."""
        return "graph.donated" if self.donated else "graph.frozen" if self.frozen else ""


@dataclass
class AtenCall:
    """A call of PyTorch's own kernel."""

    number: int
    target: Any
    name: str
    """Of the overload."""
    arguments: tuple[Any, ...]
    """Like the traced ones, with `Variable`, `Memory` and `ShapeOnly` in the place of nodes."""
    keywords: dict[str, Any]
    reason: str
    """Why it is not the program's own code."""
    outputs: list[Output] = field(default_factory=list["Output"])
    several: bool = False
    """Whether it gives a sequence."""
    out: Any = None
    """The overload that writes to memory that it is given."""
    out_names: tuple[str, ...] = ()
    recordable: bool = False
    """Whether it can be part of a recording of the whole graph, on a device."""


@dataclass
class Output:
    """A result of a call of PyTorch's: in the program's memory, or a variable of what the kernel returned."""

    variable: str
    view: View | None
    """Where it is a strided tensor of known shape."""
    dtype: Any
    buffer: int | None = None
    """The result of the program whose buffer its memory becomes; the program reads it there."""


@dataclass(frozen=True)
class Returned:
    """A result of the traced graph: a value as it is, or a view of a variable or of result `buffer` of the program."""

    value: Any = None
    variable: Variable | None = None
    buffer: int | None = None
    view: View | None = None


@dataclass(frozen=True)
class Stored:
    """A result of the program that becomes the contents of an argument."""

    argument: str
    source: Returned


@dataclass
class Buffer:
    """A result of the program: memory of its own, of this layout, unless a call of PyTorch's gives it."""

    view: View
    dtype: Any
    foreign: bool = False


@dataclass
class Counts:
    """How many nodes of the traced graph there are, and how many are PyTorch's calls."""

    nodes: int = 0
    views: int = 0
    native: int = 0
    """Nodes that are code of the program, views apart."""
    external: dict[str, int] = field(default_factory=dict[str, int])
    reasons: dict[str, str] = field(default_factory=dict[str, str])
    copies: list[str] = field(default_factory=list[str])
    """Arguments that are copied to be read."""


@dataclass
class Imported:
    """A traced graph as a program with calls of PyTorch's own kernels in it."""

    module: ModuleOp
    has_results: bool
    """Whether there is anything for the program to do."""
    placeholders: list[str]
    constants: dict[str, Any]
    """Variables that are the same in every run."""
    arguments: list[Argument]
    buffers: list[Buffer]
    calls: list[AtenCall]
    returned: list[Returned]
    stored: list[Stored]
    counts: Counts
