"""
Models of PyTorch as functions of jax arrays: what PyTorch exports, op for op in jax.numpy, so that XLA compiles them whole.

Only the ops are here that the models of models.py export; another one is refused by its name.
"""

# pyright: reportUnknownLambdaType=false, reportUnknownMemberType=false, reportUnknownArgumentType=false
# pyright: reportUnknownVariableType=false

from __future__ import annotations

from collections.abc import Callable
from importlib import import_module
from typing import Any

jax: Any = import_module("jax")
jnp: Any = import_module("jax.numpy")

Weights = dict[str, Any]


def exported(model: Any, x: Any) -> tuple[Callable[[Weights, Any], Any], Weights]:
    """The model's first result as a function of its parameters and of x, and its parameters and buffers."""
    torch: Any = import_module("torch")

    program = torch.export.export(model, (x,))
    constants = {name: _array(value) for name, value in program.constants.items() if hasattr(value, "numpy")}
    frozen = {name for name, value in model.named_parameters() if value.requires_grad}
    state = {name: _array(value.detach()) for name, value in program.state_dict.items()}
    weights = {name: value for name, value in state.items() if name in frozen}
    rest = {name: value for name, value in state.items() if name not in frozen} | constants
    names = {spec.arg.name: spec.target for spec in program.graph_signature.input_specs if spec.target is not None}

    def run(weights: Weights, x: Any) -> Any:
        given = rest | weights
        values: dict[Any, Any] = {}
        for node in program.graph.nodes:
            if node.op == "placeholder":
                values[node] = given[names[node.name]] if node.name in names else x
            elif node.op == "output":
                return values[node.args[0][0]]
            else:
                arguments, options = torch.fx.node.map_arg((node.args, node.kwargs), values.__getitem__)
                values[node] = _function(node.target)(*arguments, **options)
        raise AssertionError("a graph without a result")

    return run, weights


def training_step(model: Any, x: Any, momentum: bool) -> Callable[[], float]:
    """A step of `models.py`, optimiser included: SGD with momentum, or Adam. Each gives the loss before it."""
    function, weights = exported(model, x)
    array = _array(x)

    def sgd(w: Any, g: Any, m: Any, v: Any, n: Any) -> tuple[Any, Any, Any]:
        m = 0.9 * m + g
        return w - 1e-3 * m, m, v

    def adam(w: Any, g: Any, m: Any, v: Any, n: Any) -> tuple[Any, Any, Any]:
        m, v = 0.9 * m + 0.1 * g, 0.999 * v + 0.001 * g * g
        return w - 1e-4 / (1 - 0.9**n) * m / (jnp.sqrt(v / (1 - 0.999**n)) + 1e-8), m, v

    def step(state: Any, count: Any, x: Any) -> Any:
        weights, first, second = state
        loss, gradients = jax.value_and_grad(lambda w: (function(w, x) ** 2).mean())(weights)
        count = count + 1.0
        update = sgd if momentum else adam
        found = {k: update(w, gradients[k], first[k], second[k], count) for k, w in weights.items()}
        return loss, tuple({k: each[n] for k, each in found.items()} for n in range(3)), count

    jitted = jax.jit(step, donate_argnums=(0,))
    state = (weights, *(jax.tree.map(jnp.zeros_like, weights) for _ in range(2)))
    kept: list[Any] = [state, jnp.zeros(())]

    def run() -> float:
        loss, *kept[:] = jitted(*kept, array)
        return float(loss)

    return run


def _array(value: Any) -> Any:
    return jnp.asarray(value.numpy())


def _function(target: Any) -> Callable[..., Any]:
    name = str(target).removeprefix("aten.").split(".")[0]
    if name not in OPS:
        raise NotImplementedError(f"{target} is not among the ops that are written in jax.numpy")
    return OPS[name]


def _convolution(
    x: Any, w: Any, b: Any = None, strides: Any = 1, pads: Any = 0, dilation: Any = 1, groups: int = 1
) -> Any:
    rank = x.ndim - 2
    strides, pads, dilation = (
        list(v) if isinstance(v, list | tuple) else [v] * rank for v in (strides, pads, dilation)
    )
    strides, pads, dilation = (v * rank if len(v) == 1 else v for v in (strides, pads, dilation))
    y = jax.lax.conv_general_dilated(
        x, w, strides, [(p, p) for p in pads], rhs_dilation=dilation, feature_group_count=groups
    )
    return y if b is None else y + b.reshape(-1, *[1] * rank)


def _batch_norm(
    x: Any, w: Any, b: Any, mean: Any, var: Any, training: bool, _: float, epsilon: float, *rest: Any
) -> Any:
    """In training by the batch's moments; running ones, which nothing reads then, stay as they are."""
    axes = [0, *range(2, x.ndim)]
    if training:
        mean, var = x.mean(axes), x.var(axes)
    column = (-1, *[1] * (x.ndim - 2))
    scale = w * jax.lax.rsqrt(var + epsilon)
    return x * scale.reshape(column) + (b - mean * scale).reshape(column)


def _layer_norm(x: Any, shape: Any, w: Any, b: Any, epsilon: float = 1e-5, *rest: Any) -> Any:
    axes = list(range(x.ndim - len(shape), x.ndim))
    centred = x - x.mean(axes, keepdims=True)
    return centred * jax.lax.rsqrt((centred**2).mean(axes, keepdims=True) + epsilon) * w + b


def _attention(
    q: Any, k: Any, v: Any, mask: Any = None, dropout: float = 0.0, causal: bool = False, **options: Any
) -> Any:
    assert not dropout
    scale = options.get("scale") or q.shape[-1] ** -0.5
    scores = q @ jnp.swapaxes(k, -1, -2) * scale
    if causal:
        mask = jnp.tril(jnp.ones(scores.shape[-2:], bool))
    if mask is not None:
        scores = jnp.where(mask, scores, -jnp.inf) if mask.dtype == bool else scores + mask
    return jax.nn.softmax(scores, -1) @ v


def _max_pool(x: Any, window: Any, strides: Any, pads: Any = (0, 0), *rest: Any) -> Any:
    padding = [(0, 0), (0, 0), *[(p, p) for p in pads]]
    return jax.lax.reduce_window(x, -jnp.inf, jax.lax.max, (1, 1, *window), (1, 1, *strides), padding)


def _mean_pool(x: Any, size: Any) -> Any:
    assert list(size) == [1, 1]
    return x.mean((2, 3), keepdims=True)


def _slice(x: Any, axis: int = 0, start: Any = None, stop: Any = None, step: int = 1) -> Any:
    return x[(slice(None),) * axis + (slice(start, stop, step),)]


def _pad(x: Any, pads: Any, mode: str = "constant", value: float | None = None) -> Any:
    pairs = [(0, 0)] * (x.ndim - len(pads) // 2)
    pairs += [(pads[n], pads[n + 1]) for n in range(len(pads) - 2, -1, -2)]
    return jnp.pad(x, pairs, constant_values=value or 0.0)


def _split(x: Any, size: int, axis: int = 0) -> Any:
    return jnp.split(x, list(range(size, x.shape[axis], size)), axis)


def _expand(x: Any, sizes: Any) -> Any:
    added = len(sizes) - x.ndim
    return jnp.broadcast_to(x, [x.shape[n - added] if size == -1 else size for n, size in enumerate(sizes)])


def _index(x: Any, places: Any) -> Any:
    return x[tuple(slice(None) if place is None else place for place in places)]


def _flatten(x: Any, start: int = 0, stop: int = -1) -> Any:
    return x.reshape(*x.shape[:start], -1, *x.shape[stop % x.ndim + 1 :])


OPS: dict[str, Callable[..., Any]] = {
    "conv2d": _convolution, "batch_norm": _batch_norm, "layer_norm": _layer_norm, "max_pool2d": _max_pool,
    "adaptive_avg_pool2d": _mean_pool, "scaled_dot_product_attention": _attention, "pad": _pad, "slice": _slice,
    "split": _split, "expand": _expand, "index": _index, "flatten": _flatten,
    "relu": jax.nn.relu, "tanh": jnp.tanh, "hardtanh": lambda x, low=-1.0, high=1.0: jnp.clip(x, low, high),
    "gelu": lambda x, approximate="none": jax.nn.gelu(x, approximate=approximate == "tanh"),
    "add": jnp.add, "add_": jnp.add, "sub": jnp.subtract, "mul": jnp.multiply, "pow": lambda x, n: x ** int(n),
    "linear": lambda x, w, b=None: x @ w.T if b is None else x @ w.T + b, "addmm": lambda b, x, w: x @ w + b,
    "embedding": lambda table, at, *_: table[at], "gather": lambda x, axis, at: jnp.take_along_axis(x, at, axis),
    "dropout": lambda x, rate, training: x, "to": lambda x, **_: x, "_assert_tensor_metadata": lambda *_, **__: None,
    "view": lambda x, shape: x.reshape(shape), "reshape": lambda x, shape: x.reshape(shape),
    "transpose": jnp.swapaxes, "unsqueeze": jnp.expand_dims, "cat": lambda xs, axis=0: jnp.concatenate(xs, axis),
    "select": lambda x, axis, at: jnp.take(x, at, axis), "arange": lambda *limits, **_: jnp.arange(*limits),
    "ge": jnp.greater_equal, "le": jnp.less_equal, "ne": jnp.not_equal, "eq": jnp.equal, "__and__": jnp.logical_and,
    "diff": lambda x, n=1, axis=-1, before=None: jnp.diff(x, n, axis, before), "cumsum": lambda x, axis: x.cumsum(axis),
    "new_ones": lambda x, shape, **_: jnp.ones(shape, x.dtype), "<built-in function getitem>": lambda xs, n: xs[n],
}  # fmt: skip
"""By the name of the op."""
