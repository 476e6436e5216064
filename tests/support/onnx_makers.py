"""Nodes of random ONNX graphs: of elements, movement, reductions, indices, order. Each function adds one, or nothing."""

from __future__ import annotations

from typing import Any

import numpy as np
from onnx_programs import FLOATS, INTEGERS, Builder, Tensor

ANY = (*FLOATS, *INTEGERS, "bool")
NUMBERS = (*FLOATS, *INTEGERS)
SMOOTH = [
    "Abs",
    "Neg",
    "Relu",
    "Sigmoid",
    "Tanh",
    "Softsign",
    "Softplus",
    "Erf",
    "Exp",
    "Sin",
    "Cos",
    "Atan",
    "Sinh",
    "Cosh",
    "Asinh",
    "Elu",
    "Selu",
    "Celu",
    "LeakyRelu",
    "HardSigmoid",
    "HardSwish",
    "Mish",
    "Gelu",
    "ThresholdedRelu",
    "Identity",
]
STEPS = ("Floor", "Ceil", "Round", "Sign", "Shrink", "IsNaN", "IsInf", "Hardmax")
PARAMETERS = {
    "Elu": ("alpha",), "Celu": ("alpha",), "LeakyRelu": ("alpha",), "Selu": ("alpha", "gamma"), "Shrink": ("lambd", "bias"),
    "HardSigmoid": ("alpha", "beta"), "ThresholdedRelu": ("alpha",),
}  # fmt: skip
RANGES = {
    "Sqrt": (0, 4), "Log": (0.125, 4), "Reciprocal": (0.25, 3), "Acos": (-1, 1), "Asin": (-1, 1), "Acosh": (1, 4),
    "Atanh": (-0.875, 0.875), "Tan": (-1, 1),
}  # fmt: skip
EXACT = {"Abs", "Neg", "Relu", "Identity", *STEPS}


def parameters(b: Builder, op: str) -> dict[str, Any]:
    return {name: b.rng.choice((0.25, 0.5, 1.5, 2.0)) for name in PARAMETERS.get(op, ()) if b.chance(0.5)}


def smooth(b: Builder) -> None:
    op = b.rng.choice(SMOOTH)
    more: dict[str, Any] = {"approximate": b.rng.choice(("none", "tanh"))} if op == "Gelu" and b.chance(0.7) else {}
    kinds = NUMBERS if op in ("Abs", "Neg", "Relu", "Identity", "Erf") else FLOATS
    b.node(op, [b.pick(kinds)], exact=op in EXACT, **parameters(b, op), **more)


def steps(b: Builder) -> None:
    op = b.rng.choice(STEPS)
    x = b.pick(FLOATS, 1 if op == "Hardmax" else 0, exact=True)
    more: dict[str, Any] = {"axis": b.axis(x.rank)} if op == "Hardmax" and b.chance(0.7) else {}
    if op == "Round":
        x = b.fresh(x.shape, x.dtype, -9, 9)
    b.node(op, [x], exact=True, **parameters(b, op), **more)


def ranged(b: Builder) -> None:
    op, (low, high) = b.rng.choice(list(RANGES.items()))
    b.node(op, [b.fresh(b.shape(), b.rng.choice(FLOATS), low, high)])


def binary(b: Builder) -> None:
    op = b.rng.choice(("Add", "Sub", "Mul", "Mul", "Max", "Min", "PRelu"))
    x = b.pick(FLOATS if op == "PRelu" else NUMBERS)
    y = b.partner(x)
    swap = op != "PRelu" and b.chance(0.3)
    b.node(op, [y, x] if swap else [x, y], exact=op in ("Max", "Min") or not x.is_float)


def several(b: Builder) -> None:
    op = b.rng.choice(("Max", "Min", "Sum", "Mean"))
    x = b.pick(FLOATS)
    b.node(op, [x, *(b.partner(x) for _ in range(b.rng.choice((0, 1, 2, 3))))], exact=op in ("Max", "Min"))


def quotients(b: Builder) -> None:
    x = b.pick(NUMBERS, exact=True)
    y = b.partner(x, 1, 3)
    if x.is_float and b.chance(0.5):
        b.node("Pow", [b.fresh(x.shape, x.dtype, 0.5, 2), b.fresh(b.broadcastable(x.shape), b.rng.choice(NUMBERS))])
    elif b.chance(0.5):
        b.node("Div", [x, y], exact=not x.is_float)
    else:
        b.node("Mod", [x, y], exact=True, fmod=1 if x.is_float else b.rng.choice((0, 1, None)))


def integer_powers(b: Builder) -> None:
    x = b.fresh(b.shape(), b.rng.choice(("int32", "int64")), -3, 3)
    b.node("Pow", [x, b.fresh(b.broadcastable(x.shape), b.rng.choice((x.dtype, "int64")), 0, 1)], exact=True)


def comparisons(b: Builder) -> None:
    op = b.rng.choice(("Equal", "Less", "Greater", "LessOrEqual", "GreaterOrEqual"))
    x = b.pick(ANY if op == "Equal" else NUMBERS, exact=True)
    b.node(op, [x, b.fresh(b.broadcastable(x.shape), x.dtype)], exact=True)


def logic(b: Builder) -> None:
    x = b.pick(("bool",))
    op = b.rng.choice(("And", "Or", "Xor", "Not"))
    b.node(op, [x] if op == "Not" else [x, b.partner(x)], exact=True)


def bits(b: Builder) -> None:
    op = b.rng.choice(("BitwiseAnd", "BitwiseOr", "BitwiseXor", "BitwiseNot", "BitShift"))
    if op == "BitShift":
        x = b.fresh(b.shape(), b.rng.choice(("uint8", "uint32", "uint64")), 0, 99)
        y = b.fresh(b.broadcastable(x.shape), x.dtype, 0, 2)
        b.node(op, [x, y], exact=True, direction=b.rng.choice(("LEFT", "RIGHT")))
        return
    x = b.pick(INTEGERS)
    b.node(op, [x] if op == "BitwiseNot" else [x, b.partner(x)], exact=True)


def where(b: Builder) -> None:
    x = b.pick(ANY)
    condition = b.pick(("bool",)) if b.chance(0.3) else b.fresh(b.broadcastable(x.shape), "bool")
    operands = [x, b.partner(x)]
    b.rng.shuffle(operands)
    b.node("Where", [condition, *operands], exact=True)


def clip(b: Builder) -> None:
    x = b.pick(NUMBERS)
    low, high = (b.feed(b.array((), x.dtype, *r)) if b.chance(0.7) else None for r in ((-2, 0), (0, 2)))
    b.node("Clip", [x, low, high] if high else [x, low] if low else [x], exact=True)


def casts(b: Builder) -> None:
    to = b.rng.choice((*ANY, "uint16", "int16", "uint32", "uint64"))
    x = b.pick(ANY, exact=to not in FLOATS)
    if to.startswith("u") and x.dtype not in ("bool", "uint8"):
        x = b.fresh(x.shape, x.dtype, 0, 5)
    from onnx_programs import as_dtype, helper

    if b.chance(0.3) and b.opset >= 15:
        b.node("CastLike", [x, b.fresh(b.shape(), to)], exact=True)
        return
    b.node("Cast", [x], exact=True, to=int(helper.np_dtype_to_tensor_dtype(as_dtype(to))))


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


def reductions(b: Builder) -> None:
    op = b.rng.choice(("Sum", "Mean", "Max", "Min", "Prod", "L1", "L2", "LogSum", "LogSumExp", "SumSquare"))
    x = b.pick(FLOATS if op in ("LogSumExp", "Prod", "L2") else NUMBERS)
    if op == "LogSum":
        x = b.fresh(x.shape, b.rng.choice(FLOATS), 0.5, 3)
    count = b.rng.randint(0, x.rank)
    axes = [k - b.rng.choice((0, x.rank)) for k in b.rng.sample(range(x.rank), count)]
    more: dict[str, Any] = {"keepdims": b.rng.choice((0, 1, None))}
    by_operand = b.opset >= (13 if op == "Sum" else 18)
    if by_operand and b.chance(0.3):
        more["noop_with_empty_axes"] = 1
    operands = [x, b.known(axes)] if by_operand and (axes or b.chance(0.3)) else [x]
    if not by_operand and axes:
        more["axes"] = axes
    b.node(f"Reduce{op}", operands, exact=op in ("Max", "Min") or not x.is_float, **more)


def arguments(b: Builder) -> None:
    x = b.pick(NUMBERS, 1, exact=True)
    more: dict[str, Any] = {
        "axis": b.axis(x.rank),
        "keepdims": b.rng.choice((0, 1, None)),
        "select_last_index": b.rng.choice((0, 1, None)),
    }
    b.node(b.rng.choice(("ArgMax", "ArgMin")), [x], exact=True, **more)


def orders(b: Builder) -> None:
    """Without ties: which of equal ones comes first is left open."""
    x = b.pick(("float32", "float64", "int64", "int32"), 1)
    distinct = b.feed((b.numbers.permutation(x.array.size).reshape(x.shape) / 4).astype(x.array.dtype))
    if not x.is_float:
        distinct = b.feed(b.numbers.permutation(x.array.size).reshape(x.shape).astype(x.array.dtype))
    axis = b.axis(x.rank)
    k = b.known([b.rng.randint(0 if b.chance(0.1) else 1, max(x.shape[axis], 1))])
    b.node("TopK", [distinct, k], 2, exact=True, axis=axis, largest=b.rng.choice((0, 1, None)))


def totals(b: Builder) -> None:
    x = b.pick(("float32", "float64", "int64", "int32"), 1)
    flags: dict[str, Any] = {"exclusive": b.rng.choice((0, 1, None)), "reverse": b.rng.choice((0, 1, None))}
    b.node("CumSum", [x, b.known(b.axis(x.rank), b.rng.choice(("int64", "int32")))], exact=not x.is_float, **flags)


def softmaxes(b: Builder) -> None:
    x = b.pick(FLOATS, 1)
    b.node(b.rng.choice(("Softmax", "LogSoftmax")), [x], axis=b.rng.choice((None, b.axis(x.rank))))


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


MAKERS = (
    smooth, smooth, steps, ranged, binary, binary, several, quotients, integer_powers, comparisons, logic, bits, where, clip,
    casts, transposes, reshapes, flattens, squeezes, concats, splits, slices, slices, pads, pads, copies, triangles, blocks,
    center, sequences, reductions, reductions, reductions, arguments, orders, totals, softmaxes, gathers, gathers, scatters,
    scatters, one_hots, shapes,
)  # fmt: skip
