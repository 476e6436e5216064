"""Kernels of CUDA by the same search: candidates are their own entries and texts, records are of the GPU that a module names."""

from __future__ import annotations

import json
from functools import cache
from math import log
from pathlib import Path

import pytest
from cuda_on_cpu import needs_cxx, needs_nvcc
from stand_in_driver import needs_stand_in, run_python

from fuse_opt.dialects.fused.gpu_schedule import GPU_KNOBS, GpuKnob
from fuse_opt.passes.devices.gpu_attach_device import attach_device
from fuse_opt.passes.devices.this_machine import THIS_MACHINE, Machine, machine_for
from fuse_opt.passes.remarks import collect
from fuse_opt.passes.scheduling.tuned_schedules import schedule_of
from fuse_opt.runtime.device.compiler import compile_kernels, find_cuda_compiler, supported_arch
from fuse_opt.runtime.device.driver import device_problem
from fuse_opt.runtime.disk_cache import DiskCache
from fuse_opt.runtime.emulation.program import EmulatedProgram
from fuse_opt.tools.commands.measuring import example_inputs
from fuse_opt.tools.compiler.api import load
from fuse_opt.tools.compiler.backend_switch import with_tuned
from fuse_opt.tools.compiler.pipeline import make_passes, run_pipeline
from fuse_opt.tools.compiler.registry import make_context
from fuse_opt.tools.tuning.fuse_tune_main import main
from fuse_opt.tools.tuning.search.candidates import Candidate, Site, single_changes
from fuse_opt.tools.tuning.search.records import Records
from fuse_opt.tools.tuning.search.sites import find_sites
from fuse_opt.tools.tuning.search.study import Measured, TrialFailed
from fuse_opt.tools.tuning.search.tune_program import Options, Tuner, tuned_text
from fuse_opt.tools.watching.units import distances

CPU = Machine("d:here", "c:now")
TEXT = """
func.func @main(%x: tensor<64x300xf32>) -> tensor<64x300xf32> {
  %0 = graph.softmax %x {axis = -1 : i64} : (tensor<64x300xf32>) -> tensor<64x300xf32>
  func.return %0 : tensor<64x300xf32>
}"""


@cache
def site() -> Site:
    (found,) = find_sites(load(TEXT), target="cuda")
    return found


class Table:
    """Times relative to the default's, by entries."""

    def __init__(self) -> None:
        self.asked: list[str] = []

    def measure(self, candidate: Candidate, turn: int, pairs: int) -> Measured:
        self.asked.append(candidate.text)
        if candidate.settings.get("gpu.variant") == "thread":
            raise TrialFailed("crash: an illegal address was accessed")
        factor = {64: 0.8, 1024: 1.3}.get(int(candidate.settings.get("gpu.threads", 0)), 1.0)
        factor *= 0.9 if candidate.settings.get("gpu.variant") == "shared" else 1.0
        return Measured((-log(factor),) * pairs, False, 1e-5)

    def look_again(self, candidate: Candidate) -> str:
        return ""

    def close(self) -> None: ...


def applied(file: Path, device: str | None) -> tuple[str, str]:
    """The program after all passes with a tuned file, for a GPU or the CPU, and the remarks about schedules."""
    module, token = load(TEXT).clone(), THIS_MACHINE.set(lambda: CPU)
    try:
        if device is not None:
            attach_device(module, device)
        with collect() as remarks:
            run_pipeline(module, with_tuned(make_passes(None), file), make_context())
    finally:
        THIS_MACHINE.reset(token)
    return str(module), "\n".join(each.message for each in remarks if each.pass_name == "schedule-kernels")


def test_the_same_search_finds_entries_of_the_gpu_and_passes_apply_them_there_alone(tmp_path: Path) -> None:
    token, table = THIS_MACHINE.set(lambda: CPU), Table()
    try:
        machine = machine_for(site().module)
    finally:
        THIS_MACHINE.reset(token)
    assert machine is not None and machine.device.startswith("g:") and machine.code == CPU.code
    records = Records(tmp_path / "r", machine)
    options = Options(trials=40, seconds=None)
    result = Tuner([site()], records, lambda _: table, lambda: 0.0, options, lambda: 1e-5).run()
    (line,) = result.lines.values()
    assert (
        line["schedule"] == {"kind": "row", "gpu.threads": 64, "gpu.variant": "shared"} and line["state"] == "confirmed"
    )
    (outcome,) = result.outcomes.values()
    assert outcome.duplicates and any("thread" in text for text in outcome.failed)
    assert all(json.loads(text).keys() - {"kind"} <= {f"gpu.{knob.name}" for knob in GPU_KNOBS} for text in table.asked)
    (lines,) = [path.read_text().splitlines() for path in (tmp_path / "r").glob("*.jsonl")]
    assert {json.loads(each)["target"] for each in lines} == {"cuda"}
    (file := tmp_path / "t.json").write_text(tuned_text([site()], result, machine, {}))
    text, said = applied(file, "h100")
    assert 'gpu = {threads = 64 : i64, variant = "shared"}' in text and "runs as" in said
    for device in ("a100", None):
        text, said = applied(file, device)
        assert "variant" not in text and f"is of another machine ({machine.device})" in said
    again = Tuner([site()], Records(tmp_path / "r", machine), lambda _: Table(), lambda: 0.0, options, lambda: 1e-5)
    assert again.run().measured == 0


def test_candidates_of_another_language_are_no_starting_points(tmp_path: Path) -> None:
    (of_cpu,) = find_sites(load(TEXT))
    assert of_cpu.key == site().key
    records = Records(tmp_path, CPU)
    records.add(of_cpu, {"state": "confirmed", "schedule": {"kind": "row", "lanes": 64}, "same_bits": False})
    assert records.earlier(site()) == [] and len(records.earlier(of_cpu)) == 1


SAMPLES = """
func.func @main(%x: tensor<4096x4096xf32>, %t: tensor<640x384xf32>, %y: tensor<512x384xf32>, %z: tensor<3x70000xf32>)
    -> (tensor<4096x4096xf32>, tensor<384x640xf32>, tensor<384xf32>, tensor<3xf32>) {
  %0 = graph.exp %x : (tensor<4096x4096xf32>) -> tensor<4096x4096xf32>
  %1 = graph.permute_dims %t {axes = array<i64: 1, 0>} : (tensor<640x384xf32>) -> tensor<384x640xf32>
  %2 = graph.sum %y {axes = array<i64: 0>} : (tensor<512x384xf32>) -> tensor<384xf32>
  %3 = graph.sum %z {axes = array<i64: 1>} : (tensor<3x70000xf32>) -> tensor<3xf32>
  func.return %0, %1, %2, %3 : tensor<4096x4096xf32>, tensor<384x640xf32>, tensor<384xf32>, tensor<3xf32>
}"""


@cache
def samples() -> list[Site]:
    return [site(), *find_sites(load(SAMPLES), target="cuda")]


@pytest.mark.parametrize("knob", GPU_KNOBS, ids=lambda knob: knob.name)
def test_no_entry_is_dead(knob: GpuKnob) -> None:
    assert all(knob.values.has(schedule_of({"x": value}).data["x"]) for value in knob.tries)
    for each in samples():
        if each.default.settings["kind"] in knob.kinds:
            changed = [{**each.default.settings, f"gpu.{knob.name}": value} for value in knob.tries]
            if any(each.text(Candidate.of(settings)) != each.text(each.default) for settings in changed):
                return
    raise AssertionError(f"{knob.name} changes no text")


@needs_cxx
def test_candidates_give_the_values_of_the_reference_in_emulation() -> None:
    arrays = example_inputs(site().module, 3)
    expected = site().reference(arrays)
    texts: set[str] = set()
    for candidate in [site().default, *single_changes(site(), False)]:
        if site().text(candidate) in texts or len(texts) > 5:
            continue
        texts.add(site().text(candidate))
        (got,) = EmulatedProgram(site().program(candidate)).run(arrays)
        (allowed,) = site().allowed(arrays, expected, [got])
        assert (distances(got, expected[0]) <= allowed).all(), candidate.text
    assert len(texts) > 4


@needs_nvcc
def test_candidates_are_compiled_by_nvcc() -> None:
    compiler = find_cuda_compiler()
    assert compiler is not None
    candidate = Candidate.of({**site().default.settings, "gpu.variant": "block", "gpu.threads": 64}, False)
    program = site().program(candidate)
    assert program.source != site().program(site().default).source
    assert compile_kernels(compiler, program.source, supported_arch(compiler, "sm_90"), DiskCache()).data


@needs_stand_in
def test_the_command_on_the_stand_in_driver(tmp_path: Path) -> None:
    """Its clock says the same of every call, so the default stays."""
    (source := tmp_path / "x.mlir").write_text(TEXT.replace("64x300", "8x70"))
    words = [str(source), "--target", "cuda", "--trials", "3", "-o", str(tmp_path / "t.json")]
    command = ["-m", "fuse_opt.tools.tuning.fuse_tune_main", *words, "--records", str(tmp_path / "r")]
    done = run_python(command)
    assert done.returncode == 0 and "the default is best: 3 candidates" in done.stderr, done.stderr
    whole = json.loads((tmp_path / "t.json").read_text())
    assert whole["target"] == "cuda" and whole["device"].startswith("g:")
    assert "; 0 measurements" in run_python(command).stderr


def test_what_the_command_cannot_do_for_a_gpu(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (source := tmp_path / "x.mlir").write_text(TEXT)
    for options, message in (
        (["--joint"], "--target cuda: expected no --joint"),
        (["--objective", "peak"], "--target cuda: expected no --objective"),
        (["--cluster", "tcp://a:1"], "--target cuda: expected no --cluster"),
    ):
        assert main([str(source), "--target", "cuda", *options]) == 2
        assert message in capsys.readouterr().err
    if device_problem() is not None:
        assert main([str(source), "--target", "cuda", "-o", str(tmp_path / "t.json")]) == 1
        assert capsys.readouterr().err.count("\n") == 1


def test_what_a_gpu_cannot_have_is_refused(tmp_path: Path) -> None:
    whole = {"fuse-opt-tuned": 1, "device": "g:0", "code": CPU.code}
    for entry, message in (
        ({"gpu.threads": 100}, "entry 'gpu.threads': expected a power of two from 32 to 1024, got 100"),
        ({"gpu.tile": 32}, "entry 'gpu.tile': expected none for kind \"row\""),
        ({"gpu.colour": 32}, "entry 'gpu.colour': expected kind or one of"),
    ):
        kernel = {"key": site().key.key, "schedule": {"kind": "row", **entry}}
        (file := tmp_path / "t.json").write_text(json.dumps({**whole, "kernels": [kernel]}))
        with pytest.raises(Exception, match=message):
            applied(file, "h100")
