"""What there is: passes, dialects and output targets, found in the directories that hold them.

Nothing is imported to list them; a factory imports the module it stands for when it is called.
"""

from __future__ import annotations

import functools
import importlib
import re
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

if TYPE_CHECKING:
    from xdsl.context import Context
    from xdsl.ir import Dialect
    from xdsl.passes import ModulePass
    from xdsl.utils.target import Target

ROOT = Path(__file__).resolve().parents[2]
_TARGETS = ROOT / "tools" / "targets"
_TARGET_PREFIX = "target_"
_DOCSTRING = re.compile(r'(?:#.*\n|\s)*"""(.*?)(?:"""|\n|\Z)')
_NAME = re.compile(r"^[ \t]+name(?:\s*:[^=\n]+)?\s*=\s*[\"']([^\"']*)[\"']", re.MULTILINE)
_T = TypeVar("_T")


def available_passes() -> dict[str, Callable[[], type[ModulePass]]]:
    """By name, sorted: a function that imports the pass. A pass is a file called like it that states its name."""
    return dict(_passes())


def pass_summary(name: str) -> str:
    """The first line of the docstring of the file that holds the pass. Raises KeyError for an unknown pass."""
    return _summary(pass_files()[name].read_text(encoding="utf-8"))


def available_targets() -> dict[str, Callable[[], type[Target]]]:
    """By name, sorted: a function that imports the output target, which is `target_<name>.py` under tools/targets."""
    return {name: functools.partial(_load_target, path) for name, path in sorted(_target_files().items())}


def target_summary(name: str) -> str:
    """The first line of the docstring of the file that holds the target. Raises KeyError for an unknown one."""
    return _summary(_target_files()[name].read_text(encoding="utf-8"))


def get_dialects() -> dict[str, Callable[[], Dialect]]:
    """xDSL's dialects with ours put in; our `gpu` holds all of upstream's and stands in its place."""
    from xdsl.dialects import get_all_dialects

    return {**get_all_dialects(), **own_dialects()}


def register(ctx: Context) -> None:
    """Makes `builtin`, `func` and our dialects known to a context, imported when first used.

    A dialect that the context knows already stays as it is. That holds for `gpu`, too: where upstream's is registered
    first, text with our additions to it does not parse there; call this before registering upstream's dialects.
    """
    from xdsl.dialects import get_all_dialects

    upstream = get_all_dialects()
    known = set(ctx.registered_dialect_names)
    for name, factory in {"builtin": upstream["builtin"], "func": upstream["func"], **own_dialects()}.items():
        if name not in known:
            ctx.register_dialect(name, factory)


def make_context(allow_unregistered: bool = False) -> Context:
    """A context that knows xDSL's dialects and ours."""
    from xdsl.context import Context

    ctx = Context(allow_unregistered)
    for name, factory in get_dialects().items():
        ctx.register_dialect(name, factory)
    return ctx


def own_dialects() -> dict[str, Callable[[], Dialect]]:
    """Our dialects, by name."""

    def graph() -> Dialect:
        from fuse_opt.dialects.graph import GRAPH

        offer_implementations()
        return GRAPH

    def fused() -> Dialect:
        from fuse_opt.dialects.fused import FUSED

        return FUSED

    def gpu() -> Dialect:
        from fuse_opt.dialects.gpu import GPU

        return GPU

    def torch() -> Dialect:
        from fuse_opt.dialects.torch import TORCH

        offer_implementations()
        return TORCH

    return {"fused": fused, "gpu": gpu, "graph": graph, "torch": torch}


@functools.cache
def pass_files() -> dict[str, Path]:
    candidates = [*(ROOT / "passes").rglob("*.py"), *(ROOT / "lowering" / "convert").glob("convert_*.py")]
    found = {path.stem.replace("_", "-"): path for path in candidates}
    return {name: found[name] for name in sorted(found) if _states_name(found[name], name)}


@functools.cache
def _passes() -> dict[str, Callable[[], type[ModulePass]]]:
    return {name: functools.partial(_load_pass, path) for name, path in pass_files().items()}


@functools.cache
def _target_files() -> dict[str, Path]:
    return {_target_name(path): path for path in _TARGETS.rglob(f"{_TARGET_PREFIX}*.py")}


def _states_name(path: Path, name: str) -> bool:
    """Whether a class in the file has the line `name = "<name>"`, as every pass has."""
    return name in _NAME.findall(path.read_text(encoding="utf-8"))


def _summary(source: str) -> str:
    found = _DOCSTRING.match(source)
    return found[1].strip() if found else ""


def offer_implementations() -> None:
    """Has passes know what implementations offer; NumPy is imported when one asks, and no library loaded."""
    from fuse_opt.dialects.implementation.offers import load_with

    load_with(_import_implementations)


def _import_implementations() -> object:
    """The packages that register them when they are imported."""
    from fuse_opt.lowering.reference import kernels
    from fuse_opt.runtime.backends import registry

    return kernels, registry


@functools.cache
def _load_pass(path: Path) -> type[ModulePass]:
    from xdsl.passes import ModulePass

    offer_implementations()
    return _class_named(path, path.stem.replace("_", "-"), ModulePass)


@functools.cache
def _load_target(path: Path) -> type[Target]:
    from xdsl.utils.target import Target

    return _class_named(path, _target_name(path), Target)


def _target_name(path: Path) -> str:
    return path.stem.removeprefix(_TARGET_PREFIX).replace("_", "-")


def _class_named(path: Path, name: str, base: type[_T]) -> type[_T]:
    module = importlib.import_module(".".join(("fuse_opt", *path.relative_to(ROOT).with_suffix("").parts)))
    for value in vars(module).values():
        if isinstance(value, type) and issubclass(value, base) and vars(value).get("name") == name:
            return value
    raise TypeError(f"{path} states no subclass of {base.__name__} with name = {name!r}")
