"""Rows of constants."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from graph_op_table import (
    Case,
    Row,
    converted,
)


def _constant_cases() -> Iterator[Case]:
    texts = {
        "f16": ("dense<[1.5, -0.0, 6.550400e+04]>", [1.5, -0.0, 65504.0]),
        "bf16": ("dense<[1.5, 0x7F80, -0.0, 0.1, 0xFFC0, -3.0]>", [1.5, np.inf, -0.0, 0.1, np.nan, -3.0]),
        "f8E4M3FN": ("dense<[1.5, 448.0, -0.0, 0x7F, 0x01]>", [1.5, 448.0, -0.0, np.nan, 2.0**-9]),
        "f8E5M2": ("dense<[1.5, 0xFC, -0.0, 0x7E, 1.0e+09, 57344.0]>", [1.5, -np.inf, -0.0, np.nan, np.inf, 57344.0]),
        "f32": ("dense<[0.1, 0x7F800000, -1.0]>", [np.float32(0.1), np.inf, -1.0]),
        "f64": ("dense<[0.1, 1.0e+300, -0.0]>", [0.1, 1e300, -0.0]),
        "i8": ("dense<[-128, 0, 127]>", [-128, 0, 127]),
        "i16": ("dense<[-32768, 1, 32767]>", [-32768, 1, 32767]),
        "i32": ("dense<[-2147483648, 1, 2147483647]>", [-(2**31), 1, 2**31 - 1]),
        "i64": ("dense<[-9223372036854775808, 1, 9223372036854775807]>", [-(2**63), 1, 2**63 - 1]),
        "ui8": ("dense<[0, 200, 255]>", [0, 200, 255]),
        "ui16": ("dense<[0, 40000, 65535]>", [0, 40000, 65535]),
        "ui32": ("dense<[0, 3000000000, 4294967295]>", [0, 3000000000, 2**32 - 1]),
        "ui64": ("dense<[0, 10000000000000000000, 18446744073709551615]>", [0, 10**19, 2**64 - 1]),
        "i1": ("dense<[true, false, true]>", [True, False, True]),
    }
    for name, (text, values) in texts.items():
        expected = converted(values, name)
        yield Case(
            "graph.constant",
            "",
            (),
            expected,
            signed_zeros=True,
            literal=f"graph.constant {text} : tensor<{len(values)}x{name}>",
        )
        last = text[text.rindex(",") + 2 : -2]
        splat = np.repeat(expected[-1:], 4).reshape(2, 2)
        yield Case("graph.constant", "", (), splat, literal=f"graph.constant dense<{last}> : tensor<2x2x{name}>")
        scalar = expected[-1:].reshape(())
        yield Case("graph.constant", "", (), scalar, literal=f"graph.constant dense<{last}> : tensor<{name}>")
    empty = np.empty((0, 3), np.float32)
    yield Case("graph.constant", "", (), empty, literal="graph.constant dense<> : tensor<0x3xf32>")


ROWS: list[Row] = [
    Row("constant", [], _constant_cases),
]
