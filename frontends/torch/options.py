"""What `torch.compile(..., options={...})` may say, and what of it programs are told."""

from __future__ import annotations

from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

from xdsl.dialects.builtin import ModuleOp, StringAttr, UnitAttr

from fuse_opt.dialects.analysis.numerics import LEVELS, NUMERICS, Numerics
from fuse_opt.dialects.analysis.precision import KERNEL, STRICT
from fuse_opt.dialects.analysis.training import TRAINING
from fuse_opt.tools.compiler.api import parse_budget


@dataclass(frozen=True)
class Options:
    """What `torch.compile(..., options={...})` may say."""

    target: str | None = None
    """
    "cpu" or "cuda": graphs of tensors elsewhere are PyTorch's. None takes both, each where it is. "emulated" runs kernels for
    CUDA on tensors of the processor, slowly, to find errors.
    """
    pipeline: str | None = None
    """The passes in place of the default ones, as `fuse-opt -p` takes them."""
    backend: str | None = None
    """Which backends may run ops, as `fuse-opt --backend` takes them."""
    dump: str | None = None
    """A directory for the programs as text, before and after the passes, with the generated C and calls."""
    decisions: str | None = None
    """A file of decisions to make, of all kinds, and no other."""
    budget: str | None = None
    """Bytes of intermediate values of each graph, such as 64MiB, with what is kept from forward to backward."""
    tuned: str | None = None
    """A file or folder of schedules that `fuse-tune` measured on this machine; `$FUSE_OPT_TUNED` stands in for None."""
    programs: int = 256
    """The most programs of one graph, where extents vary."""
    strict: bool = False
    """Whether what cannot be compiled is an error. If not, PyTorch runs the graph, and a warning says why."""
    freezing: bool = True
    """Whether what follows from parameters and buffers alone is kept between calls under inference, until one is written to."""
    cuda_graphs: bool = False
    """
    Whether whole graphs on a device are recorded, and replayed as one CUDA graph; mode="reduce-overhead" says so, too. Memory of
    intermediate values is then kept between calls.
    """
    channels_last: bool = False
    """Whether convolutions of f16 and bf16 on a device have their channels innermost, whatever order the model has."""
    numerics: Numerics = "finite"
    """
    Which implementations inference takes: "finite" ones may give NaN of an infinity, "strict" ones do not, "fast" ones round
    otherwise.
    """
    emulate_precision_casts: bool = False
    """Whether every operator rounds f16 and bf16, as eager's do; if not, they stay f32 inside of a kernel, as Inductor's do."""


_TARGETS = ("cpu", "cuda", "emulated")
_OPTIONS = tuple(field.name for field in fields(Options))


def checked_options(wanted: dict[str, Any] | None) -> Options:
    """Raises ValueError for options that there are not, and for values that they cannot have."""
    options = dict(wanted or {})
    unknown = sorted(options.keys() - set(_OPTIONS))
    if unknown:
        raise ValueError(f"option '{unknown[0]}': expected one of {', '.join(_OPTIONS)}; remove it")
    if (target := options.get("target")) not in (None, *_TARGETS):
        raise ValueError(f"option 'target': expected one of {', '.join(_TARGETS)}, got {target!r}")
    for name in ("pipeline", "backend", "dump", "decisions", "budget", "tuned"):
        if not isinstance(text := options.get(name), str | Path | None):
            raise ValueError(f"option '{name}': expected a text, got {text!r}")
    if (numerics := options.get("numerics", LEVELS[0])) not in LEVELS:
        raise ValueError(f"option 'numerics': expected one of {', '.join(LEVELS)}, got {numerics!r}")
    if (budget := options.get("budget")) is not None:
        parse_budget(budget)
    if (tuned := options.get("tuned")) is not None and not Path(tuned).exists():
        raise ValueError(f"option 'tuned': there is no '{tuned}'; fuse-tune writes such a file")
    if type(programs := options.get("programs", 1)) is not int or programs < 0:
        raise ValueError(
            f"option 'programs': expected a number of programs, got {programs!r}; 0 leaves graphs to PyTorch"
        )
    for name in ("strict", "freezing", "cuda_graphs", "channels_last", "emulate_precision_casts"):
        if not isinstance(given := options.get(name, False), bool):
            raise ValueError(f"option '{name}': expected True or False, got {given!r}")
    return Options(**options)


def precision_of(options: Options) -> str:
    """How kernels round values of narrow types."""
    return STRICT if options.emulate_precision_casts else KERNEL


def mark(module: ModuleOp, kind: str, options: Options) -> None:
    """Says of a module what passes are to know of the graph that it is."""
    if kind == "forward":
        module.attributes[TRAINING] = UnitAttr()
    elif kind == "inference" and options.numerics != LEVELS[0]:
        module.attributes[NUMERICS] = StringAttr(options.numerics)


def target_of(device: Any) -> str:
    """As `api.compile` has it: of the processor, which emulates one, it is any CUDA device."""
    return "cuda" if device.type == "cpu" else f"cuda:{device.index or 0}"
