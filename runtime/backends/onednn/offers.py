"""What oneDNN runs, where a person names its backend. Nothing is loaded to answer whether it takes an op, and what that costs."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from math import prod

from fuse_opt.dialects.implementation.site import Cost, LayoutRow, Saved, Site, Tensor
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
_MULTIPLY = ("graph.matmul", "graph.conv", "graph.conv_integer")
_STRICT: set[tuple[str, ...]] = {("f32", "f32", "f32"), ("i8", "i8", "i32"), ("ui8", "i8", "i32")}
_FAST = {*_STRICT, ("bf16", "bf16", "bf16"), ("bf16", "bf16", "f32")}
_FEATURES = {"bf16": ("avx512_bf16",), "i8": ("avx512_vnni",), "ui8": ("avx512_vnni",)}
"""By element type: what a machine needs, or the library computes in another way, slower or with sums that saturate."""
_ROWS: set[tuple[str, ...]] = {("f32",) * count for count in (2, 3, 4)}
"""Of a matrix, up to two parameters and the result."""
_CONVOLUTIONS: set[tuple[str, ...]] = {("f32", "f32", "f32")}
"""By element types of both operands and the result. Instructions for bf16 flush denormals and add two terms at a time."""
_OF_BYTES: set[tuple[str, ...]] = {("ui8", "i8", "i32"), ("i8", "i8", "i32")}
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


def _accepts_bytes(site: Site) -> str | None:
    """Convolutions whose filters are in panels, or to be put there: it has no code of its own for others, or for groups."""
    weight = site.operands[1]
    if site.config.get("groups", 1) != 1:
        return "groups"
    return "filters-vary" if weight.encoding is None and not weight.frozen else _accepts(site, _OF_BYTES)


def _channels_last(site: Site) -> list[LayoutRow]:
    """Channels innermost, and of the filters the result's: what the library turns into no other order for itself."""
    rank = len(site.results[0].shape)
    if site.name != "graph.conv" or rank < 3 or site.config.get("groups", 1) != 1:
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
    order, is_windows = joined(before), site.name == "graph.conv"
    if not is_windows and order != _columns_last(site):
        return site
    return replace(site, operands=(x, replace(weight, encoding=order if is_windows else None), *others))


def _no_order(site: Site) -> list[LayoutRow]:
    """None but C order; it is told how operands lie, for panels."""
    return []


def _columns_last(site: Site) -> OrderAttr | None:
    """The order of a product's right operand in which the result's columns lie innermost; None for C order."""
    return OrderAttr.of((1, 0)) if site.config.get("transpose_rhs") else None


def _pack(site: Site) -> Mapping[int, EncodingPart]:
    """The panels in which the library would read frozen weights, where all parts of the call read the same."""
    if not site.operands[1].frozen or onednn_problem() is not None:
        return {}
    try:
        encoding = _packed(load_library(), site)
    except OneDnnError:
        return {}
    return {} if encoding is None else {1: encoding}


def _packed(library: Library, site: Site) -> EncodingPart | None:
    """The encoding of weights in such panels; None where they lie otherwise already, or there is none. Raises OneDnnError."""
    weight, is_windows = site.operands[1], site.name == "graph.conv"
    lies_plainly = isinstance(weight.encoding, OrderAttr) if is_windows else weight.encoding is None
    if not lies_plainly or weight.dtype not in ("f32", "i8") or (calls := _calls(site)) is None:
        return None
    if site.name == "graph.matmul" and len(weight.shape) != 2:
        return None
    found = {_panel(library, call) for call in calls}
    if len(found) > 1 or (panel := found.pop()) is None:
        return None
    order = weight.encoding if is_windows else _columns_last(site)
    encoding = joined([*([] if order is None else [order]), PanelAttr.of(len(weight.shape) - 1, *panel)])
    return None if encoding is None or encoding.problem(weight.shape) is not None else encoding


def _panel(library: Library, call: Call) -> tuple[int, int] | None:
    """
    How wide panels of weights would be, and how many elements lie side by side, that its code for weights as they are would
    read; None where that is no code of its own, or they would lie otherwise. Raises OneDnnError.
    """
    weights, free = call.problem.weights, with_any_weights(call)
    assert weights is not None
    last = len(weights.shape) - 1 if call.problem.windows is None else 0
    found: set[tuple[int, int, int] | None] = set()
    for piece in free.pieces():
        plain = primitive_of(library, replace(piece.problem, weights=weights))
        primitive = primitive_of(library, piece.problem)
        same = primitive.implementation == plain.implementation or plain.reads_plain_bytes
        if primitive.refusal is not None or not same or (panel := primitive.weights.panel) is None:
            return None
        found.add((*panel, 1 if primitive.weights.group is None else primitive.weights.group[1]))
    panel = found.pop() if len(found) == 1 else None
    return panel[1:] if panel is not None and panel[0] == last else None


def _cost(site: Site) -> Cost:
    assert site.device is not None
    name = f"onednn.{site.name.partition('.')[2]}"
    rate = site.device.implementation_rate(name, site.operands[0].dtype)
    if site.name == "graph.conv" and (site.is_row_major or _evicts(site)):
        rate /= site.device.factor("onednn_slow")
    operations = site.operations or 2 * site.results[0].size * prod(site.operands[1].shape[:-1])
    return Cost(operations, site.nbytes, rate, NATIVE_CALL)


def _evicts(site: Site) -> bool:
    """
    Whether filters of windows of several elements lie multiples of 2 KiB apart, and so in few places of a cache. Those that never
    change are put into panels.
    """
    weight = site.operands[1]
    filters, _, *window = weight.shape
    stays = not weight.frozen and not any(isinstance(part, PanelAttr) for part in _parts(weight))
    return stays and prod(window) > 1 and filters * weight.itemsize % 2048 == 0


def _parts(tensor: Tensor) -> tuple[EncodingPart, ...]:
    return () if tensor.encoding is None else parts_of(tensor.encoding)


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
        if site.name == "graph.conv_integer" and site.operands[1].encoding is None:
            if (packed := _packed(library, site)) is None:
                return "filters"
            return _probe(replace(site, operands=(site.operands[0], replace(site.operands[1], encoding=packed))))
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
    ("onednn.conv_integer", "conv_integer", _OF_BYTES),
    ("onednn.conv_fast", "conv", _FAST_CONVOLUTIONS),
    ("onednn.softmax_fast", "softmax", _ROWS),
    ("onednn.layer_norm", "layer_norm", _ROWS),
):
    _fast, _multiplies, _is_chained = _name.endswith("_fast"), f"graph.{_op}" in _MULTIPLY, _op in ("matmul", "conv")
    native_implementation(
        _name,
        f"numpy.{_op}" if _is_chained else None,
        f"graph.{_op}",
        _accepts_bytes if _op == "conv_integer" else lambda site, types=_types: _accepts(site, types),
        _cost if _multiplies else _row_cost,
        epilogue=(FAST if _fast else EXACT) if _is_chained else None,
        workspace=_workspace,
        probe=_probe,
        split=True,
        optional=True,
        priority=1,  # where it is named, fusion asks it before NumPy's
        numerics="fast" if _fast else "strict",
        layouts=_channels_last if _op == "conv" else _no_order if _multiplies else None,
        pack=_pack if _multiplies else None,
        saves=_saves if _op == "layer_norm" else None,
        features=lambda site: _FEATURES.get(site.operands[0].dtype, ()),
    )
