"""Operators of ONNX on a few operands, each a line of text: what models hold besides products and convolutions."""

# pyright: reportUnknownMemberType=false, reportUnknownArgumentType=false, reportUnknownVariableType=false

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from importlib import import_module
from typing import Any

import numpy as np
from function_table import Draws

onnx: Any = import_module("onnx")
helper: Any = import_module("onnx.helper")

CASES = """
Abs(a); Ceil(a); Floor(a); Neg(a); Sign(a); Sqrt(p); Exp(a); Log(p); Erf(a); Tanh(a); Sigmoid(a); Sin(a); Cos(a); Tan(a)
Asin(z); Acos(z); Atan(a); Sinh(a); Cosh(a); Asinh(a); Acosh(p1); Atanh(z); Softplus(a); Softsign(a); Elu(a); Selu(a); Celu(a)
HardSigmoid(a); HardSwish(a); Mish(a); Relu(a); LeakyRelu(a); ThresholdedRelu(a); Reciprocal(a); Round(a); IsNaN(a); IsInf(a)
Shrink(a); Gelu(a); Gelu(a, approximate="tanh"); Not(t); PRelu(x, f(31, 1, 1)); Add(a, b); Add(a, f(len(a)))
Add(x, f(31, 1, 1)); Div(a, p); Pow(a, c(2, F32)); Pow(p, c(0.5, F32)); Pow(p, c(2.5, F32)); Pow(p, b); Pow(n, c(2, np.int32))
Mod(a, c(0.7, F32), fmod=1); Mod(n, m); Mod(l, lm); Mod(l, c(7)); Mod(k, c(7, np.int8)); Mod(n, m, fmod=1); Div(n, m)
Div(l, lm); Div(l, c(7)); Mul(l, lm); Add(k, k); Add(n, m); Add(o, o); Add(e, e); Max(a, b); Min(o, o); Max(l, lm); Sum(a, b, a)
Mean(a, b, a); Where(t, a, b); Where(t, a, c(0, F32)); Where(t, l, lm); Equal(l, lm); Less(a, b); Greater(n, m); And(t, t)
BitwiseAnd(n, m); BitShift(u, c(2, np.uint8), direction="RIGHT"); Clip(a, c(-1, F32), c(1, F32))
Clip(k, c(-10, np.int8), c(10, np.int8)); Clip(n, c(-10, np.int32), c(10, np.int32))
QuantizeLinear(a, c(0.05, F32), c(3, np.int8)); QuantizeLinear(a, c(0.05, F32), c(128, np.uint8))
DequantizeLinear(k, c(0.05, F32), c(3, np.int8)); DequantizeLinear(u, c(0.05, F32), c(128, np.uint8))
QuantizeLinear(x, f(31, least=0.01), c([0] * 31, np.int8), axis=1)
DequantizeLinear(x8, f(31, least=0.01), c([0] * 31, np.int8), axis=1); DynamicQuantizeLinear(a, outs=3)
ReduceSum(a, c([0]), keepdims=0); ReduceSum(a, c([1]), keepdims=0); ReduceMean(a, c([0]), keepdims=0)
ReduceMean(a, c([1]), keepdims=0); ReduceMax(a, c([0]), keepdims=0); ReduceMax(a, c([1]), keepdims=0)
ReduceMin(a, c([0]), keepdims=0); ReduceMin(a, c([1]), keepdims=0); ReduceProd(p, c([0]), keepdims=0)
ReduceProd(p, c([1]), keepdims=0); ReduceL1(a, c([0]), keepdims=0); ReduceL1(a, c([1]), keepdims=0)
ReduceL2(a, c([0]), keepdims=0); ReduceL2(a, c([1]), keepdims=0); ReduceLogSumExp(a, c([0]), keepdims=0)
ReduceLogSumExp(a, c([1]), keepdims=0); ReduceSumSquare(a, c([0]), keepdims=0); ReduceSumSquare(a, c([1]), keepdims=0)
ReduceSum(s, c([1]), keepdims=0); ReduceSum(s, c([0, 2]), keepdims=0); ReduceMean(s, c([1]), keepdims=0)
ReduceMean(s, c([0, 2]), keepdims=0); ReduceMax(s, c([1]), keepdims=0); ReduceMax(s, c([0, 2]), keepdims=0)
ReduceL2(s, c([1]), keepdims=0); ReduceLogSumExp(s, c([1]), keepdims=0); ReduceLogSumExp(s, c([0, 2]), keepdims=0)
ReduceSum(a, keepdims=0); ReduceMax(a, keepdims=0); ReduceMean(a, keepdims=0); ReduceSum(q, c([1]), keepdims=0)
ReduceSum(q, c([0]), keepdims=0); ReduceMax(q, c([1]), keepdims=0); ReduceSum(n, c([1]), keepdims=0)
ReduceSum(l, c([1]), keepdims=0); ReduceSum(l, c([0]), keepdims=0); ReduceMax(k, c([1]), keepdims=0)
ReduceMax(n, c([1]), keepdims=0); ReduceMean(o, c([1]), keepdims=0); ReduceSum(e, c([1]), keepdims=0); ReduceMean(x, c([2, 3]))
ArgMax(a, axis=1, keepdims=0); ArgMax(a, axis=0, keepdims=0); ArgMin(n, axis=1); ArgMax(s, axis=1); CumSum(a, c(1))
CumSum(a, c(0)); CumSum(a, c(1), reverse=1, exclusive=1); CumSum(l, c(1)); TopK(a, c([5]), outs=2)
TopK(a, c([5]), outs=2, axis=0); TopK(a, c([100]), outs=2); Softmax(a, axis=1); Softmax(a, axis=0); Softmax(s, axis=1)
Softmax(q, axis=1); Softmax(d, axis=0); LogSoftmax(a, axis=1); LogSoftmax(a, axis=0); Softmax(o, axis=1); Softmax(e, axis=1)
Hardmax(a, axis=1); LayerNormalization(a, f(len(a)), f(len(a)), axis=-1); LayerNormalization(q, f(63), f(63), axis=-1)
RMSNormalization(a, f(len(a)), axis=-1, opset=23); GroupNormalization(x32, f(32), f(32), num_groups=8)
InstanceNormalization(x, f(31), f(31)); BatchNormalization(x, f(31), f(31), f(31), f(31, least=0.1)); LpNormalization(a, axis=1)
LRN(x, size=5); MeanVarianceNormalization(x); MaxPool(x, kernel_shape=[2, 2], strides=[2, 2])
MaxPool(x, kernel_shape=[3, 3], strides=[2, 2], pads=[1, 1, 1, 1])
MaxPool(x, kernel_shape=[3, 3], strides=[1, 1], pads=[1, 1, 1, 1])
MaxPool(x, kernel_shape=[5, 5], strides=[1, 1], pads=[2, 2, 2, 2]); MaxPool(x8, kernel_shape=[2, 2], strides=[2, 2])
AveragePool(x, kernel_shape=[2, 2], strides=[2, 2]); AveragePool(x, kernel_shape=[3, 3], strides=[1, 1], pads=[1, 1, 1, 1])
AveragePool(x, kernel_shape=[3, 3], strides=[2, 2], pads=[1, 1, 1, 1], count_include_pad=1); GlobalAveragePool(x)
GlobalMaxPool(x); LpPool(x, kernel_shape=[2, 2], strides=[2, 2]); MaxPool(x, kernel_shape=[2, 2], strides=[2, 2], outs=2)
Resize(x, *scales(1, 1, 2, 2), mode="nearest", nearest_mode="floor", coordinate_transformation_mode="asymmetric")
Resize(x, *scales(1, 1, 2, 2), mode="nearest"); Resize(x, *scales(1, 1, 1.7, 1.7), mode="nearest")
Resize(x, *scales(1, 1, 2, 2), mode="linear")
Resize(x, *scales(1, 1, 2, 2), mode="linear", coordinate_transformation_mode="align_corners")
Resize(x, *scales(1, 1, 0.5, 0.5), mode="linear"); Resize(x, *scales(1, 1, 2, 2), mode="cubic")
Resize(x, *scales(1, 1, 0.5, 0.5), mode="linear", antialias=1); Resize(xu, *scales(1, 1, 2, 2), mode="linear")
Gather(a, i, axis=0); Gather(a, i, axis=1); Gather(a, c(i), axis=0); Gather(a, c(i), axis=1); Gather(s, i63, axis=0)
Gather(o, i, axis=0); Gather(l, i, axis=0); GatherElements(a, j, axis=1); GatherElements(a, j, axis=0); GatherND(a, half)
GatherND(a, jj); ScatterElements(a, perm, b, axis=1); ScatterElements(a, permt, b, axis=0)
ScatterElements(a, j, b, axis=1, reduction="add"); ScatterND(a, half, bhalf); ScatterND(a, half, bhalf, reduction="add")
OneHot(i, c([511]), c([0, 1], F32)); Gather(words, word, axis=0); Slice(a, c([3, 7]), c([-5, -2]), c([0, 1]))
Slice(a, c([0, 0]), c([9999, 9999]), c([0, 1]), c([2, 3])); Slice(a, c([0]), c([9999]), c([1]), c([2]))
Slice(a, c([-1]), c([-9999]), c([1]), c([-1])); Slice(a, c([-1]), c([-9999]), c([0]), c([-1]))
Slice(k, c([0]), c([9999]), c([1]), c([2])); Pad(a, c([2, 1, 3, 4]), mode="constant"); Pad(a, c([2, 1, 3, 4]), mode="edge")
Pad(a, c([2, 1, 3, 4]), mode="reflect"); Pad(a, c([2, 1, 3, 4]), mode="wrap"); Pad(x, c([0, 0, 1, 1, 0, 0, 1, 1]))
Pad(x, c([0, 0, 2, 2, 0, 0, 2, 2]), mode="reflect"); Tile(a, c([1, 2])); Tile(a, c([2, 1])); Expand(row, c([len(a), len(a)]))
Expand(column, c([len(a), len(a)])); Concat(a, b, axis=0); Concat(a, b, axis=1); Concat(s, s, axis=1); Concat(k, k, axis=1)
Concat(q, q, axis=1); Concat(x, x32, axis=1); Split(a, c([9, len(a) - 9]), outs=2, axis=0)
Split(a, c([9, len(a) - 9]), outs=2, axis=1); Split(q, c([31, 32]), outs=2, axis=1); Transpose(a, perm=[1, 0])
Transpose(k, perm=[1, 0]); Transpose(o, perm=[1, 0]); Transpose(l, perm=[1, 0]); Transpose(s, perm=[0, 2, 1])
Transpose(s, perm=[1, 0, 2]); Transpose(s, perm=[2, 1, 0]); Transpose(s, perm=[1, 2, 0]); Transpose(s, perm=[2, 0, 1])
Transpose(h, perm=[0, 2, 3, 1]); Transpose(h, perm=[0, 3, 1, 2]); Transpose(h, perm=[0, 2, 1, 3])
Transpose(h, perm=[3, 2, 1, 0]); Transpose(h, perm=[1, 0, 3, 2]); Transpose(h, perm=[2, 3, 0, 1])
Transpose(g, perm=[4, 3, 2, 1, 0]); Transpose(g, perm=[0, 2, 1, 4, 3]); Transpose(g, perm=[3, 1, 0, 4, 2])
Transpose(g, perm=[0, 1, 3, 2, 4]); Transpose(g, perm=[0, 3, 1, 4, 2]); DepthToSpace(x32, blocksize=2)
DepthToSpace(x32, blocksize=2, mode="CRD"); SpaceToDepth(even, blocksize=2); Trilu(a, upper=0); Trilu(a, c(3), upper=1)
EyeLike(a); Reshape(a, c([-1])); Identity(a); ReverseSequence(a, lengths, batch_axis=0, time_axis=1)
Einsum(a, row1, equation="ij,j->i"); Einsum(s, s, equation="bij,bij->bi"); Einsum(s, equation="ijk->kji")
Einsum(a, equation="ii->i"); MatMul(a, row1); Gemm(a, f(len(a), 16), f(16)); MatMulInteger(k, c([[3] * 33] * len(k), np.int8))
LSTM(steps, f(1, 256, 64, scale=0.1), f(1, 256, 64, scale=0.1), outs=1, hidden_size=64)
GRU(steps, f(1, 192, 64, scale=0.1), f(1, 192, 64, scale=0.1), outs=1, hidden_size=64)
Conv(x, f(31, 1, 3, 3), group=31, pads=[1, 1, 1, 1]); GridSample(x, grid); SoftmaxCrossEntropyLoss(a, i)
NegativeLogLikelihoodLoss(a, i); Col2Im(windows, c([size, size]), c([3, 3])); Dropout(a); Cast(p, to=types['u8'])
"""
"""Lines of operators; `arguments` has what their letters are. `c(...)` is a constant, `f(...)` one of f32."""

CASTS = {"f32": "a", "f16": "o", "f64": "e", "i8": "k", "u8": "u", "i16": "w", "i32": "n", "i64": "l", "bool": "t"}
"""Letters of the types between which all casts are cases."""
TYPES = {"f32": 1, "u8": 2, "i8": 3, "i16": 5, "i32": 6, "i64": 7, "bool": 9, "f16": 10, "f64": 11}
"""Numbers of types in ONNX."""


@dataclass(frozen=True)
class Constant:
    """An operand that the model has; None is one that it leaves out."""

    value: Any


@dataclass(frozen=True)
class Case:
    """An operator, its operands (arrays and constants) and its attributes."""

    operator: str
    operands: Sequence[Any]
    attributes: Mapping[str, Any]

    def inputs(self) -> list[Any]:
        return [operand for operand in self.operands if not isinstance(operand, Constant)]

    def model(self) -> Any:
        names, inputs, constants = list[str](), list[Any](), list[Any]()
        for number, operand in enumerate(self.operands):
            name = f"x{number}"
            if isinstance(operand, Constant):
                name = "" if operand.value is None else name
                constants += [] if operand.value is None else [onnx.numpy_helper.from_array(operand.value, name)]
            else:
                kind = helper.np_dtype_to_tensor_dtype(operand.dtype)
                inputs.append(helper.make_tensor_value_info(name, kind, operand.shape))
            names.append(name)
        attributes = dict(self.attributes)
        outputs, opset = [f"y{n}" for n in range(attributes.pop("outs", 1))], attributes.pop("opset", 21)
        node = helper.make_node(self.operator, names, outputs, **attributes)
        results = [onnx.ValueInfoProto(name=name) for name in outputs]
        graph = helper.make_graph([node], "case", inputs, results, constants)
        model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=10)
        return onnx.shape_inference.infer_shapes(model, data_prop=True)


class _Scope(dict[str, Any]):
    """What a text sees: letters, helpers, and each other name as an operator."""

    def __missing__(self, name: str) -> Callable[..., Case]:
        return lambda *operands, **attributes: Case(name, operands, attributes)


def case(text: str, given: Mapping[str, Any]) -> Case:
    rng = np.random.default_rng(1)

    def floats(*extents: int, least: float | None = None, scale: float = 1.0) -> Constant:
        drawn = rng.standard_normal(extents).astype(np.float32) * np.float32(scale)
        return Constant(drawn if least is None else np.abs(drawn) + np.float32(least))

    def constant(value: Any, dtype: Any = np.int64) -> Constant:
        return Constant(np.asarray(value, dtype))

    def scales(*each: float) -> tuple[Constant, Constant]:
        return Constant(None), constant(each, np.float32)

    scope = _Scope(given, len=len, f=floats, c=constant, scales=scales, np=np, F32=np.float32, types=TYPES)
    return eval(text, {"__builtins__": {}}, scope)


def arguments(elements: int, seed: int = 0) -> Mapping[str, Any]:
    """By letter: arrays of about so many elements, of f32 where the operators do not show another type."""
    draws = Draws(elements, seed)
    (rows, side, image, depth), normal, drawn = draws.extents, draws.normal, draws.drawn
    a, n = normal(rows, rows), drawn(-1000, 1000, np.int32, rows, rows)
    x, positive = normal(8, 31, image, image), drawn(1, 50, np.int32, rows, rows)
    j = drawn(0, rows, np.int64, rows, rows)
    b = normal(rows, rows)
    permuted = np.stack([draws.rng.permutation(rows) for _ in range(rows)])
    return {
        "a": a, "b": b, "p": np.abs(a) + np.float32(0.1), "s": normal(63, side, side), "z": a * np.float32(0.1),
        "q": normal(elements // 63, 63), "d": normal(63, elements // 63), "i": drawn(0, rows, np.int64, rows), "j": j,
        "jj": np.stack([j, j.T], -1), "perm": permuted, "permt": permuted.T.copy(),
        "half": draws.rng.permutation(rows)[: rows // 2, None],
        "o": a.astype(np.float16), "e": a.astype(np.float64), "n": n, "m": positive, "l": n.astype(np.int64),
        "lm": positive.astype(np.int64), "k": drawn(-100, 100, np.int8, rows, rows), "u": drawn(0, 255, np.uint8, rows, rows),
        "w": n.astype(np.int16), "t": a > 0, "x": x, "x32": normal(8, 32, image, image), "x8": (x * 30).astype(np.int8),
        "xu": (np.abs(x) * 30).astype(np.uint8), "h": normal(9, max(elements // (9 * 31 * 65), 3), 31, 65),
        "g": normal(7, 9, 11, depth, 33), "grid": (draws.rng.random((8, image, image, 2)) * 2 - 1).astype(np.float32),
        "words": normal(1000, 64), "word": drawn(0, 1000, np.int64, elements // 64), "lengths": drawn(1, rows, np.int64, rows),
        "steps": normal(min(max(elements // 1024, 3), 200), 16, 64), "windows": normal(1, 9, (image - 2) ** 2), "size": image,
        "p1": np.abs(a) + 1,
        "i63": drawn(0, 63, np.int64, 63), "bhalf": b[: rows // 2], "row": a[:1].copy(), "row1": a[0].copy(),
        "column": a[:, :1].copy(), "even": normal(8, 32, image & ~1, image & ~1),
    }  # fmt: skip


def cases() -> list[str]:
    """All operators as text, in order."""
    pairs = [(kind, to) for kind in CASTS for to in TYPES if to != kind]
    casts = [f"Cast({CASTS[kind]}, to=types['{to}'])" for kind, to in pairs if not (kind[0] == "f" and to == "u8")]
    return [text.strip() for line in CASES.strip().splitlines() for text in line.split(";")] + casts
