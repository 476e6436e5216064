"""The registry of implementations as data: offers and queries.

May import dialects/types, dialects/interfaces, dialects/fused, dialects/gpu, dialects/analysis,
dialects/analysis/contractions.
"""

from fuse_opt.dialects.implementation.chains import ChainOffer, Link
from fuse_opt.dialects.implementation.offers import (
    Offer,
    PointwiseOffer,
    default_offer,
    find_offer,
    known_implementations,
    load_with,
    offers_of,
    register_offer,
)

__all__ = [
    "ChainOffer",
    "Link",
    "Offer",
    "PointwiseOffer",
    "default_offer",
    "find_offer",
    "known_implementations",
    "offers_of",
    "register_offer",
]


def _register_generated() -> None:
    from fuse_opt.dialects.implementation.generated import register_generated

    register_generated()


load_with(_register_generated)
