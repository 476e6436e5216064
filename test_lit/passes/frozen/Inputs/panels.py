"""A library that would have frozen right operands in panels of four columns, but those of an odd number of rows."""

from fuse_opt.backend import Backend
from fuse_opt.dialects.implementation.offers import Offer, register_offer
from fuse_opt.dialects.types.encodings import PanelAttr

backend = Backend("panels")


def accepts(site):
    panels = site.operands[1].encoding
    return "odd" if panels is not None and site.operands[1].shape[0] % 2 else None


def pack(site):
    weight = site.operands[1]
    return {1: PanelAttr.of(1, 4)} if weight.frozen and weight.encoding is None and weight.shape[1] % 4 == 0 else {}


register_offer(
    Offer(
        "graph.matmul",
        "panels.matmul",
        native=True,
        optional=True,
        accepts=accepts,
        layouts=lambda site: (),
        workspace=lambda site: 64 if site.operands[1].encoding is None else 256,
        pack=pack,
    )
)
