"""The table of the torch backend: which aten overloads become graph ops. What it claims is what it holds."""

from __future__ import annotations

from fuse_opt.frontends.torch.fx.handler import Handler
from fuse_opt.frontends.torch.operators.attention import ATTENTION
from fuse_opt.frontends.torch.operators.convolution import CONVOLUTION
from fuse_opt.frontends.torch.operators.distances import DISTANCES
from fuse_opt.frontends.torch.operators.indexing import INDEXING
from fuse_opt.frontends.torch.operators.pointwise import POINTWISE
from fuse_opt.frontends.torch.operators.pooling import POOLING
from fuse_opt.frontends.torch.operators.products import PRODUCTS
from fuse_opt.frontends.torch.operators.reductions import REDUCTIONS
from fuse_opt.frontends.torch.operators.sorting import SORTING
from fuse_opt.frontends.torch.operators.special.bessel import BESSEL
from fuse_opt.frontends.torch.operators.special.chebyshev import CHEBYSHEV
from fuse_opt.frontends.torch.operators.special.functions import SPECIAL
from fuse_opt.frontends.torch.operators.special.zeta import ZETA
from fuse_opt.frontends.torch.operators.views import VIEWS

TABLE: dict[str, Handler] = {
    **ATTENTION,
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
    **PRODUCTS,
}
"""By overload, as `aten.add.Tensor`."""


def claims() -> list[str]:
    """The overloads that compiled programs run by code of their own, sorted."""
    return sorted(TABLE)
