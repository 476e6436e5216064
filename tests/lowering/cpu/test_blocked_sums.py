"""Long sums over leading axes: no element passes many additions, whatever the extents, and results are those of any order."""

from __future__ import annotations

import numpy as np
import pytest
from ir_testing import apply, parse
from lowered_programs import needs_compiler

from fuse_opt.lowering.emit import build_program
from fuse_opt.runtime.cpu.program import CpuProgram
from fuse_opt.runtime.host.thread_pool import num_threads, set_num_threads


def sums(rows: int, columns: int, splits: int, dtype: str = "f32") -> CpuProgram:
    """The sum and the maximum of each column, in a kernel."""
    full, kept = f"tensor<{rows}x{columns}x{dtype}>", f"tensor<{columns}x{dtype}>"
    text = f"""func.func @main(%x: {full}) -> ({kept}, {kept}) {{
      %s, %m = fused.kernel(%a = %x : {full}) -> ({kept}, {kept})
          attributes {{schedule = {{kind = "column", splits = {splits} : i64}}}} {{
        %0 = graph.sum %a {{axes = array<i64: 0>}} : ({full}) -> {kept}
        %1 = graph.max %a {{axes = array<i64: 0>}} : ({full}) -> {kept}
        fused.yield %0, %1 : {kept}, {kept}
      }}
      func.return %s, %m : {kept}, {kept}
    }}"""
    return CpuProgram(build_program(apply(parse(text), ["convert-fused-to-loops"])))


@needs_compiler
@pytest.mark.parametrize("rows, columns, splits", [(40003, 130, 1), (40000, 300, 2), (1 << 17, 128, 8)])
def test_the_error_grows_with_few_additions(rows: int, columns: int, splits: int) -> None:
    """Equal elements are rounded the same way again and again: of n additions one after the other errors grow with n."""
    x = np.broadcast_to(np.random.default_rng(1).random(columns, np.float32), (rows, columns)).copy()
    additions = 64 + rows / splits / 64 + 8
    found, largest = sums(rows, columns, splits)(x)
    np.testing.assert_array_equal(largest, x[0])
    np.testing.assert_allclose(found, x.sum(0, dtype=np.float64), rtol=2**-24 * additions)


@needs_compiler
@pytest.mark.parametrize("dtype", ["f32", "f16", "i32"])
def test_sums_of_whole_numbers_are_exact(dtype: str) -> None:
    """Whatever is left over of strips and parts; for all numbers of threads."""
    kind = {"f": "float", "i": "int"}[dtype[0]] + dtype[1:]
    before = num_threads()
    try:
        for rows, splits in [(129, 1), (515, 1), (1003, 3), (1024, 2)]:
            x = np.random.default_rng(rows).integers(-3, 4, (rows, 140)).astype(kind)
            program = sums(rows, 140, splits, dtype)
            for threads in (1, 3):
                set_num_threads(threads)
                found, largest = program(x)
                np.testing.assert_array_equal(found, x.sum(0, dtype=np.float64))
                np.testing.assert_array_equal(largest, x.max(0))
    finally:
        set_num_threads(before)
