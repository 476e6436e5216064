"""Rows of constants."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from graph_op_table import (
    TYPES,
    Case,
    Row,
)


def _constant_cases() -> Iterator[Case]:
    texts = {
        "f16": ("dense<[1.5, -0.0, 6.550400e+04]>", [1.5, -0.0, 65504.0]),
        "f32": ("dense<[0.1, 0x7F800000, -1.0]>", [np.float32(0.1), np.inf, -1.0]),
        "f64": ("dense<[0.1, 1.0e+300, -0.0]>", [0.1, 1e300, -0.0]),
        "i8": ("dense<[-128, 0, 127]>", [-128, 0, 127]),
        "i16": ("dense<[-32768, 1, 32767]>", [-32768, 1, 32767]),
        "i32": ("dense<[-2147483648, 1, 2147483647]>", [-(2**31), 1, 2**31 - 1]),
        "i64": ("dense<[-9223372036854775808, 1, 9223372036854775807]>", [-(2**63), 1, 2**63 - 1]),
        "ui8": ("dense<[0, 200, 255]>", [0, 200, 255]),
        "i1": ("dense<[true, false, true]>", [True, False, True]),
    }
    for name, (text, values) in texts.items():
        expected = np.array(values, TYPES[name])
        yield Case(
            "graph.constant", "", (), expected, signed_zeros=True, literal=f"graph.constant {text} : tensor<3x{name}>"
        )
        last = text[text.rindex(",") + 2 : -2]
        splat = np.full((2, 2), expected[-1])
        yield Case("graph.constant", "", (), splat, literal=f"graph.constant dense<{last}> : tensor<2x2x{name}>")
        scalar = np.array(expected[-1])
        yield Case("graph.constant", "", (), scalar, literal=f"graph.constant dense<{last}> : tensor<{name}>")
    empty = np.empty((0, 3), np.float32)
    yield Case("graph.constant", "", (), empty, literal="graph.constant dense<> : tensor<0x3xf32>")


ROWS: list[Row] = [
    Row("constant", [], _constant_cases),
]
