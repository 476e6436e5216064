"""`compile()`: pipelines, the registry of passes, programs to call; knows no front end.

May import dialects, dialects/*, passes, passes/*, lowering, lowering/*, runtime, runtime/*, tools/source,
tools/watching, tools/steering.
"""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from fuse_opt.tools.compiler.api import load, use_openmp_threads
    from fuse_opt.tools.compiler.pipeline import UsageError, parse_pipeline, run_pipeline
    from fuse_opt.tools.compiler.registry import available_passes, available_targets, make_context

_HOMES = {
    "available_passes": "registry",
    "available_targets": "registry",
    "load": "api",
    "make_context": "registry",
    "parse_pipeline": "pipeline",
    "run_pipeline": "pipeline",
    "UsageError": "pipeline",
    "use_openmp_threads": "api",
}
"""By name, the module that has it: loaded when it is asked for, so that commands start quickly."""

__all__ = [
    "UsageError",
    "available_passes",
    "available_targets",
    "load",
    "make_context",
    "parse_pipeline",
    "run_pipeline",
    "use_openmp_threads",
]


def __getattr__(name: str) -> object:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from importlib import import_module

    return getattr(import_module(f"{__name__}.{_HOMES[name]}"), name)
