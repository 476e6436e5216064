"""The registry of implementations as data: offers and queries.

May import dialects/types, dialects/interfaces, dialects/fused, dialects/analysis.
"""

from fuse_opt.dialects.implementation.offers import (
    Offer,
    PointwiseOffer,
    default_offer,
    find_offer,
    known_implementations,
    offers_of,
    register_offer,
)

__all__ = [
    "Offer",
    "PointwiseOffer",
    "default_offer",
    "find_offer",
    "known_implementations",
    "offers_of",
    "register_offer",
]
