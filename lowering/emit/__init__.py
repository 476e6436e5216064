"""From a module to a `Program` and its text.

May import dialects/types, dialects/scalar, dialects/interfaces, dialects/fused, dialects/analysis, dialects/gpu,
dialects/implementation, lowering, lowering/program, lowering/c, lowering/c/headers, lowering/convert,
lowering/reference, lowering/reference/kernels.
"""

from typing import TYPE_CHECKING

from fuse_opt.lowering.emit.c import build_program, build_sized_program, emit_c

if TYPE_CHECKING:
    from fuse_opt.lowering.emit.cuda import build_cuda_program, build_sized_cuda_program, emit_cuda

__all__ = [
    "build_cuda_program", "build_program", "build_sized_cuda_program", "build_sized_program", "emit_c", "emit_cuda"
]  # fmt: skip


def __getattr__(name: str) -> object:
    """What programs for CPUs do without is imported when somebody asks for it."""
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from fuse_opt.lowering.emit import cuda

    value = globals()[name] = getattr(cuda, name)
    return value
