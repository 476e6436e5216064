"""Entries of schedules that follow from what a device's record says of a processor."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from ir_testing import apply, kernels, parse, text_of
from xdsl.dialects.builtin import StringAttr

from fuse_opt.dialects.fused.knobs import KNOBS
from fuse_opt.passes.devices import device as devices
from fuse_opt.passes.devices.device import find_device
from fuse_opt.passes.scheduling.processor_entries import processor_entries

RECORD = Path(devices.__file__).parent / "device_cpu.toml"
SOFTMAX = """
func.func @main(%x: tensor<8x600xf32>) -> tensor<8x600xf32> {
  %0 = graph.softmax %x {axis = 1 : i64} : (tensor<8x600xf32>) -> tensor<8x600xf32>
  func.return %0 : tensor<8x600xf32>
}"""


def schedule(path: Path) -> dict[str, object]:
    passes = ["decompose", "fuse-to-fixpoint", f'schedule-kernels{{device="{path}"}}']
    (kernel,) = kernels(apply(parse(SOFTMAX), passes))
    assert kernel.schedule is not None
    return {name: str(value) for name, value in kernel.schedule.data.items()}


@pytest.mark.parametrize("kind", sorted({kind for knob in KNOBS for kind in knob.kinds}))
def test_the_record_of_a_cpu_says_what_holds_without_entries(kind: str) -> None:
    assert processor_entries(kind, find_device("cpu")) == {}


@pytest.mark.parametrize(
    ("line", "entry"),
    [
        ("window = 150 => window = 300", {"window": "300 : i64"}),
        ("first_cache_bytes = 49152 => first_cache_bytes = 32768", {"lent": "682 : i64"}),
    ],
)
def test_what_a_record_says_otherwise_is_an_entry(line: str, entry: dict[str, str], tmp_path: Path) -> None:
    old, new = line.split(" => ")
    text = RECORD.read_text()
    assert old in text
    (path := tmp_path / "own.toml").write_text(text.replace(old, new))
    assert schedule(path) == {"kind": '"row"', **entry}


def test_tiles_of_products_are_cut_for_the_vectors_of_the_record() -> None:
    device, own = find_device("cpu"), find_device("avx2")
    factors = (*device.factors, ("copied_rows", own.factor("copied_rows")))
    assert own == replace(device, name="avx2", vector_bytes=32, features=("avx2",), factors=factors)
    assert own.factor("copied_rows") > 1 == device.factor("copied_rows")
    found = {kind: processor_entries(kind, own) for kind in ("matmul", "row", "conv", "attention")}
    registers, tiles = {"register_bits": 256}, {"tile_bits": 256}
    assert found == {"matmul": tiles, "row": registers, "conv": tiles | registers, "attention": tiles}


@pytest.mark.parametrize(("element", "device", "found"), [
    ("bf16", "avx2", "narrow"), ("f16", "avx2", "narrow"), ("f32", "avx2", None), ("bf16", "cpu", None),
])  # fmt: skip
def test_narrow_numbers_are_looked_up_sooner_where_registers_are_narrow(
    element: str, device: str, found: str | None
) -> None:
    t = f"tensor<9000x{element}>"
    text = f"func.func @main(%x: {t}) -> {t} {{\n  %y = graph.gelu %x : ({t}) -> {t}\n  func.return %y : {t}\n}}"
    module = apply(parse(text), ["fuse-elementwise", "wrap-kernels", f"schedule-kernels{{device={device}}}"])
    (kernel,) = kernels(module)
    entry = kernel.schedule.data.get("table") if kernel.schedule else None
    assert entry == (None if found is None else StringAttr(found))
    lowered = text_of(apply(module, ["convert-fused-to-loops"]))
    assert ("fo_look_up" in lowered) == (found is not None)
