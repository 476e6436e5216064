"""Trials of graphs for budgets: kept where several budgets are asked for."""

from __future__ import annotations

from typing import Any

from torch_testing import torch as torch

from fuse_opt.frontends.torch.partitioning import keep_trials, kept_trials


def test_trials_are_made_once_where_they_are_kept() -> None:
    made: list[str] = []

    def trials(name: str) -> Any:
        made.append(name)
        return object()

    def asked() -> list[Any]:
        return [kept_trials((name, ("passes",)), lambda name=name: trials(name)) for name in ("a", "b", "a")]

    asked()
    assert made == ["a", "b", "a"]
    made.clear()
    with keep_trials():
        first = asked()
        with keep_trials():  # that of a search inside
            assert asked() == first
        assert first[0] is first[2] and made == ["a", "b"]
    asked()
    assert made == ["a", "b", "a", "b", "a"]
