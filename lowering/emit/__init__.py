"""From a module to a `Program` and its text.

May import dialects/types, dialects/scalar, dialects/interfaces, dialects/fused, dialects/analysis, dialects/gpu,
dialects/implementation, lowering, lowering/program, lowering/c, lowering/c/headers, lowering/convert,
lowering/reference, lowering/reference/kernels.
"""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from fuse_opt.lowering.emit.c import build_program, build_sized_program, emit_c
    from fuse_opt.lowering.emit.cuda import build_cuda_program, build_sized_cuda_program, emit_cuda

__all__ = [
    "build_cuda_program", "build_program", "build_sized_cuda_program", "build_sized_program", "emit_c", "emit_cuda"
]  # fmt: skip


def __getattr__(name: str) -> object:
    """What prints programs is imported when somebody asks for it: of a GPU by who has one, of C not by who finds it all made."""
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    if "cuda" in name:
        from fuse_opt.lowering.emit import cuda as printer
    else:
        from fuse_opt.lowering.emit import c as printer

    value = globals()[name] = getattr(printer, name)
    return value
