"""What oneDNN runs, where a person names its backend. Nothing is loaded to answer whether it takes an op, and what that costs."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from math import prod

from fuse_opt.dialects.implementation.site import Cost, LayoutRow, Saved, Site
from fuse_opt.dialects.types.encodings import EncodingPart, OrderAttr, PanelAttr, joined, parts_of
from fuse_opt.lowering.program import SAVED
from fuse_opt.lowering.reference.kernels.costs import NATIVE_CALL
from fuse_opt.lowering.reference.kernels.registry import native_implementation
from fuse_opt.runtime.backends.onednn.calls import PROBLEMS, workspace_bytes
from fuse_opt.runtime.backends.onednn.library import Library, OneDnnError, find_library, load_library
from fuse_opt.runtime.backends.onednn.post_ops import EXACT, FAST, post_ops, sums_of
from fuse_opt.runtime.backends.onednn.primitives import Dense, primitive_of
from fuse_opt.runtime.backends.onednn.products import Call, with_any_weights
from fuse_opt.runtime.backends.onednn.rows import is_left
from fuse_opt.runtime.backends.onednn.trial import multiplies, usable_library

_MOST_EXTENT = 1 << 31
_MULTIPLY = ("graph.matmul", "graph.conv")
_STRICT: set[tuple[str, ...]] = {("f32", "f32", "f32"), ("i8", "i8", "i32"), ("ui8", "i8", "i32")}
_FAST = {*_STRICT, ("bf16", "bf16", "bf16"), ("bf16", "bf16", "f32")}
_FEATURES = {"bf16": ("avx512_bf16",), "i8": ("avx512_vnni",), "ui8": ("avx512_vnni",)}
"""By element type: what a machine needs, or the library computes in another way, slower or with sums that saturate."""
_ROWS: set[tuple[str, ...]] = {("f32",) * count for count in (2, 3, 4)}
"""Of a matrix, up to two parameters and the result."""
_CONVOLUTIONS: set[tuple[str, ...]] = {("f32", "f32", "f32")}
"""By element types of both operands and the result. Instructions for bf16 flush denormals and add two terms at a time."""
_FAST_CONVOLUTIONS = {*_CONVOLUTIONS, ("bf16", "bf16", "bf16")}


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


def _calls(site: Site) -> list[Call] | None:
    """The site as oneDNN has it: with the result in memory of its own, and over each operand that it may be written over."""
    *operands, out = map(Dense.of, (*site.operands, *site.results))
    places = [None, *sums_of(site.links, out.shape)]
    make = PROBLEMS[site.name]
    config = {**site.config, **({SAVED: tuple(each.text() for each in site.saved)} if site.saved else {})}
    found = [make(operands, out, config, post_ops(site.links, out, place)) for place in places]
    calls = [call for call in found if call is not None]
    return calls if len(calls) == len(found) else None


def _accepts(site: Site, types: set[tuple[str, ...]]) -> str | None:
    if not site.is_static:
        return "extent-unknown"
    tensors = (*site.operands, *site.results)
    if tuple(tensor.dtype for tensor in tensors) not in types:
        return "dtype"
    if not all(tensor.size for tensor in tensors):
        return "empty"
    if max(extent for tensor in tensors for extent in tensor.shape or (1,)) >= _MOST_EXTENT:
        return "extent"
    lying = _unpacked(site)
    if not lying.is_row_major and not any(lying.lies_as(row) for row in _channels_last(site)):
        return "layout"
    return None if _calls(site) is not None else "shape"


def _channels_last(site: Site) -> list[LayoutRow]:
    """Channels innermost, and of the filters the result's: what the library turns into no other order for itself."""
    rank = len(site.results[0].shape)
    if rank < 3 or site.config.get("groups", 1) != 1:
        return []
    x = OrderAttr.of((0, *range(2, rank), 1))
    return [LayoutRow((x, OrderAttr.of((*range(2, rank), 1, 0))), (x,))]


def _unpacked(site: Site) -> Site:
    """The site whose weights, if they are in panels of the result's columns or channels, are not."""
    if site.name not in _MULTIPLY or (found := site.operands[1].encoding) is None:
        return site
    x, weight, *others = site.operands
    *before, panel = parts_of(found)
    if not isinstance(panel, PanelAttr) or panel.axis.data != len(weight.shape) - 1:
        return site
    order, is_product = joined(before), site.name == "graph.matmul"
    if is_product and order != _columns_last(site):
        return site
    return replace(site, operands=(x, replace(weight, encoding=None if is_product else order), *others))


def _no_order(site: Site) -> list[LayoutRow]:
    """None but C order; it is told how operands lie, for panels."""
    return []


def _columns_last(site: Site) -> OrderAttr | None:
    """The order of a product's right operand in which the result's columns lie innermost; None for C order."""
    return OrderAttr.of((1, 0)) if site.config.get("transpose_rhs") else None


def _pack(site: Site) -> Mapping[int, EncodingPart]:
    """The panels in which the library would read frozen weights of f32, where all parts of the call read the same."""
    weight, is_product = site.operands[1], site.name == "graph.matmul"
    lies_plainly = (
        weight.encoding is None and len(weight.shape) == 2 if is_product else isinstance(weight.encoding, OrderAttr)
    )
    if not weight.frozen or weight.dtype != "f32" or not lies_plainly:
        return {}
    order = _columns_last(site) if is_product else weight.encoding
    if onednn_problem() is not None or (calls := _calls(site)) is None:
        return {}
    try:
        found = {_panel(load_library(), call) for call in calls}
    except OneDnnError:
        return {}
    panel = found.pop() if len(found) == 1 else None
    if panel is None:
        return {}
    encoding = joined([*([] if order is None else [order]), PanelAttr.of(len(weight.shape) - 1, panel)])
    return {} if encoding is None or encoding.problem(weight.shape) is not None else {1: encoding}


def _panel(library: Library, call: Call) -> int | None:
    """
    How wide panels of weights would be, that its code for weights as they are would read; None where that is no code of its own,
    or they would lie otherwise. Raises OneDnnError.
    """
    weights, free = call.problem.weights, with_any_weights(call)
    assert weights is not None
    last = len(weights.shape) - 1 if call.problem.windows is None else 0
    found: set[tuple[int, int] | None] = set()
    for piece in free.pieces():
        plain = primitive_of(library, replace(piece.problem, weights=weights))
        primitive = primitive_of(library, piece.problem)
        same = primitive.implementation == plain.implementation and primitive.refusal is None
        found.add(primitive.weights.panel if same else None)
    panel = found.pop() if len(found) == 1 else None
    return panel[1] if panel is not None and panel[0] == last else None


def _cost(site: Site) -> Cost:
    assert site.device is not None
    name = f"onednn.{site.name.partition('.')[2]}"
    rate = site.device.implementation_rate(name, site.operands[0].dtype)
    if site.name == "graph.conv" and (site.is_row_major or _evicts(site)):
        rate /= site.device.factor("onednn_slow")
    return Cost(site.operations, site.nbytes, rate, NATIVE_CALL)


def _evicts(site: Site) -> bool:
    """Whether filters of windows of several elements lie multiples of 2 KiB apart, and so in few places of a cache."""
    filters, _, *window = site.operands[1].shape
    return prod(window) > 1 and filters * site.operands[1].itemsize % 2048 == 0


def _saves(site: Site, saved: Saved) -> str | None:
    """The statistics of rows that a normalization works out, once."""
    return "several" if len(site.saved) > 1 else is_left(len(site.operands[0].shape), site.config, saved)


def _row_cost(site: Site) -> Cost:
    """A pass over memory, as code of the program is."""
    assert site.device is not None
    return Cost(nbytes=site.nbytes, call=site.device.launch + NATIVE_CALL)


def _workspace(site: Site) -> int:
    """What the library asks for; nothing where there is none: then nothing runs it here, either."""
    try:
        return max((workspace_bytes(load_library(), call) for call in _calls(site) or ()), default=0)
    except OneDnnError:
        return 0


def _probe(site: Site) -> str | None:
    """Why the library does not run it well on this machine; None where there is no library to ask."""
    if onednn_problem() is not None:
        return None
    if (calls := _calls(site)) is None:
        return "step-layout"
    try:
        library = load_library()
        refusals = [primitive_of(library, piece.problem).refusal for call in calls for piece in call.pieces()]
    except OneDnnError as error:
        return "unimplemented" if error.status else "cannot-be-loaded"
    if site.name not in _MULTIPLY:
        return next((refusal for refusal in refusals if refusal is not None), None)
    a, b, out = *site.operands, *site.results
    if not multiplies(library, a.dtype, b.dtype, out.dtype):
        return "saturates"
    return next((refusal for refusal in refusals if refusal is not None), None)


for _name, _op, _types in (
    ("onednn.matmul", "matmul", _STRICT),
    ("onednn.matmul_fast", "matmul", _FAST),
    ("onednn.conv", "conv", _CONVOLUTIONS),
    ("onednn.conv_fast", "conv", _FAST_CONVOLUTIONS),
    ("onednn.softmax_fast", "softmax", _ROWS),
    ("onednn.layer_norm", "layer_norm", _ROWS),
):
    _fast, _multiplies = _name.endswith("_fast"), f"graph.{_op}" in _MULTIPLY
    native_implementation(
        _name,
        f"numpy.{_op}" if _multiplies else None,
        f"graph.{_op}",
        lambda site, types=_types: _accepts(site, types),
        _cost if _multiplies else _row_cost,
        epilogue=(FAST if _fast else EXACT) if _multiplies else None,
        workspace=_workspace,
        probe=_probe,
        split=True,
        optional=True,
        priority=1,  # where it is named, fusion asks it before NumPy's
        numerics="fast" if _fast else "strict",
        layouts={"conv": _channels_last, "matmul": _no_order}.get(_op),
        pack=_pack if _multiplies else None,
        saves=_saves if _op == "layer_norm" else None,
        features=lambda site: _FEATURES.get(site.operands[0].dtype, ()),
    )
