"""Products by oneDNN over a stand-in that checks every argument: what is called, when, with which memory, and what is refused."""

from __future__ import annotations

import gc
import os
import threading
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from onednn_testing import Array, FakeOneDnn, product_text, run_product

import fuse_opt
from fuse_opt.dialects.fused import KernelOp
from fuse_opt.lowering.emit import build_program
from fuse_opt.passes.remarks import collect
from fuse_opt.runtime.backends.onednn import primitives
from fuse_opt.runtime.cpu.program import CpuProgram
from fuse_opt.runtime.host.thread_pool import num_threads, set_num_threads
from fuse_opt.tools.commands.fuse_opt_main import main as fuse_opt_main
from fuse_opt.tools.compiler.pipeline import UsageError

F32 = product_text(np.empty((5, 7), "f4"), np.empty((7, 3), "f4"), (5, 3), {})


@pytest.fixture
def fake(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> FakeOneDnn:
    return FakeOneDnn(tmp_path, monkeypatch)


@pytest.fixture
def threads() -> Iterator[None]:
    before = num_threads()
    yield
    set_num_threads(before)


def numbers(shape: tuple[int, ...], dtype: str = "f4", seed: int = 0) -> Array:
    low, high = (0, 6) if dtype == "u1" else (-5, 6)
    return np.random.default_rng(seed).integers(low, high, shape).astype(dtype)


SHAPES = [
    ((5, 7), (7, 3)),
    ((1, 1), (1, 1)),
    ((2, 5, 7), (7, 3)),
    ((2, 5, 7), (2, 7, 3)),
    ((2, 5, 7), (1, 7, 3)),
    ((5, 7), (2, 7, 3)),
    ((1, 5, 7), (2, 7, 3)),
    ((2, 3, 5, 7), (2, 3, 7, 4)),
    ((2, 3, 5, 7), (3, 7, 4)),
    ((2, 1, 5, 7), (1, 3, 7, 4)),
    ((6, 40, 120), (6, 120, 90)),
    ((500, 120), (120, 90)),
    ((90, 120), (120, 500)),
]


@pytest.mark.sampled(8)
@pytest.mark.parametrize("shapes", SHAPES, ids=str)
@pytest.mark.parametrize("ta", [False, True])
@pytest.mark.parametrize("tb", [False, True])
def test_products_of_all_layouts(
    fake: FakeOneDnn, threads: None, shapes: tuple[tuple[int, ...], tuple[int, ...]], ta: bool, tb: bool
) -> None:
    fake.say(scratch=100)
    a, b = (numbers((*s[:-2], s[-1], s[-2]) if turn else s) for s, turn in zip(shapes, (ta, tb), strict=True))
    for count in (1, 3):
        set_num_threads(count)
        found, expected, program = run_product(a, b, ta, tb)
        assert program.implementations == {"onednn.matmul": 1} and program.stats.foreign_calls == 1
        np.testing.assert_array_equal(found, expected)


@pytest.mark.parametrize("dtype", ["i1", "u1"])
def test_products_of_bytes(fake: FakeOneDnn, dtype: str) -> None:
    found, expected, program = run_product(numbers((9, 16), dtype), numbers((16, 5), "i1"))
    assert program.implementations == {"onednn.matmul": 1} and found.dtype == np.int32
    np.testing.assert_array_equal(found, expected)


def test_the_scratchpad_is_the_plan_s(fake: FakeOneDnn, threads: None) -> None:
    """A part of it for each part of the call, none shared; the plan is the same for every number of threads."""
    fake.say(scratch=64)
    a, b = numbers((400, 200)), numbers((200, 100))
    texts = set[str]()
    for count in (1, 2, 3):
        set_num_threads(count)
        before = fake.count("executions")
        found, expected, program = run_product(a, b)
        np.testing.assert_array_equal(found, expected)
        texts.add(str(program.module))
        assert program.stats.workspace_bytes == program.stats.arena_bytes == 64 * 400
        assert fake.count("executions") - before == 2 + (count == 1)  # with the first product of all
    (text,) = texts
    assert "workspace = 25600 : i64" in text and "workspace_slot = 0 : i64" in text


def test_primitives_are_made_when_a_program_is_loaded(fake: FakeOneDnn) -> None:
    a, b = numbers((20, 30)), numbers((30, 10))
    _, expected, program = run_product(a, b)
    made = fake.count("primitives")
    for _ in range(3):
        np.testing.assert_array_equal(program(a, b), expected)
    assert fake.count("primitives") == made
    run_product(a, b)
    assert fake.count("primitives") == made, "another program of the same product shares them"


def test_handles_go_with_what_they_are_for(fake: FakeOneDnn) -> None:
    *_, program = run_product(numbers((20, 30)), numbers((30, 10)))
    assert fake.count("alive") > 0
    del program
    primitives.primitive_of.cache_clear()
    gc.collect()
    assert fake.count("alive") == 0


def test_poisoned_memory_is_no_part_of_a_result(fake: FakeOneDnn) -> None:
    """The stand-in of a step by step program is NumPy's function, which knows no workspace."""
    fake.say(scratch=100)
    found, expected, _ = run_product(numbers((20, 30)), numbers((30, 10)), poison=True)
    np.testing.assert_array_equal(found, expected)


def test_two_threads_in_one_program(fake: FakeOneDnn) -> None:
    fake.say(scratch=300)
    a, b = numbers((60, 200)), numbers((200, 50))
    _, expected, program = run_product(a, b)
    wrong: list[int] = []

    def run(number: int) -> None:
        wrong.extend(
            number for _ in range(50) if not np.array_equal(program(a + number, b), expected + number * b.sum(0))
        )

    workers = [threading.Thread(target=run, args=(number,)) for number in range(2)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    assert not wrong


def test_a_child_of_fork_runs_programs(fake: FakeOneDnn) -> None:
    a, b = numbers((60, 200)), numbers((200, 50))
    _, expected, program = run_product(a, b)
    if (child := os.fork()) == 0:
        os._exit(0 if np.array_equal(program(a, b), expected) else 1)
    assert os.waitpid(child, 0)[1] == 0


@pytest.mark.parametrize("impl", ["ref:any", "x64:gemm:jit", "simple:any", "gemm:ref"])
def test_what_the_library_does_badly_is_refused(fake: FakeOneDnn, impl: str) -> None:
    fake.say(impl=impl)
    with pytest.raises(fuse_opt.InputError, match=f"no implementation runs it: onednn.matmul:implementation-{impl}"):
        fuse_opt.compile(F32, backend="none,onednn")
    with collect() as remarks:
        program = fuse_opt.compile(F32, backend="none,onednn,numpy")
    assert program.implementations == {"numpy.matmul": 1}
    assert any(f"refused=onednn.matmul:implementation-{impl}" in str(found) for found in remarks)
    with pytest.raises(
        fuse_opt.InputError, match=rf'use_implementation "onednn.matmul" refuses it: implementation-{impl}'
    ):
        wished = F32.replace("{}", '{use_implementation = "onednn.matmul"}')
        fuse_opt.compile(wished, backend="none,onednn,numpy")


def test_a_named_choice_that_the_machine_refuses_is_made_anew(fake: FakeOneDnn) -> None:
    text = str(fuse_opt.compile(F32, backend="none,onednn,numpy").module)
    assert "onednn.matmul" in text
    primitives.primitive_of.cache_clear()
    fake.say(impl="ref:any")
    assert fuse_opt.compile(text, backend="none,onednn,numpy").implementations == {"numpy.matmul": 1}


@pytest.mark.parametrize(
    ("said", "message"),
    [
        ({"version": 2}, r"is oneDNN 2.2.0; expected version 3"),
        ({"runtime": 4}, r"runs on TBB; expected a build for OpenMP, or for one thread"),
        ({"runtime": 77}, r"runs on runtime 77; expected"),
        ({"wrong": 1}, r"a product of 4x4 f32 by oneDNN is wrong"),
    ],
)
def test_a_library_that_cannot_be_used_is_one_error(fake: FakeOneDnn, said: dict[str, int], message: str) -> None:
    fake.say(**said)
    with pytest.raises(UsageError, match=rf"backend 'onednn' cannot be used here: .*{message}"):
        fuse_opt.compile(F32, backend="onednn")
    assert fuse_opt.compile(F32).implementations == {"fuse.matmul": 1}


def test_a_build_for_one_thread_has_no_openmp(fake: FakeOneDnn) -> None:
    """The stand-in believes to be of four threads then, and says so: oneDNN's own would know of none."""
    fake.say(runtime=1)
    from fuse_opt.runtime.backends.onednn.library import load_library

    assert load_library().threads == (0, 0)


@pytest.mark.parametrize(
    ("value", "message"),
    [
        ("off", "FUSE_OPT_ONEDNN=off"),
        ("/no/libdnnl.so", "/no/libdnnl.so cannot be loaded as oneDNN"),
    ],
)
def test_without_the_library(monkeypatch: pytest.MonkeyPatch, value: str, message: str) -> None:
    monkeypatch.setenv("FUSE_OPT_ONEDNN", value)
    with pytest.raises(UsageError, match=f"backend 'onednn' cannot be used here: {message}"):
        fuse_opt.compile(F32, backend="onednn")
    with collect() as remarks:
        fuse_opt.compile(F32)
    said = any("[attach-backends] unavailable" in str(r) and "'onednn'" in str(r) for r in remarks)
    assert said == (value == "off"), "whether a path holds a library is known when it is loaded, for who names it"


def test_fuse_opt_says_that_a_named_library_is_absent(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """By the flag and the variable alike; a pass names a backend as data, and loads nothing."""
    monkeypatch.setenv("FUSE_OPT_ONEDNN", "off")
    (tmp_path / "product.mlir").write_text(F32, encoding="utf-8")
    file, said = str(tmp_path / "product.mlir"), "backend 'onednn' cannot be used here: FUSE_OPT_ONEDNN=off\n"
    assert fuse_opt_main([file, "--backend=onednn,-blas", "--default"]) == 2
    assert capsys.readouterr().err.endswith(f"backend 'onednn,-blas': {said}")
    assert fuse_opt_main([file, "-p", "attach-backends{backends=none,onednn}, unfused"]) == 0
    assert 'implementation = "onednn.matmul"' in capsys.readouterr().out
    assert fuse_opt_main([file, "--backend=-onednn", "--default"]) == 0
    monkeypatch.setenv("FUSE_OPT_BACKEND", "onednn")
    assert fuse_opt_main([file, "--default"]) == 2
    assert capsys.readouterr().err.endswith(f"FUSE_OPT_BACKEND=onednn: {said}")


def test_a_plan_from_elsewhere_is_refused_by_name(fake: FakeOneDnn, monkeypatch: pytest.MonkeyPatch) -> None:
    """Chosen where the library is not, so without a workspace: nothing is allocated instead."""
    fake.say(scratch=100)
    with monkeypatch.context() as patch:
        patch.setenv("FUSE_OPT_ONEDNN", "off")
        module = fuse_opt.optimize(F32, "attach-backends{backends=none,onednn},unfused")
        assert "workspace" not in str(module) and "onednn.matmul" in str(module)
        program = build_program(module.clone())
    with pytest.raises(
        RuntimeError, match=r"run by 'onednn.matmul', but it works in 512 bytes, and the plan has 0; run select"
    ):
        CpuProgram(program)
    monkeypatch.setenv("FUSE_OPT_ONEDNN", "off")
    with pytest.raises(
        RuntimeError, match=r"run by 'onednn.matmul', but FUSE_OPT_ONEDNN=off; compile with backend='-onednn'"
    ):
        CpuProgram(program)


@pytest.mark.parametrize(
    ("depth", "columns", "turned", "packed"),
    [(32, 24, False, True), (48, 8, True, True), (50, 24, False, False), (32, 23, True, False)],
)
def test_frozen_right_operands_lie_in_panels(
    fake: FakeOneDnn, depth: int, columns: int, turned: bool, packed: bool
) -> None:
    """Of whole groups of rows and whole panels; the library's parts are of rows then, with the same bits for any threads."""
    fake.say(panel=8, scratch=16)
    a, b = numbers((260, depth)), numbers((columns, depth) if turned else (depth, columns))
    expected = a @ (b.T if turned else b)
    text = product_text(a, b, expected.shape, {"transpose_rhs": turned})
    program = fuse_opt.compile(text, backend="none,onednn").freeze({1: b})
    assert ("#graph.panel<axis = 1, width = 8>" in str(program.module)) == packed
    np.testing.assert_allclose(program(a), expected, rtol=1e-5, atol=1e-5)
    np.testing.assert_allclose(fuse_opt.evaluate(str(program.module), a, b), expected, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize(("depth", "sums", "packed"), [(64, 0, True), (60, 0, False), (64, 4, False)])
def test_frozen_bytes_lie_in_panels_of_fours(fake: FakeOneDnn, depth: int, sums: int, packed: bool) -> None:
    """Not where a group of rows would be part empty, and not where the library keeps sums behind its weights."""
    fake.say(panel=8, sums=sums)
    a, b = numbers((70, depth), "u1"), numbers((depth, 16), "i1")
    text = product_text(a, b, (70, 16), {})
    program = fuse_opt.compile(text, backend="none,onednn").freeze({1: b})
    assert ("#graph.panel<axis = 1, width = 8, group = 4>" in str(program.module)) == packed
    assert program.implementations == {"onednn.matmul": 1}
    for found in (program(a), fuse_opt.evaluate(str(program.module), a, b)):
        np.testing.assert_array_equal(found, a.astype(np.int32) @ b.astype(np.int32))


def test_a_call_that_fails_in_a_run_is_an_error(fake: FakeOneDnn) -> None:
    a, b = numbers((5, 7)), numbers((7, 3))
    _, expected, program = run_product(a, b)
    fake.say(status=5)
    with pytest.raises(RuntimeError, match="'graph.matmul': 'onednn.matmul' failed in a run: runtime error"):
        program(a, b)
    fake.say(status=0)
    np.testing.assert_array_equal(program(a, b), expected)


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        (F32.replace("f32", "f64"), "dtype"),
        (F32.replace("f32", "bf16"), "dtype"),
        (product_text(np.empty((5, 0), "f4"), np.empty((0, 3), "f4"), (5, 3), {}), "empty"),
        (product_text(np.empty((7,), "f4"), np.empty((7, 3), "f4"), (3,), {}), "shape"),
        (F32.replace("5x", "2147483648x"), "extent"),
    ],
)
def test_what_it_does_not_take(fake: FakeOneDnn, text: str, reason: str) -> None:
    with pytest.raises(
        fuse_opt.InputError, match=f"no implementation runs it: onednn.matmul:{reason},onednn.matmul_fast:"
    ):
        fuse_opt.optimize(text, "attach-backends{backends=none,onednn},wrap-kernels,select-implementation")
    assert fake.count("executions") == fake.count("alive") == 0, "nothing was loaded to answer"


def test_bf16_is_a_fast_one_that_this_library_has_not(fake: FakeOneDnn) -> None:
    text = F32.replace("f32", "bf16")
    with pytest.raises(fuse_opt.InputError, match="onednn.matmul:dtype,onednn.matmul_fast:unimplemented"):
        fuse_opt.optimize(
            text, "attach-backends{backends=none,onednn},wrap-kernels,select-implementation{numerics=fast}"
        )


def test_its_rates_decide(fake: FakeOneDnn, tmp_path: Path) -> None:
    """A device's record says how fast an implementation is, by its name or its backend's."""
    own = Path(__file__).parents[3] / "passes" / "devices" / "device_cpu.toml"
    device = tmp_path / "mine.toml"
    large = product_text(np.empty((512, 512), "f4"), np.empty((512, 512), "f4"), (512, 512), {})
    chosen: list[str] = []
    for entry in ("onednn.matmul", "onednn"):
        for rate in ("1e12", "1e11"):
            text = own.read_text(encoding="utf-8").partition("\nrates")[0]
            device.write_text(f'{text}\n[rates."{entry}"]\nf32 = {rate}\n', encoding="utf-8")
            pipeline = f'attach-backends{{backends=onednn}},wrap-kernels,select-implementation{{device="{device}"}}'
            module = fuse_opt.optimize(large, pipeline)
            chosen += [k.implementation.data for k in module.walk() if isinstance(k, KernelOp) and k.implementation]
    assert chosen == ["onednn.matmul", "fuse.matmul"] * 2


@pytest.mark.parametrize("rates", ["[rates]\nx = 3", '[rates.x]\nf32 = "fast"', "[rates.x]\nf33 = 1.0", "rates = 3"])
def test_rates_that_are_none_are_errors(tmp_path: Path, rates: str) -> None:
    own = Path(__file__).parents[3] / "passes" / "devices" / "device_cpu.toml"
    device = tmp_path / "mine.toml"
    text = own.read_text(encoding="utf-8").partition("\nrates")[0]
    device.write_text(f"{text}\n{rates}\n", encoding="utf-8")
    with pytest.raises((UsageError, fuse_opt.InputError, ValueError), match=r"option 'device': .*rates"):
        fuse_opt.optimize(F32, f'select-implementation{{device="{device}"}}')
