"""Quantisation to narrow types and back."""

from __future__ import annotations
