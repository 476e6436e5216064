"""The device that programs are made for: the one that is there, what is near to it, and processors of older kinds."""

from __future__ import annotations

from pathlib import Path

import pytest
from ir_testing import parse
from stand_in_driver import needs_stand_in, run_script

from fuse_opt.lowering.emit.cuda import emit_cuda
from fuse_opt.passes.devices.device import Device, device_names, find_device, generations, nearest_gpu
from fuse_opt.passes.devices.gpu_attach_device import attach_found, attached_device, device_of, make_for
from fuse_opt.runtime.device.compiler import compile_cuda, find_cuda_compiler
from fuse_opt.runtime.disk_cache import DiskCache
from fuse_opt.tools.compiler.api import optimize

NARROW = """func.func @main(%x: tensor<64x70xbf16>, %y: tensor<64x70xf16>) -> (tensor<64x70xbf16>, tensor<64x70xf16>) {
  %a = graph.softmax %x : (tensor<64x70xbf16>) -> tensor<64x70xbf16>
  %b = graph.gelu %y : (tensor<64x70xf16>) -> tensor<64x70xf16>
  func.return %a, %b : tensor<64x70xbf16>, tensor<64x70xf16>
}"""


@needs_stand_in
def test_the_devices_are_asked() -> None:
    said = run_script("cuda_device_scenarios.py", FAKE_CUDA_DEVICES="2")
    assert said["asked"] == "4 processors, 101376 bytes of shared memory"
    assert said["ended_thread"]
    assert said["several"] == "2 devices"


def test_the_nearest_file() -> None:
    assert nearest_gpu("NVIDIA H200", {}).name == "h200"
    assert nearest_gpu("NVIDIA A100-SXM4-40GB", {"bandwidth": 1555 * 10**9}).name == "a100"
    assert nearest_gpu("Tesla T4", {"bandwidth": 1}).name == "t4"
    assert nearest_gpu("NVIDIA L40S", {"bandwidth": 864 * 10**9, "processors": 142}).name in ("l4", "a100", "h100")
    assert nearest_gpu("another", {"bandwidth": 310 * 10**9, "processors": 38}).name == "t4"


def test_what_the_driver_says_is_on_the_module() -> None:
    module = parse(NARROW)
    figures = {"processors": 98, "shared_memory": 101376, "cache_bytes": 7 << 20, "bandwidth": 0, "max_threads": 1024}
    attach_found(module, "NVIDIA H200 NVL", figures)
    device = device_of(module)
    assert attached_device(module) == "h200"
    assert (device.processors, device.cache_bytes) == (98, 7 << 20)
    assert device.bandwidth == find_device("h200").bandwidth, "not known"
    attach_found(module, "Tesla T4", {})
    make_for(module, "cuda")
    assert device_of(module) == device, "a module that names one keeps it"


def test_what_libraries_may_run_goes_by_the_capability_that_is_there() -> None:
    for name in device_names():
        if (device := find_device(name)).gpu:
            assert generations(dict(device.gpu)["capability"]) == device.features, name
    narrow = {"bandwidth": 360 * 10**9, "processors": 28, "capability": 86}  # nearest to a T4, which has no bf16
    older = {"bandwidth": 616 * 10**9, "processors": 68, "capability": 75}  # nearest to an L4, which has
    found = list[Device]()
    for figures in (narrow, older):
        module = parse(NARROW)
        attach_found(module, "another", figures)
        found.append(device_of(module))
    assert [device.name for device in found] == ["t4", "l4"]
    assert found[0].features == ("sm_70", "sm_75", "sm_80", "sm_86") and found[1].features == ("sm_70", "sm_75")


def test_narrow_floats_compile_for_older_processors(tmp_path: Path) -> None:
    if (compiler := find_cuda_compiler()) is None or 75 not in compiler.architectures:
        pytest.skip("no compiler of CUDA C that knows sm_75")
    module = parse(NARROW)
    make_for(module, "cuda")
    assert compile_cuda(compiler, emit_cuda(optimize(module)), "sm_75", DiskCache(tmp_path)).data
