"""The `gpu` dialect: upstream's, and programs of launches for any device.

May import dialects/types.
"""

from fuse_opt.dialects.gpu.dialect import *  # noqa: F403 - what its `__all__` lists
