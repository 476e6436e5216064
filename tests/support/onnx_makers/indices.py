"""Nodes that read and write at positions."""

from __future__ import annotations

import numpy as np
from onnx_programs import ANY, NUMBERS, Builder


def gathers(b: Builder) -> None:
    x = b.pick(ANY, 1)
    axis, op = b.axis(x.rank), b.rng.choice(("Gather", "GatherElements", "GatherND"))
    kind = "int64" if op == "GatherND" else b.rng.choice(("int64", "int32"))
    if op == "Gather":
        at = b.numbers.integers(-x.shape[axis], max(x.shape[axis], 1), b.shape(0, 3))
    elif op == "GatherElements":
        shape = [b.extent() if k == axis % x.rank else b.rng.randint(min(n, 1), n) for k, n in enumerate(x.shape)]
        at = b.numbers.integers(-x.shape[axis], max(x.shape[axis], 1), shape)
    else:
        batch = b.rng.randint(0, min(x.rank - 1, 2))
        read = b.rng.randint(1, x.rank - batch)
        inner = x.shape[batch : batch + read]
        at = np.stack([b.numbers.integers(-n, max(n, 1), (*x.shape[:batch], 3)) for n in inner], -1)
        b.node(op, [x, b.feed(at.astype(kind), plain=True)], exact=True, batch_dims=batch)
        return
    b.node(op, [x, b.feed(at.astype(kind), plain=True)], exact=True, axis=axis)


def scatters(b: Builder) -> None:
    """With positions that do not repeat, unless the updates are joined by what needs no order."""
    x = b.pick(NUMBERS, 1, 4)
    reductions = ("none", *(("add", "mul") if b.opset >= 16 else ()), *(("max", "min") if b.opset >= 18 else ()))
    how = b.rng.choice((None, *reductions))
    many, axis = how in ("add", "max", "min"), b.rng.randrange(x.rank)
    if b.chance(0.5):
        shape = [b.rng.randint(min(n, 1), n) for n in x.shape]
        at = b.numbers.integers(0, max(x.shape[axis], 1), shape)
        if not many:
            at = np.broadcast_to(np.arange(shape[axis]).reshape([-1 if k == axis else 1 for k in range(x.rank)]), shape)
        if b.chance(0.5):
            at = at - x.shape[axis]
        operands = [x, b.feed(np.ascontiguousarray(at), plain=True), b.fresh(shape, x.dtype)]
        b.node("ScatterElements", operands, exact=True, axis=axis - b.rng.choice((0, x.rank)), reduction=how)
        return
    depth = b.rng.randint(1, x.rank)
    places = int(np.prod(x.shape[:depth]))
    chosen = b.numbers.choice(places, min(places, 4), replace=many) if places else np.zeros(0, int)
    at = np.stack(np.unravel_index(chosen, x.shape[:depth]), -1) if places else np.zeros((0, depth))
    operands = [x, b.feed(at.astype(np.int64), plain=True), b.fresh((len(at), *x.shape[depth:]), x.dtype)]
    b.node("ScatterND", operands, exact=True, reduction=how)


def one_hots(b: Builder) -> None:
    depth = b.rng.randint(1, 6)
    ids = b.feed(
        b.numbers.integers(-depth, depth, b.shape(0, 3)).astype(b.rng.choice(("int64", "int32", "float32"))), plain=True
    )
    values = b.feed(b.array((2,), b.rng.choice(("float32", "int64", "int32"))), True, plain=True)
    axis = b.rng.choice((None, b.rng.randint(-ids.rank - 1, ids.rank)))
    b.node("OneHot", [ids, b.known(b.rng.choice((depth, [depth]))), values], exact=True, axis=axis)
