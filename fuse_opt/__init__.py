"""Operator fusion and memory planning for tensor programs, as inspectable compiler passes on xDSL.

    program = fuse_opt.compile(source, target="cpu")   # source: MLIR text, a path, or a module
    y = program(x, w, b)
    fuse_opt.evaluate(source, x, w, b)                 # the reference value
    fuse_opt.optimize(module, "fuse-elementwise,plan-memory")
    fuse_opt.register(ctx)                             # the dialects, into an xDSL Context
    fuse_opt.show(program)                             # its graph and arena: in a notebook, or .save("page.html")

The functions are loaded on first use: `import fuse_opt` alone imports neither xDSL nor NumPy.
"""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from fuse_opt.tools.compiler.api import InputError, compile, evaluate, load, optimize, register, show
    from fuse_opt.tools.compiler.compiled_program import CompiledProgram

__version__ = "0.1.0"

__all__ = [
    "CompiledProgram",
    "InputError",
    "__version__",
    "compile",
    "evaluate",
    "load",
    "optimize",
    "register",
    "show",
]


def __getattr__(name: str) -> object:
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    import gc

    enabled = gc.isenabled()
    gc.disable()  # modules are many objects that stay, and each search for garbage would look at all of them
    try:
        from fuse_opt.tools.compiler import api
    finally:
        if enabled:
            gc.enable()
    value = globals()[name] = getattr(api, name)
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
