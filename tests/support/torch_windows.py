"""Random layers of any extents under torch.compile(dynamic=True): one program each, at many sizes, beside eager.

    python tests/support/torch_windows.py --cases 100 --seed 0

Convolutions of all kinds, products, attention, pooling and norms of random parameters; what follows is one of a few functions. A
layer is compiled once and called with inputs of many extents, from the fewest that it takes to those of several blocks of a tile.
Values, shapes and strides are eager's.
"""

from __future__ import annotations

import argparse
import random
import sys
from collections.abc import Callable
from dataclasses import dataclass
from math import prod
from typing import Any

from torch_testing import fuse_opt, torch

nn: Any = torch.nn
functional: Any = torch.nn.functional
SIZES = 24
"""Calls of a layer."""
MOST_ELEMENTS, MOST_PRODUCTS = 3_000_000, 400_000_000
"""Of an input or a result, and of the multiplications of a call."""
CLOSE = 1e-3
"""Of the largest element of a result: what is summed in another order is far below, what is read wrongly far above."""
AFTER: tuple[Callable[[Any], Any], ...] = (lambda x: x, functional.gelu, functional.relu, lambda x: x * 2 + 1)


@dataclass(frozen=True)
class Layer:
    """A function of tensors, and what draws some for it."""

    name: str
    call: Callable[..., Any]
    draw: Callable[[], list[Any]]


def extent(rng: random.Random, least: int, *most: int) -> int:
    """Small ones as often as large ones."""
    return rng.randint(least, max(rng.choice(most), least))


def convolution(rng: random.Random) -> Layer:
    rank, groups = rng.choice([1, 1, 2, 2, 2, 3]), rng.choice([1, 1, 1, 2, 4])
    given, filters = groups * rng.choice([1, 2, 3, 8, 17, 32, 64]), groups * rng.choice([1, 2, 5, 8, 16, 48, 96])
    if rng.random() < 0.15:
        groups, filters = given, given * rng.choice([1, 2])
    window, strides, dilations, pads = (
        tuple(rng.choice(among) for _ in range(rank))
        for among in ([1, 2, 3, 3, 3, 5, 7], [1, 1, 2, 2, 3], [1, 1, 1, 2], [0, 0, 1, 2])
    )
    transposed = rng.random() < 0.25
    kind = getattr(nn, f"Conv{'Transpose' * transposed}{rank}d")
    layer = kind(given, filters, window, strides, pads, dilation=dilations, groups=groups, bias=rng.random() < 0.5)
    after, most = rng.choice(AFTER), {1: 2200, 2: 300, 3: 40}[rank]
    reached = [d * (w - 1) + 1 for d, w in zip(dilations, window, strict=True)]
    # The fewest that have a position; of a transposed one, whose result pads cut away, that leave one.
    least = [max(r - 2 * p, 2) if not transposed else max(2 + 2 * p - r, 2) for r, p in zip(reached, pads, strict=True)]

    def draw() -> list[Any]:
        while True:
            sides = [extent(rng, low, most, most // 4, low + 9) for low in least]
            batch = rng.randint(2, 4)
            grown = [n * s if transposed else n // s for n, s in zip(sides, strides, strict=True)]
            result = batch * filters * prod(max(n, 1) for n in grown)
            products = prod(sides) if transposed else prod(max(n, 1) for n in grown)
            work = batch * products * filters * given // groups * prod(window)
            if max(batch * given * prod(sides), result) < MOST_ELEMENTS and work < MOST_PRODUCTS:
                return [torch.randn(batch, given, *sides)]

    def call(x: Any) -> Any:
        return after(layer(x))

    return Layer(f"{layer}", call, draw)


def product(rng: random.Random) -> Layer:
    kind = rng.choice(["linear", "columns", "terms", "stack"])
    depth, width, after = rng.choice([1, 3, 8, 33, 64, 200]), rng.choice([1, 5, 16, 40, 96, 300]), rng.choice(AFTER)
    layer = nn.Linear(depth, width)

    def draw() -> list[Any]:
        rows, columns, batch = extent(rng, 2, 20, 90, 600), extent(rng, 2, 20, 90, 600), rng.randint(2, 4)
        match kind:
            case "linear":
                return [torch.randn(batch, rows, depth)]
            case "columns":
                return [torch.randn(rows, depth), torch.randn(depth, columns)]
            case "terms":
                return [torch.randn(2, depth, rows), torch.randn(2, rows, width)]
            case _:
                return [torch.randn(batch, 4, rows, depth), torch.randn(4, depth, width)]

    def call(x: Any, y: Any = None) -> Any:
        return after(layer(x) if y is None else x @ y)

    return Layer(f"{kind} {depth} {width}", call, draw)


def attention(rng: random.Random) -> Layer:
    depth, heads, group = rng.choice([8, 16, 32, 40, 64, 80]), rng.choice([1, 2, 4]), rng.choice([1, 1, 2])
    width, is_causal = rng.choice([depth, depth, 16, 9]), rng.random() < 0.4
    is_masked, is_turned = not is_causal and rng.random() < 0.4, rng.random() < 0.5

    def matrices(batch: int, count: int, rows: int, columns: int) -> Any:
        return (
            torch.randn(batch, rows, count, columns).transpose(1, 2)
            if is_turned
            else torch.randn(batch, count, rows, columns)
        )

    def draw() -> list[Any]:
        batch, queries, keys = rng.randint(2, 3), extent(rng, 2, 20, 200, 500), extent(rng, 2, 20, 200, 500)
        keys = queries if is_causal and rng.random() < 0.5 else keys
        found = [matrices(batch, heads * group, queries, depth), matrices(batch, heads, keys, depth)]
        return [*found, matrices(batch, heads, keys, width), *[torch.randn(batch, 1, queries, keys)] * is_masked]

    def call(q: Any, k: Any, v: Any, mask: Any = None) -> Any:
        q, k = q.unflatten(-1, (depth,)), k.unflatten(-1, (depth,))  # a number, as models have it
        return functional.scaled_dot_product_attention(
            q, k, v, attn_mask=mask, is_causal=is_causal, enable_gqa=group > 1
        )

    return Layer(f"attention {depth} {width} {heads} {group} {is_causal} {is_masked} {is_turned}", call, draw)


def pooling(rng: random.Random) -> Layer:
    rank, window, stride, channels = (
        rng.choice([1, 2]),
        rng.choice([2, 3, 5]),
        rng.choice([1, 2, 3]),
        rng.choice([1, 3, 20]),
    )
    kind, pad, ceils = rng.choice(["max", "avg"]), rng.randint(0, window // 2), rng.random() < 0.3
    function = getattr(functional, f"{kind}_pool{rank}d")

    def draw() -> list[Any]:
        return [torch.randn(rng.randint(2, 3), channels, *(extent(rng, window + 1, 20, 150) for _ in range(rank)))]

    def call(x: Any) -> Any:
        return function(x, window, stride, pad, ceil_mode=ceils)

    return Layer(f"{kind}_pool{rank}d {window} {stride} {pad} {ceils}", call, draw)


def norm(rng: random.Random) -> Layer:
    channels = rng.choice([4, 8, 33, 100])
    layer = rng.choice([nn.BatchNorm2d(channels).eval(), nn.GroupNorm(1, channels), nn.InstanceNorm2d(channels)])

    def draw() -> list[Any]:
        return [torch.randn(rng.randint(2, 4), channels, extent(rng, 2, 9, 40), extent(rng, 2, 9, 40))]

    def call(x: Any) -> Any:
        return layer(x).relu()

    return Layer(f"{layer}", call, draw)


KINDS = (convolution, convolution, convolution, product, product, attention, pooling, norm)


def laid_out(value: Any) -> tuple[object, ...]:
    """Its type, shape and strides; where there is one element along an axis its stride says nothing."""
    strides = [stride for stride, count in zip(value.stride(), value.shape, strict=True) if count > 1]
    return value.dtype, value.shape, strides


def faults(seed: int) -> list[str]:
    """What is wrong with a layer; its sizes, and by how much."""
    rng = random.Random(f"windows {seed}")
    torch.manual_seed(seed)
    torch._dynamo.reset()
    layer = rng.choice(KINDS)(rng)
    fast = torch.compile(layer.call, backend=fuse_opt, dynamic=True)
    with torch.no_grad():
        for _ in range(SIZES):
            given = layer.draw()
            wanted, found = layer.call(*given), fast(*given)
            where = f"{seed}: {layer.name} of {[tuple(each.shape) for each in given]}"
            if laid_out(found) != laid_out(wanted):
                return [f"{where}: {found.shape} {found.stride()}, eager {wanted.shape} {wanted.stride()}"]
            difference = float((found - wanted).abs().max()) if wanted.numel() else 0.0
            if not difference <= CLOSE * (1e-3 + float(wanted.abs().max())):
                return [f"{where}: by {difference:.3g}"]
    return []


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--cases", type=int, default=100)
    parser.add_argument("--seed", type=int, default=0, help="of the first one")
    given = parser.parse_args()
    found = [fault for seed in range(given.seed, given.seed + given.cases) for fault in faults(seed)]
    print(*found, f"{given.cases} layers, {len(found)} faults", sep="\n")
    return bool(found)


if __name__ == "__main__":
    sys.exit(main())
