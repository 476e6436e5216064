"""Tensors made from nothing or little: counting, filling, counter-based random numbers."""

from __future__ import annotations
