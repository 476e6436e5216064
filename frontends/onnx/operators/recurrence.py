"""ONNX's recurrent layers, unrolled: the products of all steps' inputs at once, then one step after the other."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from fuse_opt.dialects.interfaces.shapes import dtype
from fuse_opt.frontends.builder import Emitter, Value, extents
from fuse_opt.frontends.onnx.operators.node import Node, OnnxError, Results, handler

_LONGEST = 1024
"""Steps that are unrolled; each is ten ops or more."""

Activation = Callable[[Value], Value]


@dataclass(frozen=True)
class Cell:
    """One direction of a layer: what its steps share."""

    g: Emitter
    activations: list[Activation]
    hidden: int
    recurrent: Value
    """R of this direction, [gates * hidden, hidden]."""
    input_bias: Value | None
    recurrent_bias: Value | None
    peepholes: list[Value]
    clip: float | None
    linear_before_reset: bool

    def parts(self, x: Value, axis: int = -1) -> list[Value]:
        """The gates of a value, each of `hidden` columns."""
        count = extents(x)[axis] // self.hidden
        return self.g.all("split", x, sizes=[self.hidden] * count, axis=axis)

    def clipped(self, x: Value) -> Value:
        if self.clip is None:
            return x
        return self.g.clip(x, self.g.like(-self.clip, x), self.g.like(self.clip, x))

    def projected(self, h: Value) -> Value:
        """h R^T."""
        return self.g.matmul(h, self.recurrent, transpose_rhs=True)


def _plain_step(cell: Cell, x: Value, h: Value, c: Value | None) -> tuple[Value, Value | None]:
    g = cell.g
    return cell.activations[0](cell.clipped(_biased(cell, g.add(x, cell.projected(h))))), None


def _biased(cell: Cell, x: Value) -> Value:
    return x if cell.recurrent_bias is None else cell.g.add(x, cell.recurrent_bias)


def _lstm_step(cell: Cell, x: Value, h: Value, c: Value | None) -> tuple[Value, Value | None]:
    g, clipped = cell.g, cell.clipped
    gate, squash, out = cell.activations
    c = c if c is not None else g.like(0, h)
    i, o, f, new = cell.parts(_biased(cell, g.add(x, cell.projected(h))))
    if cell.peepholes:
        i, f = g.add(i, g.multiply(cell.peepholes[0], c)), g.add(f, g.multiply(cell.peepholes[2], c))
    kept = g.multiply(gate(clipped(f)), c)
    c = g.add(kept, g.multiply(gate(clipped(i)), squash(clipped(new))))
    if cell.peepholes:
        o = g.add(o, g.multiply(cell.peepholes[1], c))
    return g.multiply(gate(clipped(o)), out(c)), c


def _gru_step(cell: Cell, x: Value, h: Value, c: Value | None) -> tuple[Value, Value | None]:
    g, clipped = cell.g, cell.clipped
    gate, squash = cell.activations
    xz, xr, xh = cell.parts(x)
    rz, rr, rh = cell.parts(cell.recurrent, 0)
    biases = [] if cell.recurrent_bias is None else cell.parts(cell.recurrent_bias)

    def product(value: Value, weight: Value, number: int) -> Value:
        y = g.matmul(value, weight, transpose_rhs=True)
        return g.add(y, biases[number]) if biases else y

    update = gate(clipped(g.add(xz, product(h, rz, 0))))
    reset = gate(clipped(g.add(xr, product(h, rr, 1))))
    if cell.linear_before_reset:
        candidate = g.multiply(reset, product(h, rh, 2))
    else:
        candidate = product(g.multiply(reset, h), rh, 2)
    new = squash(clipped(g.add(xh, candidate)))
    one = g.like(1, update)
    return g.add(g.multiply(g.subtract(one, update), new), g.multiply(update, h)), None


_STEPS = {"RNN": (_plain_step, ["Tanh"]), "GRU": (_gru_step, ["Sigmoid", "Tanh"])}
_STEPS["LSTM"] = (_lstm_step, ["Sigmoid", "Tanh", "Tanh"])


@handler("RNN", "GRU", "LSTM")
def recurrence(n: Node, g: Emitter) -> Results:
    batch_first = n.flag("layout")
    x = g.permute_dims(n.operand(0), axes=[1, 0, 2]) if batch_first else n.operand(0)
    steps, _, _ = extents(x)
    if steps > _LONGEST:
        raise n.refuse(f"{steps} steps are too many to unroll; expected {_LONGEST} or fewer")
    if n.flag("input_forget"):
        raise n.refuse("attribute input_forget is not supported")
    directions = {"bidirectional": [False, True], "reverse": [True]}.get(n.text("direction", "forward"), [False])
    found = [_direction(n, g, x, number, backward) for number, backward in enumerate(directions)]
    states = [g.concat(*(row[k] for row in found), axis=0) if found[0][k] is not None else None for k in (1, 2)]
    y = g.concat(*(row[0] for row in found), axis=1)
    results = [y, *(state for state in states if state is not None)]
    if batch_first:
        return [g.permute_dims(results[0], axes=[2, 0, 1, 3])] + [
            g.permute_dims(state, axes=[1, 0, 2]) for state in results[1:]
        ]
    return results


def _direction(n: Node, g: Emitter, x: Value, number: int, backward: bool) -> tuple[Value, Value, Value | None]:
    """All hidden states [steps, 1, batch, hidden], and the last hidden and cell state [1, batch, hidden]."""
    step, default = _STEPS[n.op_type]
    (steps, batch, _), hidden = extents(x), n.integer("hidden_size") or extents(n.operand(2))[2]

    def of_direction(position: int) -> Value | None:
        if not n.has(position):
            return None
        value = n.operand(position)
        if n.flag("layout") and position in (5, 6):
            value = g.permute_dims(value, axes=[1, 0, 2])
        rows = [number, *(0 for _ in extents(value)[1:])]
        part = g.slice(value, starts=rows, stops=[number + 1, *extents(value)[1:]])
        return g.reshape(part, shape=extents(value)[1:])

    cell = _cell(n, g, hidden, len(default), number, of_direction)
    weight = of_direction(1)
    if weight is None:
        raise OnnxError(f"{n}: operand 1 is absent; expected weights")
    inputs = g.matmul(x, weight, transpose_rhs=True)
    if cell.input_bias is not None:
        inputs = g.add(inputs, cell.input_bias)
    zero = g.number(0, dtype(x), [batch, hidden])
    h = of_direction(5) or zero
    c = (of_direction(6) or zero) if n.op_type == "LSTM" else None
    lengths = g.reshape(n.operand(4), shape=[batch, 1]) if n.has(4) else None
    outputs: list[Value] = []
    for t in range(steps)[:: -1 if backward else 1]:
        at = g.slice(inputs, starts=[t, 0, 0], stops=[t + 1, *extents(inputs)[1:]])
        new_h, new_c = step(cell, g.reshape(at, shape=extents(inputs)[1:]), h, c)
        output = new_h
        if lengths is not None:
            inside = g.less(g.like(t, lengths), lengths)
            new_h, output = g.where(inside, new_h, h), g.where(inside, new_h, zero)
            new_c = None if new_c is None or c is None else g.where(inside, new_c, c)
        h, c = new_h, new_c
        outputs.append(g.expand_dims(output, axes=[0, 1]))
    y = g.concat(*outputs[:: -1 if backward else 1], axis=0)
    return y, g.expand_dims(h, axes=[0]), None if c is None else g.expand_dims(c, axes=[0])


def _cell(n: Node, g: Emitter, hidden: int, functions: int, number: int, part: Callable[[int], Value | None]) -> Cell:
    recurrent, bias, peepholes = part(2), part(3), part(7) if n.op_type == "LSTM" else None
    if recurrent is None:
        raise OnnxError(f"{n}: operand 2 is absent; expected recurrent weights")
    halves = None if bias is None else g.all("split", bias, sizes=[extents(bias)[0] // 2] * 2, axis=0)
    return Cell(
        g,
        _activations(n, g, functions, number),
        hidden,
        recurrent,
        None if halves is None else halves[0],
        None if halves is None else halves[1],
        [] if peepholes is None else g.all("split", peepholes, sizes=[hidden] * 3, axis=0),
        n.number("clip", 0.0) if "clip" in n.attributes else None,
        n.flag("linear_before_reset"),
    )


def _activations(n: Node, g: Emitter, count: int, number: int) -> list[Activation]:
    _, default = _STEPS[n.op_type]
    names = [name.decode() if isinstance(name, bytes) else str(name) for name in n.attributes.get("activations", ())]
    names = names[number * count : (number + 1) * count] or default
    if n.attributes.get("activation_alpha") or n.attributes.get("activation_beta"):
        raise n.refuse("attributes activation_alpha and activation_beta are not supported")
    handlers = {"Relu": g.relu, "Tanh": g.tanh, "Sigmoid": g.sigmoid, "Softsign": g.softsign, "Softplus": g.softplus}
    unknown = [name for name in names if name not in handlers]
    if unknown:
        raise n.refuse(f"activation '{unknown[0]}' is not supported; expected one of {', '.join(handlers)}")
    return [handlers[name] for name in names]
