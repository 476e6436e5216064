"""Programs that tuned files steer: values stay within what rounding explains; what one device found is not applied on another."""

from __future__ import annotations

import json
import random
from collections.abc import Sequence
from dataclasses import replace
from math import log
from pathlib import Path

import pytest
from draws import draws
from fuzz import random_sequence
from laws import Subject, compiled_fault
from program_generator import dense_program
from xdsl.dialects.builtin import ModuleOp

import fuse_opt
from fuse_opt.dialects.fused import KernelOp
from fuse_opt.dialects.fused.knobs import REGISTER_BITS
from fuse_opt.passes.scheduling.tuned_schedules import settings_of
from fuse_opt.runtime.host.c_compiler import find_c_compiler
from fuse_opt.tools.compiler.api import load
from fuse_opt.tools.compiler.backend_switch import with_host_device, with_tuned
from fuse_opt.tools.compiler.builders import has_c_compiler
from fuse_opt.tools.compiler.pipeline import DEFAULT_PIPELINE, make_passes, run_pipeline
from fuse_opt.tools.compiler.registry import make_context
from fuse_opt.tools.tuning import places
from fuse_opt.tools.tuning.fuse_tune_main import main
from fuse_opt.tools.tuning.search.candidates import Candidate, Site
from fuse_opt.tools.tuning.search.sites import find_sites
from fuse_opt.tools.tuning.search.study import Measured
from fuse_opt.tools.watching.machine import this_machine

pytestmark = pytest.mark.skipif(not has_c_compiler(), reason="programs are compiled")
SUM = """
func.func @main(%x: tensor<33x300xf32>) -> tensor<33xf32> {
  %0 = graph.sum %x {axes = array<i64: 1>} : (tensor<33x300xf32>) -> tensor<33xf32>
  func.return %0 : tensor<33xf32>
}"""


def anything(site: Site, rng: random.Random) -> Candidate:
    """A schedule with some of what may be changed, that lowering takes."""
    found = site.default
    for candidate in rng.sample(changes := list(site.changes(False)), min(len(changes), 4)):
        settings = {**found.settings, **candidate.settings}
        tried = Candidate.of(settings if candidate.settings["kind"] == found.settings["kind"] else candidate.settings)
        try:
            site.program(tried)
        except Exception:
            continue
        found = tried
    return found


@pytest.mark.parametrize("seed", draws(2))
def test_random_programs_by_random_schedules(seed: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    text, rng, machine = str(dense_program(seed, 12)), random.Random(seed), this_machine()
    assert machine is not None
    lines: list[dict[str, object]] = []
    for site in find_sites(load(text)):
        settings = anything(site, rng).settings
        line = {"v": 1, "key": site.key.key, "device": machine.device, "code": machine.code, "state": "confirmed"}
        lines.append({**line, "schedule": settings, "speedup": [1.1, 1.2, 1.3]})
    (file := tmp_path / "t.jsonl").write_text("".join(f"{json.dumps(line)}\n" for line in lines))
    monkeypatch.setenv("FUSE_OPT_TUNED", str(file))
    found = str(fuse_opt.compile(text).module)
    assert found == str(fuse_opt.compile(text).module) and (
        not lines or found != str(fuse_opt.compile(text, tuned="").module)
    )
    subject = Subject.of(text, seed)
    assert not compiled_fault(subject)
    assert not compiled_fault(subject, [*random_sequence(rng), *DEFAULT_PIPELINE])


def test_entries_of_a_processor_stay(tmp_path: Path) -> None:
    """Schedules that are tried on a processor of narrow vectors say so, and so do those that a file has without a word of it."""
    machine, passes = this_machine(), with_host_device(make_passes(None), "avx2")
    assert machine is not None
    (site,), (wide,) = find_sites(load(SUM), passes), find_sites(load(SUM), make_passes(None))
    assert site.key == wide.key and not site.words
    assert site.default.settings == {**wide.default.settings, "register_bits": 256}
    tried = [candidate.settings for candidate in site.changes(False)]
    assert len({settings["kind"] for settings in tried}) > 1
    of_registers = [settings for settings in tried if settings["kind"] in REGISTER_BITS.kinds]
    assert of_registers and all(settings["register_bits"] == 256 for settings in of_registers)
    line = {"v": 1, "key": site.key.key, "device": machine.device, "code": machine.code, "state": "confirmed"}
    line |= {"schedule": {"kind": "row", "lanes": 64}, "speedup": [1.1, 1.2, 1.3]}
    (file := tmp_path / "t.jsonl").write_text(f"{json.dumps(line)}\n")
    run_pipeline(module := load(SUM), with_tuned(passes, file), make_context())
    (kernel,) = (op for op in module.walk() if isinstance(op, KernelOp))
    assert kernel.schedule is not None
    assert settings_of(kernel.schedule) == {"kind": "row", "lanes": 64, "register_bits": 256}


def test_two_devices(tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    """Both are this machine, by the flags of its compiler."""
    compiler = find_c_compiler()
    assert compiler is not None
    asked: list[str] = []
    best: dict[str, object] = {}

    class Table:
        """The entries of `best` together are a fifth faster than all else."""

        def measure(self, candidate: Candidate, turn: int, pairs: int) -> Measured:
            asked.append(candidate.text)
            won = best.items() <= candidate.settings.items() or "tuned" in candidate.settings
            return Measured((-log(0.8 if won else 1.1),) * pairs, candidate.same_bits, 1e-3)

        def look_again(self, candidate: Candidate) -> str:
            return ""

        def close(self) -> None: ...

    here = places._here  # pyright: ignore[reportPrivateUsage]

    def table(site: Site) -> Table:
        return Table()

    def fixed(module: ModuleOp) -> float:
        return 1e-3

    def measured_by_table(threads: int, seed: int, jobs: int, arguments: object) -> places.Place:
        return replace(here(threads, seed, jobs, None), bench=table, seconds=fixed)

    monkeypatch.setattr(places, "_here", measured_by_table)
    monkeypatch.setenv("FUSE_OPT_DEVICE", "cpu")
    (source := tmp_path / "x.mlir").write_text(SUM)
    records, kept = tmp_path / "r", list[Sequence[object]]()
    for number, flags in enumerate(("", " -mno-avx512f" if "avx512" in str(compiler.flags) else " -DOTHER=1")):
        monkeypatch.setenv("FUSE_OPT_CC", compiler.path + flags)
        best.clear()
        best.update({"lanes": 16} if not number else {"lanes": 32})
        asked.clear()
        file = tmp_path / f"{number}.json"
        assert main([str(source), "--trials", "14", "--threads", "1", "--records", str(records), "-o", str(file)]) == 0
        (kernel,) = json.loads(file.read_text())["kernels"]
        assert best.items() <= kernel["schedule"].items()
        if number:
            first = next(text for text in asked if json.loads(text) != {"kind": "row"})
            assert json.loads(first) == {"kind": "row", "lanes": 16}, "what the other device confirmed"
        kept.append((json.loads(file.read_text())["device"], str(kernel["schedule"]["lanes"])))
    (first_device, _), (second_device, lanes) = kept
    assert first_device != second_device
    text = str(fuse_opt.compile(SUM, tuned=records).module)
    assert f"lanes = {lanes}" in text
    assert "lanes" not in str(fuse_opt.compile(SUM, tuned=tmp_path / "0.json").module)
    capsys.readouterr()
