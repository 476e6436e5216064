"""Runs the test programs of openxla/stablehlo through the importer and counts them.

    python tests/support/stablehlo_testdata.py DIRECTORY [--jobs N] [--target reference|cpu] [--only REGEX] [--verbose]

DIRECTORY is `stablehlo/testdata` of a checkout of openxla/stablehlo: each `.mlir` file has a function with its inputs and one
with what is expected. A file is right, wrong, or refused with a reason: `expect_eq` asks for the same values, `expect_close`
for ones at most 3 units in the last place away, `expect_almost_eq` within 0.001, as upstream's interpreter does, but NaN is
NaN everywhere. What is expected was computed by XLA, rounding as it does: an element that differs is right, too, where it is
no further than the expected one, or than 3 units, from what the program gives in f64. Exit status 1 when one is wrong or ends
in an error that is no refusal. Needs jaxlib, which reads the pretty form.
"""

from __future__ import annotations

import argparse
import re
import sys
import traceback
from collections import Counter
from collections.abc import Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Any, cast

import numpy as np
from graph_op_table import FLOATS, NAMES, Array, converted, unit_and_epsilon, wide
from lowered_programs import as_list
from narrow_floats import decode, is_narrow
from xdsl.dialects.builtin import BytesAttr, DenseIntOrFPElementsAttr, FunctionType, ModuleOp, StringAttr, TensorType
from xdsl.dialects.func import CallOp, FuncOp
from xdsl.ir import Attribute, Operation, SSAValue
from xdsl.rewriter import Rewriter

import fuse_opt
from fuse_opt.dialects.scalar.bits import elements, packed
from fuse_opt.dialects.types.dtypes import F64, dtype_of
from fuse_opt.frontends.stablehlo import StableHLOError, load
from fuse_opt.frontends.stablehlo.operators.op import attributes_of, name_of
from fuse_opt.frontends.stablehlo.text import parsed
from fuse_opt.lowering.reference.interpreter import dense_array
from fuse_opt.tools.source.diagnostics import InputError

CHECKS = ("check.expect_eq", "check.expect_close", "check.expect_almost_eq")
ULPS = 3
"""What `expect_close` allows, by upstream's interpreter."""
ALMOST = 0.001
NEARER = "nearer to the exact value than expected"


class Refused(Exception):
    """The file is not run, with a reason."""


@dataclass(frozen=True)
class Test:
    """A program that returns what it computes, its arguments, and how each result is compared with what."""

    module: ModuleOp
    arguments: list[Array]
    checks: list[tuple[str, Array]]


def read(path: Path, inputs_known: bool) -> Test:
    """The file with checks turned into results; what `@inputs` gives becomes arguments, or stays known in the program."""
    module = parsed(path)
    functions = {op.sym_name.data: op for op in module.ops if isinstance(op, FuncOp)}
    main = functions["main"]
    block = main.body.block
    values = {name: _constants(functions[name]) for name in ("inputs", "expected") if name in functions}
    checks: list[tuple[str, Array]] = []
    results: list[SSAValue] = []
    for op in list(block.ops):
        target = attributes_of(op).get("call_target_name")
        if name_of(op) == "stablehlo.custom_call" and isinstance(target, StringAttr) and target.data in CHECKS:
            actual, expected = op.operands
            checks.append((target.data, values["expected"][_number_of(expected, op)]))
            results.append(actual)
            op.detach()
            op.erase()
    arguments: list[Array] = []
    for op in [op for op in block.ops if isinstance(op, CallOp)]:
        callee = op.callee.root_reference.data
        if callee == "expected":
            op.detach()
            op.erase()
        elif callee == "inputs" and not inputs_known:
            for result, array in zip(list(op.results), values["inputs"], strict=True):
                result.replace_all_uses_with(block.insert_arg(result.type, len(block.args)))
                arguments.append(array)
            op.detach()
            op.erase()
    returned = block.last_op
    assert returned is not None
    returned.operands = results
    main.properties["function_type"] = FunctionType.from_lists(
        [value.type for value in block.args], [value.type for value in results]
    )
    main.properties.pop("res_attrs", None)
    return Test(module, arguments, checks)


def _number_of(value: SSAValue, check: Operation) -> int:
    owner = value.owner
    if not isinstance(owner, CallOp) or owner.callee.root_reference.data != "expected":
        raise Refused(f"'{name_of(check)}' compares with what is no result of @expected")
    return list(owner.results).index(cast(Any, value))


def _constants(function: FuncOp) -> list[Array]:
    """The arrays that a function of constants returns."""
    block = function.body.block
    returned = block.last_op
    assert returned is not None
    found: list[Array] = []
    for value in returned.operands:
        owner = value.owner
        attribute: Any = attributes_of(owner).get("value") if isinstance(owner, Operation) else None
        if not isinstance(attribute, DenseIntOrFPElementsAttr) or dtype_of(_element(value)) is None:
            raise Refused(f"values of an unsupported type: {_element(value)}")
        found.append(dense_array(cast("DenseIntOrFPElementsAttr[Any]", attribute)))
    return found


def _element(value: SSAValue) -> Attribute:
    type_: Any = value.type
    return type_.element_type if isinstance(value.type, TensorType) else value.type


def compute(path: Path, target: str) -> tuple[Test, Sequence[Array]]:
    """What the file's program gives; with inputs as part of it where it needs their values to be read."""
    try:
        test = read(path, inputs_known=False)
        module = load(test.module)
    except StableHLOError:
        test = read(path, inputs_known=True)
        module = load(test.module)
    return test, as_list(fuse_opt.compile(module, target=target)(*test.arguments))


def is_right(kind: str, actual: Array, expected: Array) -> bool:
    """As upstream's interpreter compares them."""
    if actual.shape != expected.shape or actual.dtype != expected.dtype:
        return False
    if kind == "check.expect_eq":
        a, b = decode(actual), decode(expected)
        return bool(np.all((a == b) | ((a != a) & (b != b))))
    a, b = (decode(array).astype(np.float64) for array in (actual, expected))
    same = (a == b) | (np.isnan(a) & np.isnan(b))
    finite = np.isfinite(a) & np.isfinite(b)
    if kind == "check.expect_almost_eq":
        near = np.abs(np.where(finite, a, 0) - np.where(finite, b, 1)) <= ALMOST
    else:
        near = _near(actual, expected)
    return bool(np.all(same | (finite & near)))


def _near(actual: Array, expected: Array) -> Array:
    return np.asarray(np.abs(_places(actual) - _places(expected)) <= ULPS)


def _places(array: Array) -> Array:
    """Of each float, how many lie between it and zero, of negative ones negative."""
    bits = np.ascontiguousarray(array).view(f"u{array.dtype.itemsize}") if not is_narrow(array.dtype) else _raw(array)
    top = 1 << (8 * array.dtype.itemsize - 1)
    magnitude: Array = (bits & bits.dtype.type(top - 1)).astype(np.float64 if top < 2**62 else np.longdouble)
    return np.asarray(np.where(cast(Array, bits & bits.dtype.type(top)), -magnitude, magnitude))


def _raw(array: Array) -> Array:
    return np.ascontiguousarray(array).view(np.uint16 if array.dtype.itemsize == 2 else np.uint8)


def in_f64(test: Test) -> list[Array]:
    """The program's results with all floats, of inputs and on the way, as f64."""
    module = test.module.clone()
    for op in module.walk():
        for value in (
            *op.results,
            *(argument for region in op.regions for block in region.blocks for argument in block.args),
        ):
            Rewriter.replace_value_with_new_type(value, _widened(value.type))
        table = op.properties if "value" in op.properties else op.attributes
        if isinstance(found := table.get("value"), DenseIntOrFPElementsAttr):
            table["value"] = _wide_constant(cast("DenseIntOrFPElementsAttr[Any]", found))
        if isinstance(op, FuncOp):
            op.properties["function_type"] = FunctionType.from_lists(
                [_widened(t) for t in op.function_type.inputs.data],
                [_widened(t) for t in op.function_type.outputs.data],
            )
    arguments = [wide(a) if dtype_named(a) in FLOATS else a for a in test.arguments]
    with np.errstate(all="ignore"):
        return as_list(fuse_opt.compile(load(module), target="reference")(*arguments))


def dtype_named(array: Array) -> str:
    return NAMES[array.dtype]


def _widened(type_: Attribute) -> Attribute:
    if not isinstance(type_, TensorType):
        return type_
    tensor = cast("TensorType[Any]", type_)
    element = dtype_of(tensor.element_type)
    return TensorType(F64.attribute, tensor.get_shape()) if element is not None and element.is_float else tensor


def _wide_constant(value: DenseIntOrFPElementsAttr[Any]) -> DenseIntOrFPElementsAttr[Any]:
    element = dtype_of(value.get_element_type())
    if element is None or not element.is_float:
        return value
    return DenseIntOrFPElementsAttr(cast(Any, _widened(value.type)), BytesAttr(packed(elements(value), F64)))


def is_nearer(actual: Array, expected: Array, exact: Array) -> bool:
    """Whether each element is at most as far from the exact value as the expected one, or as `expect_close` allows."""
    a, b = decode(actual).astype(np.float64), decode(expected).astype(np.float64)
    with np.errstate(all="ignore"):
        far = np.abs(a - exact)
        near = (far <= np.abs(b - exact)) | (far <= ULPS * unit_and_epsilon(converted(exact, dtype_named(actual)))[0])
    return bool(np.all((a == b) | (np.isnan(a) & np.isnan(b)) | near | _near(actual, expected)))


def outcome(path: Path, target: str) -> tuple[str, str]:
    """`right`, `wrong`, `refused` or `error`, and why."""
    try:
        with np.errstate(all="ignore"):
            test, results = compute(path, target)
            wrong = [
                number
                for number, ((kind, expected), actual) in enumerate(zip(test.checks, results, strict=True))
                if not is_right(kind, actual, expected)
            ]
            if wrong and all(dtype_named(results[number]) in FLOATS for number in wrong):
                exact = in_f64(test)
                if all(is_nearer(results[number], test.checks[number][1], exact[number]) for number in wrong):
                    return "right", NEARER
    except (StableHLOError, InputError, Refused) as error:
        return "refused", " ".join(str(error).split())
    except Exception:  # of whatever kind: the table says so
        return "error", traceback.format_exc()
    return ("wrong", f"results {wrong}") if wrong else ("right", "")


def reason(text: str) -> str:
    """A refusal without what differs from file to file."""
    text = re.sub(r"tensor<[^>]*?(complex<\w+>|\w+)>", r"tensor<\1>", text)
    return re.sub(r"\b\d+\b", "N", text)[:150]


def files(directory: Path, only: str) -> Iterator[Path]:
    wanted = re.compile(only)
    yield from (path for path in sorted(directory.glob("*.mlir")) if wanted.search(path.name))


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("directory", type=Path)
    parser.add_argument("--jobs", type=int, default=1)
    parser.add_argument("--target", choices=("reference", "cpu"), default="reference")
    parser.add_argument("--only", default="", metavar="REGEX")
    parser.add_argument("--verbose", action="store_true", help="each file that is not right")
    given = parser.parse_args()
    paths = list(files(given.directory, given.only))
    if not paths:
        parser.error(f"no .mlir file in {given.directory}")
    if find_spec("jaxlib") is None:
        parser.error("the files are in the pretty form, which jaxlib reads: pip install 'fuse-opt[jax]'")
    with ProcessPoolExecutor(given.jobs) as pool:
        found = list(pool.map(outcome, paths, [given.target] * len(paths), chunksize=8))
    for path, (kind, why) in zip(paths, found, strict=True):
        if kind in ("wrong", "error") or (given.verbose and kind == "refused"):
            print(f"{kind:8} {path.name}: {why if kind != 'error' else why.strip()}")
    counts = Counter(kind for kind, _ in found)
    for why, count in Counter(reason(why) for kind, why in found if kind == "refused").most_common():
        print(f"refused {count:5} {why}")
    nearer = sum(why == NEARER for _, why in found)
    share = 100 * counts["right"] / len(paths)
    print(
        f"{len(paths)} files: {counts['right']} right ({share:.1f} %, {nearer} of them {NEARER}), {counts['wrong']} wrong, ",
        end="",
    )
    print(f"{counts['refused']} refused, {counts['error']} errors (target {given.target})")
    return 1 if counts["wrong"] or counts["error"] else 0


if __name__ == "__main__":
    sys.exit(main())
