"""The public face of implementations: what a file needs that has functions of its own run ops.

    from fuse_opt.backend import Backend, Cost, Refused, Site

    backend = Backend("mine")

    @backend.implementation("graph.sort", accepts=lambda site: None if site.dtypes == {"f32"} else "dtype")
    def sort(inputs, outputs, config): ...

Such a file is given to `fuse-opt --backend=mine.py`, `fuse_opt.compile(..., backend="mine.py")` or `$FUSE_OPT_BACKEND`; a
package names one in the entry points `fuse_opt.backends`. docs/implementations.md has an example.
"""

from fuse_opt.dialects.implementation.offers import PointwiseOffer
from fuse_opt.dialects.implementation.site import Cost, Saved, Site, Tensor
from fuse_opt.dialects.implementation.subgraph import Node, Subgraph
from fuse_opt.lowering.reference.kernels.backend import Backend, Refused

__all__ = ["Backend", "Cost", "Node", "PointwiseOffer", "Refused", "Saved", "Site", "Subgraph", "Tensor"]
