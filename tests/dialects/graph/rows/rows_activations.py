"""Rows of activation functions and their backward forms; expected values in long double."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np
from graph_op_table import BROADCASTS, EXTREMES, FLOATS, Case, Meaning, Row, binary, converted, ramp, samples, unary
from rows_math import Wide, curve, erf, erfc, wide_math

GRADIENTS = [np.nan, 0.0, 1.0, -1.5, 0.1, 3.0, -100.0]
PROBABILITIES = [np.nan, 0.0, 1.0, 0.5, 0.1, 0.999, 1e-3, 1e-6]

ROOT_2, PI = np.sqrt(Wide(2)), 4 * np.arctan(Wide(1))
SELU_ALPHA = Wide("1.6732632423543772848170429916717")
SELU_GAMMA = Wide("1.0507009873554804934193349852946")


def activation(op: str, function: Callable[[Any], Any], attributes: str = "", **rest: Any) -> Row:
    return curve(op, wide_math(function), attributes, **rest)


def backward(
    op: str, derivative: Callable[[Any], Any], attributes: str = "", at: Sequence[float] = (), **rest: Any
) -> Row:
    """A row of a backward form: finite gradients, and NaN, times the derivative at every sample or at given values."""

    def product(gradient: Any, x: Any) -> Any:
        return gradient * derivative(x)

    meaning = Meaning(wide_math(product), None, None, attributes=attributes, **rest)

    def cases() -> Iterator[Case]:
        for name in FLOATS:
            gradients = converted([*GRADIENTS, *EXTREMES[name]], name)
            x = converted(at, name) if at else samples(name)
            yield meaning.case(f"graph.{op}", name, np.repeat(gradients, len(x)), _tiled(x, len(gradients)))
            for left, right in BROADCASTS:
                yield meaning.case(f"graph.{op}", name, ramp(name, *left), ramp(name, *right))

    return Row(op, FLOATS, cases)


def _where(condition: Any, x: Any, y: Any) -> Any:
    return np.where(np.asarray(condition), np.asarray(x), np.asarray(y))


def _tiled(x: Any, count: int) -> Any:
    return np.concatenate([x] * count)


def _sigmoid(x: Any) -> Any:
    return 1 / (1 + np.exp(-x))


def _softplus(x: Any) -> Any:
    return np.maximum(x, 0) + np.log1p(np.exp(-np.abs(x)))


def _softsign(x: Any) -> Any:
    size: Any = np.abs(x)
    return x / (1 + size)


def _silu_slope(x: Any) -> Any:
    return _sigmoid(x) * (1 + x * _sigmoid(-x))


def _gelu_tanh(x: Any) -> Any:
    return 0.5 * x * (1 + np.tanh(np.sqrt(2 / PI) * (x + Wide("0.044715") * x**3)))


def _gelu(x: Any) -> Any:
    return 0.5 * x * (1 + erf(x / ROOT_2))


def _beyond(slope: Callable[[Any], Any]) -> Callable[[Any], Any]:
    """A derivative that has reached its limits 0 and 1 beyond 50."""

    def limited(x: Any) -> Any:
        far = (x > 50) | (x < -50)
        return _where(far, x > 0, slope(_where(far, 0, x)))

    return limited


def _gelu_slope(x: Any) -> Any:
    return 0.5 * erfc(-x / ROOT_2) + x * np.exp(-x * x / 2) / np.sqrt(2 * PI)


def _gelu_tanh_slope(x: Any) -> Any:
    root: Any = np.sqrt(2 / PI)
    cubic: Any = Wide("0.044715")
    wave: Any = root * (x + cubic * x**3)
    return 0.5 * (1 + np.tanh(wave)) + 0.5 * x / np.square(np.cosh(wave)) * root * (1 + 3 * cubic * x * x)


def _elu(x: Any, alpha: Any) -> Any:
    return _where(x > 0, x, alpha * np.expm1(x))


def _celu(x: Any, alpha: float) -> Any:
    return _where(x > 0, x, alpha * np.expm1(x / alpha))


def _clip(x: Any, low: float, high: float) -> Any:
    return np.minimum(np.maximum(x, low), high)


def _shrunk(x: Any, lambd: float, bias: float) -> Any:
    return np.select([x < -lambd, x > lambd], [x + bias, x - bias], 0)


def _hard_sigmoid_backward(alpha: float) -> Callable[[Any, Any], Any]:
    def product(gradient: Any, x: Any) -> Any:
        line = alpha * x + 0.5
        return _where((line > 0) & (line < 1), gradient * alpha, 0)

    return product


def _hard_swish_backward(gradient: Any, x: Any) -> Any:
    return np.select([x < -3, x <= 3], [np.zeros_like(x), gradient * (x / 3 + 0.5)], gradient)


def _selected(op: str, choose: Callable[[Any, Any], Any], attributes: str = "") -> Row:
    """A row of a backward form that leaves gradients out: infinite ones and NaN too."""
    return binary(op, floats=choose, attributes=attributes)


TANH, BETA = 'approximate = "tanh"', "beta = {} : f64"
SIXTH = "alpha = 0.16666666666666666 : f64, beta = 0.5 : f64"

FORWARD: list[Row] = [
    activation("sigmoid", _sigmoid),
    activation("log_sigmoid", lambda x: np.minimum(x, 0) - np.log1p(np.exp(-np.abs(x)))),
    activation("softplus", _softplus),
    activation("softplus", lambda x: _softplus(x * 0.3) / 0.3, BETA.format(0.3)),
    activation("softplus", lambda x: _softplus(x * -2) / -2, BETA.format(-2.0)),
    activation(
        "softplus", lambda x: _where(2 * x > 5, x, _softplus(2 * x) / 2), "beta = 2.0 : f64, threshold = 5.0 : f64"
    ),
    activation("softsign", _softsign, signed_zeros=True),
    activation("silu", lambda x: x / (1 + np.exp(-x)), signed_zeros=True),
    activation("mish", lambda x: x * np.tanh(_softplus(x)), signed_zeros=True),
    activation("gelu", _gelu),
    activation("gelu", _gelu, 'approximate = "none"'),
    activation("gelu", _gelu_tanh, TANH),
    unary("relu", floats=lambda x: _where(x < 0, 0, x), ints=lambda x: max(x, 0)),
    unary("relu6", floats=lambda x: _where(x < 0, 0, _where(x > 6, 6, x)), ints=lambda x: min(max(x, 0), 6)),
    activation("thresholded_relu", lambda x: _where(x > 1, x, 0)),
    activation("thresholded_relu", lambda x: _where(x > -0.75, x, 0), "alpha = -0.75 : f64"),
    activation("leaky_relu", lambda x: _where(x < 0, 0.01 * x, x), signed_zeros=True),
    activation("leaky_relu", lambda x: _where(x < 0, 0.3 * x, x), "alpha = 0.3 : f64"),
    binary("prelu", floats=lambda x, s: _where(x < 0, s * x, x), ints=lambda x, s: s * x if x < 0 else x),
    activation("elu", lambda x: _elu(x, 1.0), signed_zeros=True),
    activation("elu", lambda x: _elu(x, 0.7), "alpha = 0.7 : f64"),
    activation("selu", lambda x: SELU_GAMMA * _elu(x, SELU_ALPHA), signed_zeros=True),
    activation("selu", lambda x: 0.5 * _elu(x, 3.0), "alpha = 3.0 : f64, gamma = 0.5 : f64"),
    activation("celu", lambda x: _celu(x, 1.0), signed_zeros=True),
    activation("celu", lambda x: _celu(x, 0.3), "alpha = 0.3 : f64"),
    activation("hard_sigmoid", lambda x: _clip(0.2 * x + 0.5, 0, 1)),
    activation("hard_sigmoid", lambda x: _clip(x / 6 + 0.5, 0, 1), SIXTH),
    activation("hard_swish", lambda x: x * _clip(x + 3, 0, 6) / 6),
    activation("hard_tanh", lambda x: _clip(x, -1, 1), signed_zeros=True),
    activation("hard_tanh", lambda x: _clip(x, 0.1, 2.5), "min = 0.1 : f64, max = 2.5 : f64"),
    activation("shrink", lambda x: _shrunk(x, 0.5, 0.0)),
    activation("shrink", lambda x: _shrunk(x, 0.75, 0.75), "lambd = 0.75 : f64, bias = 0.75 : f64"),
]

BACKWARD: list[Row] = [
    backward("sigmoid_backward", lambda y: (1 - y) * y, at=PROBABILITIES),
    backward("log_sigmoid_backward", lambda x: _sigmoid(-x)),
    backward("tanh_backward", lambda y: (1 - y) * (1 + y), at=[*PROBABILITIES, -1.0, -0.25, -0.999]),
    backward("softplus_backward", _sigmoid),
    backward("softplus_backward", lambda x: _sigmoid(x * 0.3), BETA.format(0.3)),
    backward(
        "softplus_backward",
        lambda x: _where(2 * x > 5, 1, _sigmoid(2 * x)),
        "beta = 2.0 : f64, threshold = 5.0 : f64",
    ),
    backward("silu_backward", _silu_slope),
    backward("gelu_backward", _beyond(_gelu_slope)),
    backward("gelu_backward", _beyond(_gelu_tanh_slope), TANH),
    _selected("threshold_backward", lambda g, x: _where(x <= 0, 0, g)),
    _selected("threshold_backward", lambda g, x: _where(x <= 0.5, 0, g), "threshold = 0.5 : f64"),
    backward("leaky_relu_backward", lambda x: _where(x > 0, 1, 0.01)),
    backward("leaky_relu_backward", lambda x: _where(x > 0, 1, 0.3), "alpha = 0.3 : f64"),
    backward("elu_backward", lambda x: _where(x <= 0, np.exp(x), 1)),
    backward("elu_backward", lambda x: _where(x <= 0, 0.7 * np.exp(x), 1), "alpha = 0.7 : f64"),
    _selected("hard_sigmoid_backward", _hard_sigmoid_backward(0.2)),
    _selected("hard_sigmoid_backward", _hard_sigmoid_backward(1 / 6), SIXTH),
    _selected("hard_swish_backward", _hard_swish_backward),
]

ROWS: list[Row] = [*FORWARD, *BACKWARD]
