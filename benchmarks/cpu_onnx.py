"""Workloads as ONNX models, for ONNX Runtime."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from cpu_workloads import as_tuple
from gpu_workloads import Shape, Workload

OPSET = 23
_DTYPES = {"f32": np.float32, "f16": np.float16}


@dataclass(frozen=True)
class Value:
    """A tensor of a model under construction."""

    model: Model
    name: str
    shape: Shape

    def __add__(self, other: Any) -> Value:
        return self.model.node("Add", [self, other])

    def __sub__(self, other: Any) -> Value:
        return self.model.node("Sub", [self, other])

    def __mul__(self, other: Any) -> Value:
        return self.model.node("Mul", [self, other])

    def __truediv__(self, other: Any) -> Value:
        return self.model.node("Div", [self, other])


@dataclass
class Model:
    """The functions that workloads call; each adds nodes."""

    onnx: Any
    dtype: str
    nodes: list[Any] = field(default_factory=list[Any])
    constants: dict[bytes, Any] = field(default_factory=dict[bytes, Any])

    def node(self, kind: str, operands: Sequence[Any], shape: Shape | None = None, **attributes: Any) -> Value:
        """A node; its shape is that of broadcasting where none is given."""
        values = [v if isinstance(v, Value) else self.constant(np.array(v, _DTYPES[self.dtype])) for v in operands]
        if shape is None:
            shape = np.broadcast_shapes(*(value.shape for value in values))
        result = Value(self, f"v{len(self.nodes)}", shape)
        names = [value.name for value in values]
        self.nodes.append(self.onnx.helper.make_node(kind, names, [result.name], **attributes))
        return result

    def constant(self, array: Any) -> Value:
        key = array.tobytes() + str(array.dtype).encode()
        if key not in self.constants:
            name = f"c{len(self.constants)}"
            self.constants[key] = self.onnx.numpy_helper.from_array(array, name)
        return Value(self, self.constants[key].name, array.shape)

    def _indices(self, *numbers: int) -> Value:
        return self.constant(np.array(numbers, np.int64))

    def exp(self, x: Value) -> Value:
        return self.node("Exp", [x])

    def tanh(self, x: Value) -> Value:
        return self.node("Tanh", [x])

    def sqrt(self, x: Value) -> Value:
        return self.node("Sqrt", [x])

    def sin(self, x: Value) -> Value:
        return self.node("Sin", [x])

    def cos(self, x: Value) -> Value:
        return self.node("Cos", [x])

    def abs(self, x: Value) -> Value:
        return self.node("Abs", [x])

    def maximum(self, x: Value, y: Any) -> Value:
        return self.node("Max", [x, y])

    def minimum(self, x: Value, y: Any) -> Value:
        return self.node("Min", [x, y])

    def sigmoid(self, x: Value) -> Value:
        return self.node("Sigmoid", [x])

    def relu(self, x: Value) -> Value:
        return self.node("Relu", [x])

    def silu(self, x: Value) -> Value:
        return x * self.sigmoid(x)

    def gelu(self, x: Value, approximate: str) -> Value:
        return self.node("Gelu", [x], approximate=approximate)

    def where(self, condition: Value, x: Any, y: Any) -> Value:
        return self.node("Where", [condition, x, y])

    def clip(self, x: Value, least: float, most: float) -> Value:
        return self.node("Clip", [x, least, most])

    def softmax(self, x: Value) -> Value:
        return self.node("Softmax", [x], axis=-1)

    def layer_norm(self, x: Value, scale: Value, bias: Value) -> Value:
        return self.node("LayerNormalization", [x, scale, bias], x.shape, axis=-1, epsilon=1e-5)

    def rms_norm(self, x: Value, scale: Value) -> Value:
        return self.node("RMSNormalization", [x, scale], x.shape, axis=-1, epsilon=1e-5)

    def batch_norm(self, x: Value, scale: Value, bias: Value, mean: Value, variance: Value) -> Value:
        return self.node("BatchNormalization", [x, scale, bias, mean, variance], x.shape, epsilon=1e-5)

    def mean(self, x: Value, axis: int, keep: int = 0) -> Value:
        shape = tuple(1 if k == axis else n for k, n in enumerate(x.shape) if keep or k != axis)
        return self.node("ReduceMean", [x, self._indices(axis)], shape, keepdims=keep)

    def var(self, x: Value, axis: int) -> Value:
        centred = x - self.mean(x, axis, 1)
        return self.mean(centred * centred, axis)

    def sum(self, x: Value, axis: int) -> Value:
        shape = tuple(n for k, n in enumerate(x.shape) if k != axis)
        return self.node("ReduceSum", [x, self._indices(axis)], shape, keepdims=0)

    def tile(self, x: Value, times: int) -> Value:
        return self.node("Tile", [x, self._indices(times)], (x.shape[0] * times,))

    def concat(self, x: Value, y: Value) -> Value:
        return self.node("Concat", [x, y], (x.shape[0], x.shape[1] + y.shape[1]), axis=1)

    def transpose(self, x: Value) -> Value:
        return self.permute(x, (1, 0))

    def permute(self, x: Value, axes: tuple[int, ...]) -> Value:
        return self.node("Transpose", [x], tuple(x.shape[k] for k in axes), perm=list(axes))

    def reshape(self, x: Value, shape: Shape) -> Value:
        return self.node("Reshape", [x, self._indices(*shape)], shape)

    def part(self, x: Value, start: int, stop: int) -> Value:
        return self.last(x, start, stop)

    def last(self, x: Value, start: int, stop: int) -> Value:
        bounds = [self._indices(k) for k in (start, stop, -1)]
        return self.node("Slice", [x, *bounds], (*x.shape[:-1], stop - start))

    def matmul(self, x: Value, y: Value) -> Value:
        shape = (*np.broadcast_shapes(x.shape[:-2], y.shape[:-2]), x.shape[-2], y.shape[-1])
        return self.node("MatMul", [x, y], shape)

    def conv(self, x: Value, w: Value) -> Value:
        return self.node("Conv", [x, w], (x.shape[0], w.shape[0], *x.shape[2:]), pads=[1, 1, 1, 1])


def model_of(onnx: Any, workload: Workload) -> bytes:
    """The workload as a model with inputs a0, a1, ... and results r0, r1, ..."""
    types = {"f32": onnx.TensorProto.FLOAT, "f16": onnx.TensorProto.FLOAT16, "i1": onnx.TensorProto.BOOL}
    if workload.dtype(0) not in types:
        raise NotImplementedError(f"no kernels for {workload.dtype(0)}")
    model, helper = Model(onnx, workload.dtype(0)), onnx.helper
    inputs = [Value(model, f"a{k}", shape) for k, shape in enumerate(workload.shapes)]
    results = as_tuple(workload.body(model, *inputs))
    named = [
        helper.make_tensor_value_info(f"r{k}", types[workload.dtype(0)], value.shape) for k, value in enumerate(results)
    ]
    model.nodes += [helper.make_node("Identity", [v.name], [f"r{k}"]) for k, v in enumerate(results)]
    heads = [helper.make_tensor_value_info(v.name, types[workload.dtype(k)], v.shape) for k, v in enumerate(inputs)]
    graph = helper.make_graph(model.nodes, workload.name, heads, named, list(model.constants.values()))
    opset = helper.make_opsetid("", OPSET)
    return helper.make_model(graph, opset_imports=[opset], ir_version=10).SerializeToString()
