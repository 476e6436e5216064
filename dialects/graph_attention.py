"""Attention, defined by decomposition into matrix products and softmax."""

from __future__ import annotations
