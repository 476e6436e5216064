"""The generic form of StableHLO text, whatever form it comes in, and its parsing without a dialect of StableHLO."""

from __future__ import annotations

from importlib import import_module
from pathlib import Path
from typing import Any, cast

from xdsl.context import Context
from xdsl.dialects.builtin import Builtin, ModuleOp
from xdsl.dialects.func import Func

from fuse_opt.frontends.stablehlo.operators.op import StableHLOError


def parsed(source: Any) -> ModuleOp:
    """The program that a module, text, a file, or what jax lowers to holds; raises StableHLOError, OSError."""
    if isinstance(source, ModuleOp):
        return source
    if hasattr(source, "compiler_ir"):
        return _parse(_printed(source.compiler_ir("stablehlo").operation))
    path = None if isinstance(source, str) and "\n" in source else Path(source)
    text: str = cast(str, source) if path is None else path.read_text()
    if '"builtin.module"' in text or '"func.func"' in text:
        return _parse(text + "\n" if path is None else path)
    return _parse(_by_jaxlib(text))


def _parse(source: str | Path) -> ModuleOp:
    from fuse_opt.tools.compiler.api import load

    context = Context(allow_unregistered=True)
    context.load_dialect(Builtin)
    context.load_dialect(Func)
    try:
        return load(source, context)
    except ValueError as error:
        raise StableHLOError(str(error)) from error


def _printed(operation: Any) -> str:
    return operation.get_asm(print_generic_op_form=True, large_elements_limit=None) + "\n"


def _by_jaxlib(text: str) -> str:
    """The generic form of the pretty one."""
    try:
        ir: Any = import_module("jaxlib.mlir.ir")
        upstream: Any = import_module("jaxlib.mlir._mlir_libs._jax_mlir_ext")
        dialects = [import_module(f"jaxlib.mlir.dialects.{name}") for name in ("stablehlo", "chlo")]
    except ImportError:
        raise StableHLOError(
            "expected StableHLO in generic form, got the pretty one, which is read by way of jaxlib: install it, or print "
            "with lowered.compiler_ir().operation.get_asm(print_generic_op_form=True, large_elements_limit=None)"
        ) from None
    registry = ir.DialectRegistry()
    upstream.register_dialects(registry)
    with ir.Context() as context:
        context.append_dialect_registry(registry)
        context.load_all_available_dialects()
        for dialect in dialects:
            dialect.register_dialect(context)
        context.allow_unregistered_dialects = True
        try:
            module = ir.Module.parse(text)
        except Exception as error:  # MLIRError, of whatever the text is
            raise StableHLOError(f"cannot be read: {' '.join(str(error).split())}") from error
        return _printed(module.operation)
