"""Ops that kernels of the backend `gpu` run: the cases of their rows, long lines, updates that meet, and indices out of range.

python tests/support/cuda_gpu_op_scenarios.py NAME...   # the functions of these names, each printing a line; all without a name
python tests/support/cuda_gpu_op_scenarios.py every_case   # all 3120 cases, half a minute
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence

import numpy as np
from cuda_library_scenarios import implementations
from cuda_running import Array, changes, compiled, listed, on_device
from cuda_sparse_scenarios import csr_product_text
from graph_op_table import Case, arguments_of, check_all, program_text, rows
from ir_testing import graph_ops, parse

from fuse_opt.dialects.implementation.offers import all_offers
from fuse_opt.tools.compiler.api import evaluate

OPS = sorted(offer.op for offer in all_offers() if offer.backend == "gpu" and offer.native)
_BATCH = 24
"""Cases of a program."""


def cases_of_rows() -> str:
    """Cases of the ops' rows, launched and replayed: on the device, and right. One in seven; `every_case` has all of them."""
    return _cases_of_rows(7)


def _cases_of_rows(step: int) -> str:
    count = 0
    for row in rows():
        cases = [case for case in row.cases() if case.op in OPS and _has_elements(case)][::step]
        for first in range(0, len(cases), _BATCH):
            some = cases[first : first + _BATCH]
            count += _check(some)
    assert count > 300, count
    return f"{count} cases of {len(OPS)} ops"


def _has_elements(case: Case) -> bool:
    """Whether there is something to do: what is empty is left to the host."""
    return all(array.size for array in (*case.inputs, *case.wanted))


def _check(cases: Sequence[Case]) -> int:
    text = program_text(cases)
    program = compiled(text)
    assert {name.partition(".")[0] for name in implementations(program)} == {"gpu"}, text
    assert program.stats.host_ops == 0, text
    bounds = [op.error_bound() for op in graph_ops(parse(text))]
    for _ in range(3):
        check_all(cases, listed(program(*arguments_of(cases))), bounds)
    return len(cases)


def _same(text: str, *inputs: Array, fraction: float = 0.0) -> None:
    """That a program on the device gives what the reference gives, also when it is replayed."""
    program, expected = compiled(text), listed(evaluate(text, *(x.copy() for x in inputs)))
    assert program.stats.host_ops == 0, text
    for _ in range(3):
        for a, b in zip(listed(program(*(x.copy() for x in inputs))), expected, strict=True):
            if fraction:
                np.testing.assert_allclose(a, b, fraction, fraction, err_msg=text)
            else:
                np.testing.assert_array_equal(a, b, err_msg=text)


def long_lines() -> str:
    """Lines that are longer than what a block sorts, with elements that are equal, NaN and zeros of both signs."""
    random = np.random.default_rng(3)
    x = random.integers(-40, 40, (3, 5000)).astype(np.float32) / 8
    x[:, ::97], x[:, 5::91] = np.nan, -0.0
    t = "tensor<3x5000xf32>"
    for descending in ("false", "true"):
        body = f"""func.func @main(%x: {t}) -> ({t}, tensor<3x5000xi64>) {{
          %s = graph.sort %x {{descending = {descending}}} : ({t}) -> {t}
          %a = graph.argsort %x {{descending = {descending}}} : ({t}) -> tensor<3x5000xi64>
          func.return %s, %a : {t}, tensor<3x5000xi64>
        }}"""
        _same(body, x)
    _same(
        f"""func.func @main(%x: {t}) -> (tensor<3x7xf32>, tensor<3x7xi64>) {{
          %v, %i = graph.top_k %x {{k = 7 : i64}} : ({t}) -> (tensor<3x7xf32>, tensor<3x7xi64>)
          func.return %v, %i : tensor<3x7xf32>, tensor<3x7xi64>
        }}""",
        x,
    )
    y = random.standard_normal((3, 5000)).astype(np.float32)
    _same(
        f"""func.func @main(%x: {t}) -> {t} {{
          %s = graph.cumulative_sum %x {{axis = 1 : i64}} : ({t}) -> {t}
          func.return %s : {t}
        }}""",
        y,
        fraction=1e-5,
    )
    return "5 programs"


def meeting_updates() -> str:
    """Thousands of updates of a few rows: sums in the order of the indices, bit for bit, the last one where nothing is joined."""
    random = np.random.default_rng(4)
    grad = random.standard_normal((3000, 20)).astype(np.float32)
    ids = random.integers(0, 11, 3000)
    _same(
        """func.func @main(%g: tensor<3000x20xf32>, %i: tensor<3000xi64>) -> tensor<11x20xf32> {
          %r = graph.embedding_backward %g, %i {rows = 11 : i64, padding_index = 3 : i64}
            : (tensor<3000x20xf32>, tensor<3000xi64>) -> tensor<11x20xf32>
          func.return %r : tensor<11x20xf32>
        }""",
        grad,
        ids,
    )
    x, at = random.standard_normal((40, 6)).astype(np.float32), random.integers(-40, 40, (500, 6)).astype(np.int32)
    updates = random.standard_normal((500, 6)).astype(np.float32)
    for op in ("graph.scatter", "graph.scatter_add"):
        _same(
            f"""func.func @main(%x: tensor<40x6xf32>, %i: tensor<500x6xi32>, %u: tensor<500x6xf32>) -> tensor<40x6xf32> {{
              %r = {op} %x, %i, %u : (tensor<40x6xf32>, tensor<500x6xi32>, tensor<500x6xf32>) -> tensor<40x6xf32>
              func.return %r : tensor<40x6xf32>
            }}""",
            x,
            at,
            updates,
        )
    return "3 programs"


def _one(op: str, attributes: str, result: str, *inputs: Array, fraction: float = 0.0) -> None:
    """The same of a program of one op."""
    names = {
        np.dtype(np.float32): "f32",
        np.dtype(np.float16): "f16",
        np.dtype(np.int64): "i64",
        np.dtype(np.int32): "i32",
        np.dtype(np.int16): "i16",
    }
    types = [f"tensor<{'x'.join(map(str, x.shape))}x{names[x.dtype]}>" for x in inputs]
    given = ", ".join(f"%a{k}: {each}" for k, each in enumerate(types))
    _same(
        f"""func.func @main({given}) -> tensor<{result}> {{
          %r = {op} {", ".join(f"%a{k}" for k in range(len(types)))} {{{attributes}}} : ({", ".join(types)}) -> tensor<{result}>
          func.return %r : tensor<{result}>
        }}""",
        *inputs,
        fraction=fraction,
    )


def parts_of_lines() -> str:
    """Totals of lines that are taken in chunks, along both kinds of axes; of parts that are not multiples of anything."""
    random = np.random.default_rng(5)
    line = random.standard_normal(9311).astype(np.float32)
    for attributes in ("axis = 0 : i64", "axis = 0 : i64, reverse = true", "axis = 0 : i64, exclusive = true"):
        _one("graph.cumulative_sum", attributes, "9311xf32", line, fraction=1e-5)
        columns = random.standard_normal((2, 211, 37)).astype(np.float32)
        _one("graph.cumulative_sum", attributes.replace("0", "1"), "2x211x37xf32", columns, fraction=1e-5)
    for shape in ((270_003,), (3, 12_300)):
        some = (random.integers(-9, 9, shape) / 4).astype(np.float32)
        _one("graph.cumulative_sum", f"axis = {len(shape) - 1} : i64", f"{'x'.join(map(str, shape))}xf32", some)
    whole = random.integers(-9, 9, (2, 7001)).astype(np.int32)
    _one("graph.cumulative_sum", "axis = 1 : i64", "2x7001xi32", whole)
    return "9 programs"


def lines_apart() -> str:
    """Updates along lines of their own, reads by several at a time, and short lines in order."""
    random = np.random.default_rng(6)
    x, updates = (random.standard_normal((67, n)).astype(np.float32) for n in (19, 201))
    at = random.integers(-19, 19, (67, 201))
    for op in ("graph.scatter", "graph.scatter_add"):
        _one(op, "axis = 1 : i64", "67x19xf32", x, at, updates)
    grad, ids = random.standard_normal((300, 133)).astype(np.float32), random.integers(0, 11, 300)
    _one("graph.embedding_backward", "rows = 11 : i64", "11x133xf32", grad, ids)
    for width, kind, name in ((516, np.float32, "f32"), (1028, np.float16, "f16")):
        ids = random.integers(-2, 9, 230) * random.integers(0, 2, 230)  # most of one row, and rows without any
        whole = random.integers(-9, 9, (230, width)).astype(kind)
        given = "rows = 13 : i64, padding_index = 5 : i64"
        _one("graph.embedding_backward", given, f"13x{width}x{name}", whole, ids)
    for width, kind in ((67, np.float32), (517, np.float32), (1030, np.float16), (129, np.int64)):
        table, name = random.integers(-9, 9, (11, width)).astype(kind), {8: "i64", 4: "f32", 2: "f16"}[kind().itemsize]
        _one("graph.take", "axis = 0 : i64", f"3x5x{width}x{name}", table, random.integers(-11, 11, (3, 5)))
        deep = random.integers(-9, 9, (3, 11, width)).astype(kind)
        few = random.integers(-11, 11, 6).astype(np.int32)
        _one("graph.take", "axis = 1 : i64", f"3x6x{width}x{name}", deep, few)
    for width, kind in ((8, np.int64), (9, np.int32)):
        rows, columns = random.integers(-5, 5, (7, 1)).astype(kind), random.integers(-6, 6, width).astype(kind)
        table = random.standard_normal((3, 5, 6)).astype(np.float32)
        _one("graph.index", "axes = array<i64: 1, 2>", f"3x7x{width}xf32", table, rows, columns)
    for kind, name in ((np.float32, "f32"), (np.int16, "i16")):
        for extent in (5, 200, 901, 1500):
            lines = random.integers(-40, 40, (3, extent)).astype(kind)
            _one("graph.sort", "axis = 1 : i64", f"3x{extent}x{name}", lines)
            _one("graph.argsort", "axis = 1 : i64, descending = true", f"3x{extent}xi64", lines)
    return "31 programs"


def long_rows() -> str:
    """Products of csr matrices some of whose rows are divided: that begin and end where parts do, and inside of one."""
    random = np.random.default_rng(7)
    programs = 0
    for counts in ([3, 700, 0, 129, 2, 128, 1, 300], [128, 256, 384], [1000], [0, 5, 0, 600, 0]):
        for width, kind, dtype in (
            (8, "f4", "f32"),
            (5, "f4", "f32"),
            (3, "f8", "f64"),
            (12, "f2", "f16"),
            (2, "i4", "i32"),
        ):
            entries = sum(counts)
            indptr = np.cumsum([0, *counts], dtype=np.int32)
            indices = random.integers(0, 50, entries + 40).astype(np.int32)
            values, x = (random.integers(-4, 5, shape).astype(kind) for shape in (entries + 40, (50, width)))
            text = csr_product_text(len(counts), 50, entries + 40, width, dtype)
            _same(text, indptr, indices, values, x)
            programs += 1
    return f"{programs} programs"


def too_little_room() -> str:
    """An error with both numbers of a run whose result has more entries than there is room for; the program goes on after it."""
    x, csr = "tensor<5x6xf32>", "tensor<5x6xf32, #graph.csr<capacity = 4>>"
    text = (
        f"func.func @main(%x: {x}) -> {csr} {{\n%0 = graph.to_storage %x : ({x}) -> {csr}\nfunc.return %0 : {csr}\n}}"
    )
    program = compiled(text)
    few, many = np.eye(5, 6, dtype=np.float32), np.ones((5, 6), np.float32)
    few[0] = 0
    for _ in range(3):
        try:
            program(many)
        except ValueError as error:
            said = "'graph.csr_from_dense': 30 entries, but a capacity of 4; give the type a larger one"
            assert str(error) == said, error
        else:
            raise AssertionError("no ValueError")
        for found, wanted in zip(program(few), ([0, 0, 1, 2, 3, 4], [1, 2, 3, 4], [1, 1, 1, 1]), strict=True):
            np.testing.assert_array_equal(found, wanted)
    return "errors of three runs"


TAKE = """func.func @main(%w: tensor<50x6xf32>, %i: tensor<3x5xi64>) -> tensor<3x5x6xf32> {
  %e = graph.take %w, %i : (tensor<50x6xf32>, tensor<3x5xi64>) -> tensor<3x5x6xf32>
  func.return %e : tensor<3x5x6xf32>
}"""


def indices_out_of_range() -> str:
    """An error of the run that the host waits for, else of the next one; the program goes on after it."""
    program = compiled(TAKE)
    w, i = np.arange(300, dtype=np.float32).reshape(50, 6), np.arange(15).reshape(3, 5)
    wrong = i.copy()
    wrong[1, 2], wrong[2, 0] = 50, -51
    said = "'graph.take': index 50 at [1, 2] of the indices is out of range for axis 0 of extent 50; expected -50 <= index < 50"

    def refused(call: Callable[[], object]) -> None:
        try:
            call()
        except IndexError as error:
            assert str(error) == said, error
        else:
            raise AssertionError("no IndexError")

    for _ in range(3):
        refused(lambda: program(w, wrong))
        np.testing.assert_array_equal(program(w, i), w[i])
    with on_device() as (device, gpuarray):
        dw, di, dwrong = (gpuarray.to_gpu(array) for array in (w, i, wrong))
        before = program.stats
        program(dw, dwrong)
        assert not changes(before, program.stats).get("synchronizations"), "the host does not wait"
        device.driver.Context.synchronize()
        refused(lambda: program(dw, di))
        np.testing.assert_array_equal(program(dw, di).get(), w[i])
        unaligned = gpuarray.empty(301, np.float32)[1:].reshape(50, 6)
        unaligned.set(w)
        np.testing.assert_array_equal(program(unaligned, di).get(), w[i])
    return "errors of this run and of the one before"


SCENARIOS = {
    function.__name__: function
    for function in (
        cases_of_rows,
        long_lines,
        parts_of_lines,
        lines_apart,
        meeting_updates,
        long_rows,
        too_little_room,
        indices_out_of_range,
    )
}

if __name__ == "__main__":
    for name in sys.argv[1:] or SCENARIOS:
        print(f"{name}: {_cases_of_rows(1) if name == 'every_case' else SCENARIOS[name]()}", flush=True)
