"""From a module to a `Program` and its text.

May import dialects/types, dialects/scalar, dialects/interfaces, dialects/fused, dialects/analysis, dialects/gpu,
dialects/implementation, lowering, lowering/program, lowering/c, lowering/c/headers, lowering/convert,
lowering/reference, lowering/reference/kernels.
"""

from fuse_opt.lowering.emit.c import build_program, build_sized_program, emit_c
from fuse_opt.lowering.emit.cuda import build_cuda_program, emit_cuda

__all__ = ["build_cuda_program", "build_program", "build_sized_program", "emit_c", "emit_cuda"]
