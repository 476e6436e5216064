"""How much attention for any sizes has on its stack."""

import re
from threading import Thread, stack_size

import numpy as np
from lowered_programs import needs_compiler

import fuse_opt

T = "tensor<?x2x?x3xf32, #graph.shape<b, 2, n, 3>>"
NARROW = f"""func.func @main(%q: {T}, %k: {T}, %v: {T}) -> {T} {{
  %0 = graph.scaled_dot_product_attention %q, %k, %v : ({T}, {T}, {T}) -> {T}
  func.return %0 : {T}
}}"""


@needs_compiler
def test_panels_of_few_columns_fit_on_a_stack() -> None:
    """Panels of values are wider than three columns: they had 5.6 MB, beside 2.4 MB of scores."""
    program = fuse_opt.compile(NARROW, "cpu")
    thread = Thread(target=program, args=[np.ones((1, 2, 4, 3), np.float32)] * 3)
    before = stack_size(64 << 20)
    thread.start()
    stack_size(before)
    thread.join()
    found = re.findall(r"float \w+\[(\d+)\]", program.source)
    assert found and 4 * sum(map(int, found)) < 4 << 20
