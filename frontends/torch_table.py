"""The table of the torch backend: which aten overloads become graph ops. What it claims is what it holds."""

from __future__ import annotations

from fuse_opt.frontends.torch_bessel import BESSEL
from fuse_opt.frontends.torch_chebyshev import CHEBYSHEV
from fuse_opt.frontends.torch_convolution import CONVOLUTION
from fuse_opt.frontends.torch_distances import DISTANCES
from fuse_opt.frontends.torch_indexing import INDEXING
from fuse_opt.frontends.torch_library import LIBRARY
from fuse_opt.frontends.torch_pointwise import POINTWISE
from fuse_opt.frontends.torch_pooling import POOLING
from fuse_opt.frontends.torch_records import Record
from fuse_opt.frontends.torch_reductions import REDUCTIONS
from fuse_opt.frontends.torch_small_products import SMALL_PRODUCTS
from fuse_opt.frontends.torch_sorting import SORTING
from fuse_opt.frontends.torch_special import SPECIAL
from fuse_opt.frontends.torch_views import VIEWS
from fuse_opt.frontends.torch_zeta import ZETA

TABLE: dict[str, Record] = {
    **POINTWISE,
    **VIEWS,
    **REDUCTIONS,
    **POOLING,
    **INDEXING,
    **SORTING,
    **SPECIAL,
    **BESSEL,
    **ZETA,
    **CHEBYSHEV,
    **DISTANCES,
    **CONVOLUTION,
    **SMALL_PRODUCTS,
    **LIBRARY,
}
"""By overload, as `aten.add.Tensor`."""


def claims() -> list[str]:
    """The overloads that compiled programs run by code of their own, sorted."""
    return sorted(name for name, record in TABLE.items() if not record.library)
