"""What `compile(target="cuda")` asks the device: on the stand-in 4 processors, 99 KiB for a block.

python tests/support/cuda_device_scenarios.py   # with FAKE_CUDA_DEVICES=2 several, too
"""

from __future__ import annotations

import gc
import threading
import warnings
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from importlib import import_module
from typing import Any

import numpy as np
from cuda_running import SCALED, counters, normal, raises

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


def several() -> str:
    """Programs for several devices in one process, called in turns and at once; with one device there is one place to be."""
    count = open_device(0).library.count
    if count == 1:
        return "1 device"
    gpuarray: Any = import_module("pycuda.gpuarray")
    programs = [fuse_opt.compile(SCALED, target=f"cuda:{number}") for number in range(2)]
    x, b = normal(8, 33), normal(33, seed=1)
    wanted = np.tanh(x + b)

    def call(number: int) -> Any:
        return programs[number % 2](x, b)

    with ThreadPoolExecutor(4) as pool:
        for found in pool.map(call, range(32)):
            np.testing.assert_allclose(found, wanted, 1e-5, 1e-6)
    arrays = list[list[Any]]()
    for number in range(2):
        with open_device(number).active():
            arrays.append([gpuarray.to_gpu(x), gpuarray.to_gpu(b)])
            assert fuse_opt.compile(SCALED, target="cuda").stats.launches == 1
            assert open_device() is open_device(number), "the one whose context is current"
    for _ in range(3):  # from the second call on the short way
        for number, program in enumerate(programs):
            found = program(*arrays[number])
            assert open_device(0).library.device_of(int(found.gpudata)) == number
            with open_device(number).active():
                np.testing.assert_allclose(found.get(), wanted, 1e-5, 1e-6)
            assert program(*arrays[number], out=found) is found
            native: Any = program.native
            bound = native.bind(*arrays[number], out=[found])
            for current in (number, 1 - number):
                with open_device(number).active():
                    found.set(np.full_like(wanted, 7))
                with open_device(current).active():
                    assert bound() is found
                with open_device(number).active():
                    np.testing.assert_allclose(found.get(), wanted, 1e-5, 1e-6)
            for mixed in ((arrays[1 - number][0], arrays[number][1]), (arrays[number][0], arrays[1 - number][1])):
                raises(ValueError, f"expected an array on device {number}, got one on device {1 - number}",
                       partial(program, *mixed))  # fmt: skip
            raises(ValueError, f"out.0.: expected an array on device {1 - number}, got one on device {number}",
                   partial(programs[1 - number], *arrays[1 - number], out=found))  # fmt: skip
    there = fuse_opt.compile(SCALED, target=f"cuda:{count}")
    raises(RuntimeError, f"cannot run it here: there is no CUDA device {count}: the driver counts {count}", there)
    for wrong in ("cuda:", "cuda:x", "cuda:-1", "cpu:0"):
        raises(ValueError, f"unknown target '{wrong}'; expected one of cpu, cuda, reference, or cuda:0",
               partial(fuse_opt.compile, SCALED, target=wrong))  # fmt: skip
    return f"{count} devices"


if __name__ == "__main__":
    print(f"ended_thread: {ended_thread()}")  # before any other thread opens the device
    print(f"asked: {asked()}")
    print(f"several: {several()}")
