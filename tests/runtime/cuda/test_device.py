"""On a real device: `pytest -m gpu`. The checks are those that run elsewhere on a stand-in for the driver."""

from __future__ import annotations

import cuda_device_scenarios
import cuda_gpu_op_scenarios
import pytest
from cuda_scenarios import SCENARIOS

from fuse_opt.runtime.device.compiler import CudaCompileError, find_cuda_compiler
from fuse_opt.runtime.device.driver import open_device
from fuse_opt.runtime.device.driver_library import CudaUnavailable


def why_not() -> str:
    try:
        open_device()
        return "" if find_cuda_compiler() else "no nvcc and no NVRTC"
    except (CudaUnavailable, CudaCompileError, ValueError) as error:
        return str(error)


pytestmark = [pytest.mark.gpu, pytest.mark.skipif(bool(why_not()), reason=f"no GPU to run on: {why_not()}")]


ALL = {
    **SCENARIOS,
    **cuda_gpu_op_scenarios.SCENARIOS,
    "asked": cuda_device_scenarios.asked,
    "several": cuda_device_scenarios.several,
}


@pytest.mark.parametrize("name", list(ALL))
def test_scenario(name: str) -> None:
    print(f"{name}: {ALL[name]()}")
