"""Movement: elements of one or several operands put at other places, with fill values where none comes from."""

from __future__ import annotations
