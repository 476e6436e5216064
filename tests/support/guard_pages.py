"""Arrays beside guarded pages, and the mark of tests that need them."""

from __future__ import annotations

import pytest

from fuse_opt.runtime.guard_pages import PAGE, Allocate, Array, can_guard_pages, guarded

__all__ = ["PAGE", "Allocate", "Array", "can_guard_pages", "guarded", "needs_guard_pages"]

needs_guard_pages = pytest.mark.skipif(not can_guard_pages, reason="pages are guarded by Linux's calls")
