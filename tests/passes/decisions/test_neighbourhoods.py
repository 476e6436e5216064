"""By what an op is found again: by itself and what is near it, whatever it is called and whatever kernel it is in."""

from __future__ import annotations

import pytest
from ir_testing import apply, parse

from fuse_opt.passes.decisions.neighbourhoods import Neighbourhoods

S = "tensor<4x4xf32>"
CHAIN = "\n".join(
    [
        f"func.func @main(%x: {S}) -> {S} {{",
        *(
            f"  %{b} = graph.{op} %{a} : ({S}) -> {S}"
            for a, op, b in zip(
                "xabcdef", ("exp", "abs", "tanh", "negative", "exp", "abs", "tanh"), "abcdefg", strict=True
            )
        ),
        f"  func.return %g : {S}",
        "}",
    ]
)
"""The middle one is `graph.negative`."""


def near(text: str, passes: str = "") -> str:
    """The checksum of the one `graph.negative`."""
    module = apply(parse(text), passes) if passes else parse(text)
    (op,) = (op for op in module.walk() if op.name == "graph.negative")
    return Neighbourhoods().of(op)


@pytest.mark.parametrize(
    "passes", ["fuse-elementwise", "wrap-kernels", "fuse-elementwise,unfuse", "wrap-kernels,fuse-elementwise"]
)
def test_kernels_change_nothing(passes: str) -> None:
    assert near(CHAIN, passes) == near(CHAIN)


@pytest.mark.parametrize(
    ("old", "new"), [("%d", "%other"), ("graph.exp %x", "graph.log %x"), ("graph.tanh %f", "graph.exp %f")]
)
def test_names_and_what_is_further_away_change_nothing(old: str, new: str) -> None:
    assert old in CHAIN and near(CHAIN.replace(old, new)) == near(CHAIN)


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("graph.abs %a", "graph.exp %a"),
        ("graph.tanh %b", "graph.exp %b"),
        ("graph.exp %d", "graph.tanh %d"),
        ("graph.abs %e", "graph.tanh %e"),
        ("func.return %g", "func.return %d"),
        ("4x4", "4x5"),
    ],
)
def test_what_is_near_counts(old: str, new: str) -> None:
    assert old in CHAIN and near(CHAIN.replace(old, new)) != near(CHAIN)
