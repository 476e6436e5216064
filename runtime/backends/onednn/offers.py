"""What oneDNN runs, where a person names its backend. Nothing is loaded to answer whether it takes an op, and what that costs."""

from __future__ import annotations

from fuse_opt.dialects.implementation.site import Cost, Site
from fuse_opt.lowering.reference.kernels.costs import NATIVE_CALL
from fuse_opt.lowering.reference.kernels.registry import native_implementation
from fuse_opt.runtime.backends.onednn.calls import workspace_bytes
from fuse_opt.runtime.backends.onednn.library import OneDnnError, find_library, load_library
from fuse_opt.runtime.backends.onednn.primitives import Dense, primitive_of
from fuse_opt.runtime.backends.onednn.products import Call, product_call
from fuse_opt.runtime.backends.onednn.trial import multiplies, usable_library

_MOST_EXTENT = 1 << 31
_STRICT = {("f32", "f32", "f32"), ("i8", "i8", "i32"), ("ui8", "i8", "i32")}
_FAST = {*_STRICT, ("bf16", "bf16", "bf16"), ("bf16", "bf16", "f32")}
"""By element types of both operands and the result. Instructions for bf16 flush denormals and add two terms at a time."""


def onednn_problem() -> str | None:
    """Why oneDNN cannot be called here, as far as that is known without loading it."""
    found = find_library()
    return found if isinstance(found, str) else None


def onednn_load_problem() -> str | None:
    """Why oneDNN cannot be called here; it is loaded for that."""
    try:
        usable_library()
    except OneDnnError as error:
        return str(error)
    return None


def _call(site: Site) -> Call | None:
    a, b, out = (Dense.in_order(tensor.shape, tensor.dtype) for tensor in (*site.operands, *site.results))
    return product_call(a, b, out, site.config)


def _accepts(site: Site, types: set[tuple[str, str, str]]) -> str | None:
    if not site.is_static:
        return "extent-unknown"
    a, b, out = *site.operands, *site.results
    if (a.dtype, b.dtype, out.dtype) not in types:
        return "dtype"
    if not (a.size and b.size and out.size):
        return "empty"
    if max(*a.shape, *b.shape, *out.shape) >= _MOST_EXTENT:
        return "extent"
    return None if _call(site) is not None else "rank"


def _cost(site: Site) -> Cost:
    assert site.device is not None
    rate = site.device.implementation_rate("onednn.matmul", site.operands[0].dtype)
    return Cost(site.operations, site.nbytes, rate, NATIVE_CALL)


def _workspace(site: Site) -> int:
    """What the library asks for; nothing where there is none: then nothing runs it here, either."""
    call = _call(site)
    try:
        return 0 if call is None else workspace_bytes(load_library(), call)
    except OneDnnError:
        return 0


def _probe(site: Site) -> str | None:
    """Why the library does not run it well on this machine; None where there is no library to ask."""
    if onednn_problem() is not None or (call := _call(site)) is None:
        return None
    try:
        library = load_library()
        refusal = primitive_of(library, call.problem).refusal
    except OneDnnError as error:
        return "unimplemented" if error.status else "cannot-be-loaded"
    a, b, out = *site.operands, *site.results
    return refusal if multiplies(library, a.dtype, b.dtype, out.dtype) else "saturates"


for _name, _types in (("onednn.matmul", _STRICT), ("onednn.matmul_fast", _FAST)):
    native_implementation(
        _name,
        "numpy.matmul",
        "graph.matmul",
        lambda site, types=_types: _accepts(site, types),
        _cost,
        workspace=_workspace,
        probe=_probe,
        split=True,
        optional=True,
        numerics="strict" if _types is _STRICT else "fast",
    )
