"""Special functions beside exp: `FUSE_OPT_NUM_THREADS=1 python benchmarks/special_functions.py [f64] [--elements 65536]`.

Each is a program of one op on so many elements, called in turns with the others; microseconds are of a lower quartile, ratios
medians of those of slots. `class` is what the cost of the function's record is over that of exp, `per class` the ratio over it;
lines with more than 1.3 say `behind`.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

import numpy as np
from rotation import measure

import fuse_opt
from fuse_opt.dialects.scalar.expr import PRIMITIVES

Array = np.ndarray[Any, Any]
NAMES = (
    *(
        "exp",
        "exp2",
        "expm1",
        "log",
        "log1p",
        "log2",
        "log10",
        "sqrt",
        "rsqrt",
        "cbrt",
        "sin",
        "cos",
        "tan",
        "asin",
        "acos",
    ),
    *("atan", "sinh", "cosh", "tanh", "asinh", "acosh", "atanh", "erf", "erfc", "lgamma", "pow", "atan2", "hypot"),
)
DOMAINS: Mapping[str, tuple[float, float]] = {
    **dict.fromkeys(("log", "log2", "log10", "sqrt", "rsqrt", "pow"), (0.1, 4.0)),
    **dict.fromkeys(("asin", "acos", "atanh"), (-0.9, 0.9)),
    "acosh": (1.1, 4.0),
    "log1p": (-0.5, 4.0),
}
SLOT_SECONDS = 2e-3
BOUND = 1.3


def call(name: str, kind: str, elements: int) -> Callable[[], Any]:
    """A call of the function on random elements, into memory of its own."""
    rng, type_ = np.random.default_rng(0), f"tensor<{elements}x{kind}>"
    operands = [f"%a{number}" for number in range(PRIMITIVES[name].arity)]
    types = ", ".join([type_] * len(operands))
    program = fuse_opt.compile(
        f"""func.func @main({", ".join(f"{operand}: {type_}" for operand in operands)}) -> {type_} {{
  %r = graph.{name} {", ".join(operands)} : ({types}) -> {type_}
  func.return %r : {type_}
}}"""
    )
    dtype = np.dtype(kind.replace("f", "float"))
    given = [rng.uniform(*DOMAINS.get(name, (-3.0, 3.0)), elements).astype(dtype) for _ in operands]
    return partial(program, *given, out=np.empty(elements, dtype))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("kind", nargs="?", default="f32", choices=["f32", "f64"])
    parser.add_argument("--elements", type=int, default=65536)
    options = parser.parse_args()
    times = measure([call(name, options.kind, options.elements) for name in NAMES], SLOT_SECONDS)
    for number, name in enumerate(NAMES):
        ratio = float(np.median(times[:, number] / times[:, NAMES.index("exp")]))
        of_class = PRIMITIVES[name].cost / PRIMITIVES["exp"].cost
        line = f"{name:6}  us {np.quantile(times[:, number], 0.25) * 1e6:8.1f}  over exp {ratio:6.2f}  class {of_class:.2f}"
        print(f"{line}  per class {ratio / of_class:6.2f}{'  behind' if ratio / of_class > BOUND else ''}")


if __name__ == "__main__":
    main()
