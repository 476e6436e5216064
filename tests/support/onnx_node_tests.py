"""Runs ONNX's own node tests through the importer and counts them.

    python tests/support/onnx_node_tests.py [--target cpu|reference] [--only REGEX] [--verbose] [--light]

A test belongs to the supported ones when all operators of its model are supported (docs/onnx.md). Each of those passes, fails,
or is declined with a reason: an element type that tensors do not have, another random generator, a form of an operator that
is not supported. Exit status 1 when one fails.
"""

from __future__ import annotations

import argparse
import math
import re
import sys
import time
import warnings
from collections import Counter
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np

from fuse_opt.frontends.onnx import UnsupportedError, load, supported_operators

OTHER_NUMBERS = re.compile(r"bernoulli|training_dropout(?!.*zero_ratio)")
"""Tests whose expected results are the draws of NumPy's generator."""

OTHER_ROUNDING = {
    "test_attention_4d_causal_fp16_expanded": "rounded to f16 once in a softmax, where the expected value is after each step",
    **dict.fromkeys(
        ("test_dft_inverse", "test_dft_inverse_opset19"), "zeros of an inverse, where the expected values are 2e-7"
    ),
}
"""Tests whose expected results are further from the exact ones than ours."""


def operators(graph: Any) -> set[str]:
    """Those of a graph and of the graphs in its nodes' attributes."""
    found: set[str] = set()
    graphs = [graph]
    while graphs:
        for node in graphs.pop().node:
            found.add(node.op_type if node.domain in ("", "ai.onnx") else f"{node.domain}.{node.op_type}")
            graphs += [attribute.g for attribute in node.attribute if attribute.HasField("g")]
    return found


def run_case(case: Any, target: str, runner: Any) -> None:
    """Raises AssertionError for a wrong result, UnsupportedError for what is declined."""
    model = load(case.model, strict=True)
    for inputs, expected in case.data_sets:
        arrays = [runner._normalize_tensor(item) for item in inputs]
        wanted = [runner._normalize_tensor(item) for item in expected]
        got = model(*arrays, target=target)
        runner.Runner.assert_similar_outputs(wanted, got, rtol=case.rtol, atol=case.atol)


def classify(case: Any, target: str, supported: set[str], runner: Any) -> tuple[str, str]:
    """What became of a test, and why."""
    outside = operators(case.model.graph) - supported
    if OTHER_NUMBERS.search(case.name):
        return "declined", "random numbers of another generator"
    if case.name in OTHER_ROUNDING:
        return "declined", OTHER_ROUNDING[case.name]
    try:
        run_case(case, target, runner)
    except UnsupportedError as error:
        reason = str(error)
        return ("outside" if outside else "declined"), reason
    except Exception as error:  # counted, never raised: the command goes on to the next test
        kind = "outside" if outside else "failed"
        return kind, f"{type(error).__name__}: {' '.join(str(error).split())[:300]}"
    return "passed", ""


def light_models(target: str) -> int:
    """
    The models that come with onnx, on the stored results of their constant weights and, where onnxruntime is installed,
    against it with random weights: with constant ones all results are equal, and a wrong order of elements would pass.
    """
    onnx: Any = import_module("onnx")
    failed = 0
    for path in sorted((Path(onnx.__file__).parent / "backend/test/data/light").glob("*.onnx")):
        start = time.perf_counter()
        model = load(path, strict=True)
        shape = tuple(int(extent) for extent in model.inputs[0].shape or ())
        ramp = (np.arange(math.prod(shape)).reshape(shape) / math.prod(shape)).astype(np.float32)
        (stored,) = (onnx.load_tensor(str(file)) for file in path.parent.glob(f"{path.stem}_output_0.pb"))
        differences = [difference(model(ramp, target=target)[0], onnx.numpy_helper.to_array(stored))]
        if find_spec("onnxruntime") is not None:
            proto = random_weights(onnx, onnx.load(str(path)))
            runtime: Any = import_module("onnxruntime")
            runtime.set_default_logger_severity(3)  # else a line for each initialiser that nothing uses
            session = runtime.InferenceSession(proto.SerializeToString())
            (wanted,) = session.run(None, {model.inputs[0].name: ramp})
            differences.append(difference(load(proto, strict=True)(ramp, target=target)[0], wanted))
        passed = max(differences) <= 1e-4
        failed += not passed
        words = ", ".join(f"{number:.1e}" for number in differences)
        print(
            f"{'passed' if passed else 'FAILED'} {path.stem}: difference {words} ({time.perf_counter() - start:.1f} s)"
        )
    return failed


def difference(got: Any, wanted: Any) -> float:
    """The largest difference relative to the largest value; infinite for another shape."""
    return float(np.abs(got - wanted).max() / np.abs(wanted).max()) if got.shape == wanted.shape else math.inf


def random_weights(onnx: Any, proto: Any) -> Any:
    """The model with random initialisers in place of the nodes that make constant ones."""
    rng, kept = np.random.default_rng(0), list[Any]()
    shapes = {tensor.name: onnx.numpy_helper.to_array(tensor) for tensor in proto.graph.initializer}
    for node in proto.graph.node:
        if node.op_type != "ConstantOfShape":
            kept.append(node)
            continue
        extents = [int(n) for n in shapes[node.input[0]]]
        fan_in = math.prod(extents[1:])
        values = rng.uniform(0.5, 1, extents) if len(extents) == 1 else rng.normal(0, (2 / fan_in) ** 0.5, extents)
        proto.graph.initializer.append(onnx.numpy_helper.from_array(values.astype(np.float32), node.output[0]))
    if kept[-1].op_type == "Softmax":  # it would make 0 and 1 of what differs
        proto.graph.output[0].name = kept.pop().input[0]
    del proto.graph.node[:]
    proto.graph.node.extend(kept)
    return proto


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--target", choices=("cpu", "reference"), default="cpu")
    parser.add_argument("--only", metavar="REGEX", default="", help="tests whose name matches")
    parser.add_argument("--light", action="store_true", help="run the models that come with onnx instead")
    parser.add_argument("--verbose", action="store_true", help="print what is declined, too")
    given = parser.parse_args()
    warnings.simplefilter("ignore")
    if given.light:
        return 1 if light_models(given.target) else 0
    runner = import_module("onnx.backend.test.runner")
    cases = import_module("onnx.backend.test.case.node").collect_testcases(None)
    supported, start = set(supported_operators()), time.perf_counter()
    counts: Counter[str] = Counter()
    reasons: Counter[str] = Counter()
    for case in cases:
        if not re.search(given.only, case.name):
            continue
        outcome, reason = classify(case, given.target, supported, runner)
        counts[outcome] += 1
        if outcome == "declined":
            reasons[re.sub(r"operator \w+(, node '[^']*')?: |input '[^']*': ", "", reason)[:110]] += 1
        if outcome == "failed" or (given.verbose and outcome in ("declined", "outside")):
            print(f"{outcome} {case.name}: {reason}")
    for reason, count in reasons.most_common():
        print(f"declined {count:4} {reason}")
    ran = counts["passed"] + counts["failed"]
    print(
        f"{len(supported)} operators supported; of {sum(counts.values())} node tests {ran} run: {counts['passed']} passed, "
        f"{counts['failed']} failed; {counts['declined']} declined, {counts['outside']} of other operators "
        f"({time.perf_counter() - start:.0f} s on target {given.target})"
    )
    return 1 if counts["failed"] else 0


if __name__ == "__main__":
    sys.exit(main())
