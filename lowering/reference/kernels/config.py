"""How implementations read the properties of ops, which they get as plain values."""

from __future__ import annotations

from fuse_opt.lowering.program import Config


def integer(config: Config, name: str, default: int = 0) -> int:
    """An integer of the config; a truth value is 0 or 1."""
    value = config.get(name, default)
    return int(value) if isinstance(value, int) else default


def integers(config: Config, name: str, default: tuple[int, ...] = ()) -> tuple[int, ...]:
    """Integers of the config."""
    value = config.get(name, default)
    return tuple(int(v) for v in value) if isinstance(value, tuple) else default


def text(config: Config, name: str, default: str) -> str:
    value = config.get(name, default)
    return value if isinstance(value, str) else default
