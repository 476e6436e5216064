"""fuse-tune calibrate: a file that find_device reads, the variable that names one for all programs, and refusals."""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path

import pytest

from fuse_opt.passes.devices.device import Device, device_text, find_device
from fuse_opt.tools.compiler.builders import has_c_compiler
from fuse_opt.tools.tuning import calibration
from fuse_opt.tools.tuning.fuse_tune_main import main

HOST = find_device("cpu")


def written(device: Device, path: Path) -> Path:
    path.write_text(device_text(device, "two\nlines"))
    return path


def test_a_record_is_written_as_it_is_read(tmp_path: Path) -> None:
    assert find_device(str(written(HOST, tmp_path / "d.toml"))) == HOST
    assert find_device(str(written(replace(HOST, products=(), rates=()), tmp_path / "e.toml"))).rates == ()


@pytest.mark.skipif(not has_c_compiler(), reason="programs are compiled")
def test_every_figure_is_measured_or_kept(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(calibration, "SLOTS", 2)
    monkeypatch.setattr(calibration, "SLOT_SECONDS", 1e-5)
    monkeypatch.setattr(calibration, "cache_sizes", lambda: (1 << 18, 1 << 20))
    named = replace(HOST, products=(("i8", 1e12),), rates=(("onednn", (("i8", 5e11), ("f32", 7.0))),))
    found = calibration.calibrated(named, 1)
    assert find_device(str(written(found, tmp_path / "d.toml"))).processors == 1
    assert (found.cache_bytes, found.last_level_cache_bytes) == (1 << 18, 1 << 20)
    assert found.strided >= 1 and found.across >= 1 and 20e-9 <= found.launch < 1e-3
    for name in ("bandwidth", "cache_bandwidth", "rate"):
        assert 1e7 < getattr(found, name) < 1e14, name
    assert found.rates == (("onednn", (("i8", pytest.approx(found.product_rate("i8") / 2)), ("f32", 7.0))),)
    assert (found.recompute_limit, found.hoists) == (named.recompute_limit, named.hoists)


def test_instruction_sets_are_those_of_the_processor(tmp_path: Path) -> None:
    named, said = ("avx2", "avx512f", "avx512_bf16"), tmp_path / "cpuinfo"
    assert calibration.processor_features(named, said) == named, "nothing is said"
    said.write_text("processor : 0\nflags\t\t: fpu avx2 avx512f avx512_bf16_not\n\nprocessor : 1\n")
    assert calibration.processor_features(named, said) == ("avx2", "avx512f")
    said.write_text("processor : 0\nFeatures : asimd bf16\n")
    assert calibration.processor_features(named, said) == named


def test_the_first_level_cache_is_that_for_data(tmp_path: Path) -> None:
    assert calibration.first_cache(tmp_path) == 0, "nothing is said"
    for number, (level, kind, size) in enumerate(
        (("1", "Instruction", "64K"), ("1", "Data", "48K"), ("2", "Unified", "2048K"))
    ):
        (folder := tmp_path / f"index{number}").mkdir()
        for name, value in (("level", level), ("type", kind), ("size", size)):
            (folder / name).write_text(f"{value}\n")
    assert calibration.first_cache(tmp_path) == 48 << 10


def test_threads_of_one_core_share_its_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def allowed(process: int) -> set[int]:
        return {0, 1, 2, 5}

    monkeypatch.setattr(os, "sched_getaffinity", allowed, raising=False)
    assert calibration.cores_of(4, tmp_path) == 4, "nothing is said"
    for number, shared in ((0, "0,4"), (1, "1,5"), (2, "2,6"), (5, "1,5")):
        for index, level in enumerate(("1", "2", "3")):
            folder = tmp_path / f"cpu{number}" / "cache" / f"index{index}"
            folder.mkdir(parents=True)
            (folder / "level").write_text(f"{level}\n")
            (folder / "shared_cpu_list").write_text("0-7\n" if level == "3" else f"{shared}\n")
    assert [calibration.cores_of(threads, tmp_path) for threads in (1, 2, 4)] == [1, 2, 3]


def test_the_variable_stands_in_for_the_cpu(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = written(replace(HOST, name="mine", processors=64), tmp_path / "d.toml")
    monkeypatch.setenv("FUSE_OPT_DEVICE", str(path))
    assert find_device("cpu").processors == 64 and find_device("h100").processors == 132
    monkeypatch.setenv("FUSE_OPT_DEVICE", str(tmp_path / "none.toml"))
    with pytest.raises(ValueError, match=r"\$FUSE_OPT_DEVICE: .*none.toml: No such file"):
        find_device("cpu")
    folder = Path(calibration.__file__).parents[2] / "passes" / "devices"
    monkeypatch.setenv("FUSE_OPT_DEVICE", str(folder / "device_h100.toml"))
    with pytest.raises(ValueError, match="expected the figures of a CPU"):
        find_device("cpu")


def test_refusals(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["calibrate", "x.mlir"]) == 2
    assert "calibrate: expected no FILE, got x.mlir" in capsys.readouterr().err
    assert main(["dispatch"]) == 2
    assert "dispatch: expected a FILE" in capsys.readouterr().err
