"""Measured schedules: applied where they were measured, a remark where not, and files that cannot be used refused."""

from __future__ import annotations

import json
import re
from collections.abc import Generator
from pathlib import Path
from typing import Any

import pytest
from ir_testing import apply, parse, text_of

from fuse_opt.dialects.analysis.storage import functions_of
from fuse_opt.dialects.fused import KernelOp
from fuse_opt.passes.devices.this_machine import THIS_MACHINE, Machine
from fuse_opt.passes.remarks import RefusedError, collect
from fuse_opt.passes.scheduling.schedule_kernels import ScheduleKernelsPass
from fuse_opt.passes.scheduling.tuned_lookup import KernelKeys
from fuse_opt.passes.scheduling.tuned_schedules import read_tuned

HERE = Machine("d:here", "c:now")
TEXT = """
func.func @main(%x: tensor<300x400xf32>) -> tensor<300xf32> {
  %r = fused.kernel(%a = %x : tensor<300x400xf32>) -> (tensor<300xf32>) {
    %1 = graph.sum %a {axes = array<i64: 1>} : (tensor<300x400xf32>) -> tensor<300xf32>
    fused.yield %1 : tensor<300xf32>
  }
  func.return %r : tensor<300xf32>
}"""


@pytest.fixture(autouse=True)
def here() -> Generator[None]:
    token = THIS_MACHINE.set(lambda: HERE)
    yield
    THIS_MACHINE.reset(token)


def key() -> str:
    (function,) = functions_of(parse(TEXT))
    (kernel,) = [op for op in function.body.block.ops if isinstance(op, KernelOp)]
    return KernelKeys(function).key(kernel, {}).key


def line(**changed: Any) -> dict[str, Any]:
    settings = {"kind": "row", "lanes": 16}
    found = {"v": 1, "key": key(), "device": "d:here", "code": "c:now", "state": "confirmed", "schedule": settings}
    return {**found, "speedup": [1.1, 1.2, 1.3], **changed}


def scheduled(path: Path) -> tuple[str, str]:
    """The schedule that the kernel gets from a file, and the remarks about it."""
    with collect() as remarks:
        module = apply(parse(TEXT), [ScheduleKernelsPass(tuned=str(path))])
    (kernel,) = [op for op in module.walk() if isinstance(op, KernelOp)]
    assert text_of(apply(module.clone(), [ScheduleKernelsPass(tuned=str(path))])) == text_of(module)
    return str(kernel.schedule), "\n".join(f"{each.code}: {each.message}" for each in remarks)


@pytest.mark.parametrize(
    ("changed", "schedule", "said"),
    [
        ({}, '{kind = "row", lanes = 16 : i64}', "tuned: runs as"),
        ({"code": "c:old"}, '{kind = "row", lanes = 16 : i64}', "tuned-stale: runs as"),
        ({"state": "default"}, '{kind = "row"}', "tuned: keeps its default schedule: nothing was faster"),
        ({"device": "d:other"}, '{kind = "row"}', "untuned: keeps its default schedule: .*:1 is of another machine"),
        ({"key": "k:0"}, '{kind = "row"}', "untuned: keeps its default schedule: it was not measured"),
        ({"schedule": {"kind": "tile"}}, '{kind = "row"}', "untuned: .*:1 cannot be used: it holds a reduction"),
        ({"schedule": {"kind": "row", "x": 1}}, '{kind = "row"}', "tuned-problem: .*:1: entry 'x': expected kind or"),
        ({"schedule": {"kind": "row", "lanes": 3}}, '{kind = "row"}', ":1: entry 'lanes': expected a power of two"),
        ({"v": 2}, '{kind = "row"}', 'tuned-problem: .*:1: expected an object with "v": 1; the line is left out'),
    ],
)
def test_lines(tmp_path: Path, changed: dict[str, Any], schedule: str, said: str) -> None:
    (path := tmp_path / "a.jsonl").write_text(json.dumps(line(**changed)) + "\n")
    found, remarks = scheduled(path)
    assert found == schedule
    assert re.search(said, remarks), remarks


def test_merging_is_by_cat_in_any_order(tmp_path: Path) -> None:
    lines = [json.dumps(line(schedule={"kind": "row", "lanes": n}, speedup=[s])) for n, s in ((16, 1.2), (64, 1.5))]
    lines.append(json.dumps(line(schedule={"kind": "row", "lanes": 32}, device="d:other", speedup=[9.0])))
    for number, order in enumerate(((0, 1, 2), (2, 1, 0), (1, 1, 0, 2, 1))):
        (path := tmp_path / f"{number}.jsonl").write_text("".join(f"{lines[n]}\n" for n in order) + '{"v": 1, "ke')
        assert scheduled(path)[0] == '{kind = "row", lanes = 64 : i64}'
        assert read_tuned(path).problems == (
            f'{path}:{len(order) + 1}: expected an object with "v": 1; the line is left out',
        )
    assert scheduled(tmp_path)[0] == '{kind = "row", lanes = 64 : i64}'


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("{", "t.json:1:2: error: expected JSON, as fuse-tune writes it"),
        ("[]", 't.json:1:1: error: expected "fuse-opt-tuned": 1, got null; run fuse-tune again'),
        ('{"fuse-opt-tuned": 9}', 't.json:1:1: error: expected "fuse-opt-tuned": 1, got 9'),
        (
            '{"fuse-opt-tuned": 1, "device": "d", "code": "c", "kernels": [{"key": 3}]}',
            "entry 'key': expected a text, got 3",
        ),
        (
            '{"fuse-opt-tuned": 1, "device": "d:here", "code": "c:now", "kernels": [\n{"key": "k", "schedule": {"kind": "row", '
            '"lanez": 8}}]}',
            "t.json:2: entry 'lanez': expected kind or one of .*; mend it",
        ),
        (
            '{"fuse-opt-tuned": 1, "device": "d:here", "code": "c:now", "kernels": [{"key": "k", "schedule": {"kind": "row", '
            '"lanes": 3}}]}',
            "t.json:1: entry 'lanes': expected a power of two from 8 to 256, got 3; mend it",
        ),
    ],
)
def test_refused_files(tmp_path: Path, text: str, message: str) -> None:
    (path := tmp_path / "t.json").write_text(text)
    with pytest.raises(RefusedError, match=message):
        apply(parse(TEXT), [ScheduleKernelsPass(tuned=str(path))])
    with pytest.raises(RefusedError, match="none.json': No such file or directory"):
        apply(parse(TEXT), [ScheduleKernelsPass(tuned=str(tmp_path / "none.json"))])


def test_a_file_of_another_program_is_said_to_be_one(tmp_path: Path) -> None:
    whole = {"fuse-opt-tuned": 1, "device": "d:here", "code": "c:now", "kernels": [line(key="k:other")]}
    (path := tmp_path / "t.json").write_text(json.dumps(whole))
    found, remarks = scheduled(path)
    assert found == '{kind = "row"}'
    assert f"{path} is for another program: none of the 1 kernels of '@main' is in it" in remarks


def test_program_files(tmp_path: Path) -> None:
    whole = {"fuse-opt-tuned": 1, "device": "d:here", "code": "c:now", "kernels": [line()]}
    (path := tmp_path / "t.json").write_text(json.dumps(whole))
    assert scheduled(path)[0] == '{kind = "row", lanes = 16 : i64}'
    written = TEXT.replace("(tensor<300xf32>) {", '(tensor<300xf32>) attributes {schedule = {kind = "column"}} {')
    kept = apply(parse(written), [ScheduleKernelsPass(tuned=str(path))])
    assert 'schedule = {kind = "column"}' in text_of(kept)
