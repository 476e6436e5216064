"""Losses, with their backward forms."""

from __future__ import annotations
