"""Nodes that move elements."""

from __future__ import annotations

from typing import Any

from onnx_programs import ANY, FLOATS, NUMBERS, Builder, Tensor


def transposes(b: Builder) -> None:
    x = b.pick(ANY)
    axes = list(range(x.rank))
    b.rng.shuffle(axes)
    b.node("Transpose", [x], exact=True, perm=axes if b.chance(0.8) else None)


def reshapes(b: Builder) -> None:
    x = b.pick(ANY)
    shape, rest = list[int](), x.array.size
    while b.chance(0.7) and len(shape) < 4:
        taken = b.rng.choice([n for n in (1, 2, 3, 4, 5, 7) if rest % n == 0] or [1])
        shape.append(taken)
        rest = rest // taken if taken else rest
    shape.insert(b.rng.randrange(len(shape) + 1), -1 if b.chance(0.5) and x.array.size else rest)
    if b.chance(0.3):
        for axis in range(min(len(shape), x.rank)):
            if shape[axis] == x.shape[axis]:
                shape[axis] = 0
    b.node("Reshape", [x, b.known(shape)], exact=True)


def flattens(b: Builder) -> None:
    x = b.pick(ANY)
    b.node("Flatten", [x], exact=True, axis=b.rng.choice((None, b.rng.randrange(-x.rank, x.rank + 1))))


def squeezes(b: Builder) -> None:
    x = b.pick(ANY, 0, 4)
    ones = [k - b.rng.choice((0, x.rank)) for k, n in enumerate(x.shape) if n == 1]
    if ones and b.chance(0.5):
        b.node("Squeeze", [x, b.known(ones)] if b.chance(0.7) else [x], exact=True)
        return
    count = b.rng.choice((1, 1, 2))
    axes = b.rng.sample(range(x.rank + count), count)
    b.node("Unsqueeze", [x, b.known([k - b.rng.choice((0, x.rank + count)) for k in axes])], exact=True)


def concats(b: Builder) -> None:
    x = b.pick(ANY, 1)
    axis = b.axis(x.rank)
    others: list[Tensor] = []
    for _ in range(b.rng.choice((0, 1, 1, 2))):
        shape = list(x.shape)
        shape[axis] = b.extent()
        others.append(b.fresh(shape, x.dtype) if b.chance(0.7) else x)
    operands = [x, *others]
    b.rng.shuffle(operands)
    b.node("Concat", operands, exact=True, axis=axis)


def splits(b: Builder) -> None:
    x = b.pick(ANY, 1)
    axis = b.axis(x.rank)
    extent, parts = x.shape[axis], b.rng.choice((1, 2, 3))
    at = sorted(b.rng.randint(0, extent) for _ in range(parts - 1))
    if b.chance(0.6):
        sizes = [j - i for i, j in zip([0, *at], [*at, extent], strict=True)]
        b.node("Split", [x, b.known(sizes)], parts, exact=True, axis=axis)
    else:
        b.node("Split", [x], parts, exact=True, axis=axis, num_outputs=parts if b.opset >= 18 else None)


def slices(b: Builder) -> None:
    x = b.pick(ANY, 1)
    axes = b.rng.sample(range(x.rank), b.rng.randint(1, min(x.rank, 3)))
    starts, ends, steps = list[int](), list[int](), list[int]()
    for axis in axes:
        n = x.shape[axis]
        steps.append(b.rng.choice((1, 1, 1, 2, 3, -1, -2)))
        starts.append(b.rng.choice((0, b.rng.randint(-n - 2, n + 2), -(2**31), 2**31)))
        ends.append(b.rng.choice((n, b.rng.randint(-n - 2, n + 2), 2**63 - 1 if steps[-1] > 0 else -(2**63) + 1)))
    named = [axis - b.rng.choice((0, x.rank)) for axis in axes]
    if b.chance(0.2):
        b.node("Slice", [x, b.known(starts), b.known(ends)], exact=True)
    else:
        end = [b.known(steps)] if b.chance(0.7) else []
        b.node("Slice", [x, b.known(starts), b.known(ends), b.known(named), *end], exact=True)


def pads(b: Builder) -> None:
    x = b.pick(NUMBERS, 1)
    mode = b.rng.choice(("constant", "constant", "reflect", "edge", *(("wrap",) if b.opset >= 19 else ())))
    few = b.opset >= 18 and b.chance(0.3)
    axes = b.rng.sample(range(x.rank), b.rng.randint(1, x.rank)) if few else list(range(x.rank))
    low = -1 if mode == "constant" or (mode != "wrap" and b.chance(0.2)) else 0
    most = [min(2, x.shape[axis] - 1) if mode == "reflect" else 2 for axis in axes]
    widths = [b.rng.randint(low, max(m, 0)) for m in (*most, *most)]
    value = [b.feed(b.array((), x.dtype))] if mode == "constant" and b.chance(0.6) else [None] if few else []
    named = [b.known([axis - b.rng.choice((0, x.rank)) for axis in axes])] if few else []
    b.node("Pad", [x, b.known(widths), *value, *named], exact=True, mode=mode if b.chance(0.9) else None)


def copies(b: Builder) -> None:
    x = b.pick(ANY, 0, 4)
    if b.chance(0.5):
        b.node("Tile", [x, b.known([b.rng.choice((1, 1, 2, 3)) for _ in x.shape])], exact=True)
        return
    shape = [b.rng.choice((1, 2, 3)) if n == 1 else b.rng.choice((1, n)) for n in x.shape]
    b.node("Expand", [x, b.known(([b.extent()] if b.chance(0.3) else []) + shape)], exact=True)


def triangles(b: Builder) -> None:
    x = b.pick(ANY, 2)
    k = [b.known(b.rng.randint(-3, 3))] if b.chance(0.7) else []
    b.node("Trilu", [x, *k], exact=True, upper=b.rng.choice((0, 1, None)))


def blocks(b: Builder) -> None:
    size = b.rng.choice((2, 3))
    if b.chance(0.5):
        x = b.fresh((b.rng.choice((1, 2)), 2 * size**2, 2, 3), b.rng.choice(FLOATS))
        b.node("DepthToSpace", [x], exact=True, blocksize=size, mode=b.rng.choice(("DCR", "CRD", None)))
    else:
        x = b.fresh((b.rng.choice((1, 2)), 3, 2 * size, 3 * size), b.rng.choice(FLOATS))
        b.node("SpaceToDepth", [x], exact=True, blocksize=size)


def center(b: Builder) -> None:
    x = b.pick(NUMBERS, 1)
    axes = b.rng.sample(range(x.rank), b.rng.randint(1, x.rank))
    named = [axis - b.rng.choice((0, x.rank)) for axis in axes]
    b.node("CenterCropPad", [x, b.known([b.extent() for _ in axes])], exact=True, axes=named)


def sequences(b: Builder) -> None:
    x = b.pick(ANY, 2)
    time = b.rng.choice((0, 1))
    lengths = b.numbers.integers(0, x.shape[time] + 1, x.shape[1 - time])
    b.node("ReverseSequence", [x, b.feed(lengths, plain=True)], exact=True, time_axis=time, batch_axis=1 - time)


def shapes(b: Builder) -> None:
    x = b.pick(ANY)
    op = b.rng.choice(("Shape", "Size", "EyeLike", "Shape"))
    more: dict[str, Any] = {}
    if op == "Shape" and b.opset >= 15:
        more: dict[str, Any] = {
            "start": b.rng.choice((None, b.rng.randint(-6, 6))),
            "end": b.rng.choice((None, b.rng.randint(-6, 6))),
        }
    if op == "EyeLike":
        x, more = b.pick(NUMBERS, 2, 2), {"k": b.rng.choice((None, -1, 0, 2))}
    b.node(op, [x], exact=True, **more)
