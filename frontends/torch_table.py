"""The table of the torch backend: which aten overloads become graph ops. What it claims is what it holds."""

from __future__ import annotations

from fuse_opt.frontends.torch_library import LIBRARY
from fuse_opt.frontends.torch_pointwise import POINTWISE
from fuse_opt.frontends.torch_pooling import POOLING
from fuse_opt.frontends.torch_records import Record
from fuse_opt.frontends.torch_reductions import REDUCTIONS
from fuse_opt.frontends.torch_special import SPECIAL
from fuse_opt.frontends.torch_views import VIEWS

TABLE: dict[str, Record] = {**POINTWISE, **VIEWS, **REDUCTIONS, **POOLING, **SPECIAL, **LIBRARY}
"""By overload, as `aten.add.Tensor`."""


def claims() -> list[str]:
    """The overloads that compiled programs run by code of their own, sorted."""
    return sorted(name for name, record in TABLE.items() if not record.library)
