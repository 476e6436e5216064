"""Operators of ONNX, models of one node, by `frontends.onnx` beside ONNX Runtime: which are slower, and whether values agree.

    python benchmarks/onnx_ops.py [--elements 250000 4000000] [--only TEXT ...] [--numbers 0 60] [--seconds 0.3] [--all]

Calls are in turn, one thread each; what Abs of nine numbers takes is taken away from both. Operators whose ratio is above 1.1,
or whose results have other types, shapes or values than ONNX Runtime's, are printed, worst first.
"""

from __future__ import annotations

import warnings
from collections.abc import Mapping, Sequence
from functools import partial
from importlib import import_module
from typing import Any

from function_table import Measured, arguments_of, chosen, difference, environment, in_turns, show

# isort: split
import numpy as np
from onnx_op_cases import arguments, case, cases

from fuse_opt.frontends import onnx as client

ort: Any = import_module("onnxruntime")


def session(model: Any) -> Any:
    options = ort.SessionOptions()
    options.intra_op_num_threads = options.inter_op_num_threads = 1
    options.log_severity_level = 4
    return ort.InferenceSession(model.SerializeToString(), options, providers=["CPUExecutionProvider"])


def measure(text: str, given: Mapping[str, Any], seconds: float) -> Measured:
    made = case(text, given)
    model, values = made.model(), made.inputs()
    theirs, ours = session(model), client.load(model, strict=True)
    feed = {each.name: value for each, value in zip(theirs.get_inputs(), values, strict=True)}
    differing = difference(ours(*values), theirs.run(None, feed))
    calls = {"ONNX Runtime": lambda: theirs.run(None, feed), "ours": lambda: ours(*values)}
    return Measured(text, in_turns(calls, seconds), differing)


def main(given: Sequence[str] | None = None) -> None:
    options = arguments_of(__doc__, given)
    print(environment())
    warnings.simplefilter("ignore")
    fixed = measure("Abs(a)", {"a": np.ones((3, 3), np.float32)}, 0.2).times
    for elements in options.elements:
        one = partial(measure, given=arguments(elements), seconds=options.seconds)
        show(elements, chosen(cases(), options), lambda text, one=one: one(text).less(fixed), options.all)


if __name__ == "__main__":
    main()
