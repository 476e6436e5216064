"""Value tables: long chains of one narrow number are looked up where launches have many elements, with the same bits."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any

import numpy as np
import pytest
from draws import all_pairs
from ir_testing import apply, parse, text_of
from lowered_programs import needs_compiler
from xdsl.dialects.builtin import ModuleOp

import fuse_opt
from fuse_opt.lowering.emit import build_program
from fuse_opt.lowering.loops.value_tables import ENTRIES, FEWEST
from fuse_opt.lowering.program.float_formats import NARROW
from fuse_opt.runtime.cpu.program import CpuProgram
from fuse_opt.runtime.host.thread_pool import num_threads, set_num_threads

PASSES = ["decompose", "fuse-elementwise", "wrap-kernels", "schedule-kernels", "infer-inplace"]
MANY = 3 * ENTRIES + 1


def chain(size: int | str, kind: str, attributes: str = "", other: str = "%x") -> str:
    """tanh and sigmoid twice, and a product; of one operand, or of two."""
    t = f"tensor<{size}x{kind}>"
    more = "" if other == "%x" else f", {other}: {t}"
    return f"""func.func @main(%x: {t}{attributes}{more}) -> {t} {{
  %a = graph.tanh %x : ({t}) -> {t}
  %b = graph.sigmoid %a : ({t}) -> {t}
  %c = graph.tanh %b : ({t}) -> {t}
  %d = graph.sigmoid %c : ({t}) -> {t}
  %e = graph.multiply %d, {other} : ({t}, {t}) -> {t}
  func.return %e : {t}
}}"""


def scheduled(text: str, entries: str = "") -> ModuleOp:
    return parse(text_of(apply(parse(text), PASSES)).replace("schedule = {", f"schedule = {{{entries}"))


def lowered(text: str, entries: str = "") -> str:
    return text_of(apply(scheduled(text, entries), ["convert-fused-to-loops"]))


def word(table: str) -> str:
    return f'table = "{table}", '


def has_table(text: str, entries: str = "") -> bool:
    return "fo_look_up" in lowered(text, entries)


def run(text: str, x: Any, entries: str) -> Any:
    return bits_of(CpuProgram(build_program(scheduled(text, entries))), x)


def bits_of(program: Callable[..., Any], x: Any) -> Any:
    return np.asarray(program(x)).view(np.uint16).copy()


@pytest.mark.sampled(5)
@needs_compiler
@pytest.mark.parametrize(
    ("kind", "attributes", "entries"),
    all_pairs(["bf16", "f16"], ["", " {graph.donated}"], ["", 'precision = "kernel", ']),
)
def test_the_bits_are_those_of_the_loop(kind: str, attributes: str, entries: str) -> None:
    """Of all numbers that there are, and of more elements than a task's vectors hold."""
    text = chain(MANY, kind, attributes)
    bits = np.random.default_rng(1).permutation(np.arange(MANY, dtype=np.uint32)).astype(np.uint16)
    x = bits.view(NARROW.get(kind, np.float16))
    assert has_table(text, entries)
    assert not has_table(text, entries + word("never"))
    found, wanted = (run(text, x.copy(), entries + more) for more in ("", word("never")))
    np.testing.assert_array_equal(found, wanted)


@needs_compiler
def test_the_number_of_threads_changes_no_bit() -> None:
    """One of them makes the table while others compute."""
    text, before = chain(MANY, "bf16"), num_threads()
    x = np.random.default_rng(2).integers(0, ENTRIES, MANY, np.uint16).view(NARROW["bf16"])
    results: list[Any] = []
    try:
        for count in range(1, 9):
            set_num_threads(count)
            results.append(run(text, x, ""))
    finally:
        set_num_threads(before)
    assert all(np.array_equal(each, results[0]) for each in results)


def test_one_operand_of_many_narrow_numbers_has_a_table() -> None:
    assert has_table(chain(f"100x{MANY // 100}", "bf16"))
    assert has_table(chain(FEWEST, "bf16"))
    assert not has_table(chain(FEWEST - 1, "bf16"), word("always"))
    assert not has_table(chain(MANY, "f32"), word("always"))
    assert not has_table(chain(MANY, "bf16", other="%y"), word("always"))


def test_short_chains_have_no_table() -> None:
    t = f"tensor<{MANY}xbf16>"
    text = f"func.func @main(%x: {t}) -> {t} {{\n %y = graph.tanh %x : ({t}) -> {t}\n func.return %y : {t}\n}}"
    assert not has_table(text)
    assert has_table(text, word("always"))


def test_what_depends_on_the_place_has_no_table() -> None:
    """The number that an element is made of lies elsewhere, or there is another one."""
    t = f"tensor<{MANY}xbf16>"
    for op in ("graph.flip %0 {axes = array<i64: 0>}", "graph.tanh %0"):
        text = f"""
func.func @main(%x: {t}) -> {t} {{
  %r = fused.kernel(%0 = %x : {t}) -> ({t}) attributes {{schedule = {{kind = "pointwise", table = "always"}}}} {{
    %1 = {op} : ({t}) -> {t}
    fused.yield %1 : {t}
  }}
  func.return %r : {t}
}}"""
        found = text_of(apply(parse(text), ["convert-fused-to-loops"]))
        assert ("fo_look_up" in found) == ("tanh" in op)


def test_the_loop_is_there_once() -> None:
    kernel = lowered(chain(MANY, "bf16"), 'cut = "never", ')
    kernel = kernel[kernel.index("func.func private @kernel") :]
    assert kernel.count('"scf.parallel"') == 1
    assert kernel.count("scf.if") == 3


@needs_compiler
def test_calls_share_a_table() -> None:
    """The ninth one makes it; those before it computed as many elements as there are numbers."""
    text, rng = chain(FEWEST, "f16"), np.random.default_rng(3)
    program, other = (CpuProgram(build_program(scheduled(text, entries))) for entries in ("", word("never")))
    for _ in range(ENTRIES // FEWEST + 3):
        x = rng.integers(0, ENTRIES, FEWEST, np.uint16).view(np.float16)
        found, wanted = (bits_of(each, x) for each in (program, other))
        np.testing.assert_array_equal(found, wanted)


@needs_compiler
def test_callers_at_a_time_share_a_table() -> None:
    """Nobody looks up in one that another thread has not made yet."""
    text, rng = chain(FEWEST, "bf16"), np.random.default_rng(4)
    other = CpuProgram(build_program(scheduled(text, word("never"))))
    given = rng.integers(0, ENTRIES, (32, FEWEST), np.uint16).view(NARROW["bf16"])
    wanted = [bits_of(other, x) for x in given]
    for _ in range(3):
        program = CpuProgram(build_program(scheduled(text)))
        with ThreadPoolExecutor(4) as callers:
            found = list(callers.map(partial(bits_of, program), given))
        np.testing.assert_array_equal(found, wanted)


@needs_compiler
def test_threads_look_up_what_one_of_them_made() -> None:
    text, before = chain(MANY, "f16"), num_threads()
    x = np.random.default_rng(5).integers(0, ENTRIES, MANY, np.uint16).view(np.float16)
    wanted = run(text, x, word("never"))
    program = CpuProgram(build_program(scheduled(text)))
    try:
        for count in (3, 1, 4):
            set_num_threads(count)
            np.testing.assert_array_equal(bits_of(program, x), wanted)
    finally:
        set_num_threads(before)


@needs_compiler
def test_what_a_call_says_has_no_table() -> None:
    """A mean over as many elements as a call has would be that of the call that made the table."""
    t = "tensor<?xbf16>"
    program = fuse_opt.compile(f"""
func.func @main(%x: {t} {{graph.dims = ["n"]}}) -> {t} attributes {{graph.symbols = {{n = {{typical = {ENTRIES}}}}}}} {{
  %a = graph.tanh %x : ({t}) -> {t}
  %b = graph.sigmoid %a : ({t}) -> {t}
  %c = graph.tanh %b : ({t}) -> {t}
  %r = graph.reciprocal_of_size {{size = #graph.size<n>, dtype = bf16}} : () -> tensor<bf16>
  %d = graph.multiply %c, %r : ({t}, tensor<bf16>) -> {t}
  func.return %d : {t}
}}""")
    for count in (2 * ENTRIES, ENTRIES, 3 * ENTRIES):
        x = np.full(count, 0x3F00, np.uint16).view(NARROW["bf16"])  # 0.5
        found = (bits_of(program, x).astype(np.uint32) << 16).view(np.float32)
        np.testing.assert_allclose(found, np.tanh(1 / (1 + np.exp(-np.tanh(0.5)))) / count, rtol=0.02)
