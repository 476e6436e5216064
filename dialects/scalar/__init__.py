"""Scalar primitives: their facts, evaluation and exact algebra.

May import dialects/types.
"""

from fuse_opt.dialects.scalar.expr import *  # noqa: F403 - the primitives; no list of them is kept twice
