"""What `compile(target="cuda")` asks the device: on the stand-in 4 processors, 99 KiB for a block.

python tests/support/cuda_device_scenarios.py
"""

from __future__ import annotations

import gc
import threading
import warnings

import numpy as np
from cuda_running import counters, normal

import fuse_opt
from fuse_opt.lowering.emit.cuda import build_cuda_program
from fuse_opt.lowering.program import GridLaunch, Segment
from fuse_opt.runtime.device.driver import open_device
from fuse_opt.tools.compiler.api import evaluate

SOFTMAX = """func.func @main(%x: tensor<5x50000xf32>) -> tensor<5x50000xf32> {
  %r = graph.softmax %x : (tensor<5x50000xf32>) -> tensor<5x50000xf32>
  func.return %r : tensor<5x50000xf32>
}"""


def asked() -> str:
    """Figures of the driver are on the module, and a row that does not fit a block's shared memory is streamed."""
    device = open_device()
    figures = device.figures()
    program = fuse_opt.compile(SOFTMAX, target="cuda")
    text = str(program.module)
    for name in ("processors", "shared_memory", "cache_bytes"):
        assert figures[name] > 0 and f"{name} = {figures[name]} : i64" in text, (figures, text[:400])
    x = normal(5, 50000)
    np.testing.assert_allclose(program(x), evaluate(SOFTMAX, x), 1e-5, 1e-7)
    given = 'builtin.module attributes {fused.device = {name = "a100", processors = 108 : i64}} {' + SOFTMAX + "}"
    assert 'name = "a100"' in str(fuse_opt.compile(given, target="cuda").module), "what is named stays"
    if counters() is None:
        return f"{device.name}: {figures}"
    larger = "processors = 4 : i64, shared_memory = 232448 : i64"
    there = fuse_opt.compile(given.replace("processors = 108 : i64", larger), target="cuda")
    assert _asked_for(there) >= 200000 > figures["shared_memory"] >= _asked_for(program)
    assert figures["bandwidth"] == 2 * 5001000 * 1000 * 32
    return f"{figures['processors']} processors, {figures['shared_memory']} bytes of shared memory"


def _asked_for(program: fuse_opt.CompiledProgram) -> int:
    """The most bytes of shared memory that a launch asks for."""
    text = build_cuda_program(program.module)
    launches = [launch for step in text.steps if isinstance(step, Segment) for launch in step.launches]
    return max(launch.shared for launch in launches if isinstance(launch, GridLaunch))


LARGE = """func.func @main(%x: tensor<64x65536xf32>) -> tensor<64x65536xf32> {
  %s = graph.sort %x {axis = 1 : i64} : (tensor<64x65536xf32>) -> tensor<64x65536xf32>
  %r = graph.exp %s : (tensor<64x65536xf32>) -> tensor<64x65536xf32>
  func.return %r : tensor<64x65536xf32>
}"""


def ended_thread() -> str:
    """What belongs to programs whose opening thread has ended is freed where they are dropped, without a word."""
    programs: list[fuse_opt.CompiledProgram] = []
    opener = threading.Thread(target=lambda: programs.append(fuse_opt.compile(LARGE, target="cuda")))
    opener.start()
    opener.join()
    device = open_device()
    with device.active():
        before = device.driver.mem_get_info()[0]
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            programs.clear()
            gc.collect()
        freed = device.driver.mem_get_info()[0] - before
    assert freed >= 64 * 65536 * 4 and not device.dropped, freed
    return f"{freed} bytes"


if __name__ == "__main__":
    print(f"ended_thread: {ended_thread()}")  # before any other thread opens the device
    print(f"asked: {asked()}")
