"""Convolutions and their backward forms, run by an implementation."""

from __future__ import annotations
