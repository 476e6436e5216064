"""Programs that are bound to a caller's memory and stream, on the stand-in driver or a device.

python tests/support/cuda_caller_scenarios.py NAME...   # the functions of these names, each printing a line; all without a name
"""

from __future__ import annotations

import ctypes
import sys
from collections.abc import Callable
from math import prod
from typing import Any

import numpy as np
from ir_testing import parse

from fuse_opt.runtime.cuda.caller_program import CallerProgram
from fuse_opt.runtime.device.driver import open_device
from fuse_opt.tools.compiler import api
from fuse_opt.tools.compiler.device_sizes import compile_sized_on_device

TEXT = """
func.func @main(%x: tensor<8x24xf32>) -> (tensor<8x24xf32>, tensor<8xf32>) {
  %e = graph.exp %x : (tensor<8x24xf32>) -> tensor<8x24xf32>
  %s = graph.cumulative_sum %e {axis = 1 : i64} : (tensor<8x24xf32>) -> tensor<8x24xf32>
  %n = graph.negative %s : (tensor<8x24xf32>) -> tensor<8x24xf32>
  %r = graph.sum %n {axes = array<i64: 1>} : (tensor<8x24xf32>) -> tensor<8xf32>
  func.return %n, %r : tensor<8x24xf32>, tensor<8xf32>
}
"""
ROWS = 'tensor<?x24xf32> {graph.dims = ["rows", ""]}'


def pieces_on_streams() -> str:
    """Two bindings on two streams: the memory is ours, and results are right each time, replayed graphs too."""
    native = api.compile(parse(TEXT), target="cuda", whole=True).native
    assert isinstance(native, CallerProgram)
    program, device = native.program, open_device()
    driver: Any = device.driver
    random = np.random.default_rng(0)
    with device.active():
        streams = [driver.Stream(), driver.Stream()]
        bindings = [native.bind() for _ in streams]
        memory = [[_block(driver, buffer) for buffer in program.buffers] for _ in streams]
        for _ in range(4):
            for stream, binding, blocks in zip(streams, bindings, memory, strict=True):
                x: Any = random.standard_normal((8, 24)).astype(np.float32)
                driver.memcpy_htod(blocks[0], x)
                binding.table[:] = [int(block) for block in blocks]
                binding.check()
                for piece in binding.pieces:
                    piece(stream.handle)
                stream.synchronize()
                wanted: Any = -np.cumsum(np.exp(x), axis=1)
                for result, value in zip(program.results, parts_of(wanted), strict=True):
                    found = np.empty(value.shape, np.float32)
                    driver.memcpy_dtoh(found, blocks[result.index])
                    np.testing.assert_allclose(found, value, rtol=1e-4)
    assert native.compiled_calls[0] == frozenset(range(len(program.steps)))
    return f"{native.stats.graph_launches} graphs, {native.stats.kernel_launches} launches"


def context_of_others() -> str:
    """The context is current, as PyTorch makes it, without PyCUDA knowing."""
    native = api.compile(parse(TEXT), target="cuda", whole=True).native
    assert isinstance(native, CallerProgram)
    device = open_device()
    driver: Any = device.driver
    with device.active():
        stream, binding = driver.Stream(), native.bind()
        blocks = [_block(driver, buffer) for buffer in native.program.buffers]
        driver.memcpy_htod(blocks[0], np.ones((8, 24), np.float32))
        binding.table[:] = [int(block) for block in blocks]
        place = int(stream.handle)
    library = ctypes.CDLL("libcuda.so.1")
    assert library.cuCtxSetCurrent(ctypes.c_void_p(device.context.handle)) == 0
    for _ in range(4):
        for piece in binding.pieces:
            piece(place)
    assert library.cuCtxSetCurrent(None) == 0
    with device.active():
        stream.synchronize()
        found = np.empty((8, 24), np.float32)
        driver.memcpy_dtoh(found, blocks[native.program.results[0].index])
    np.testing.assert_allclose(found, -np.cumsum(np.full((8, 24), np.e, np.float32), axis=1), rtol=1e-4)
    return f"{len(binding.pieces)} pieces"


def pieces_for_any_rows() -> str:
    """One text for all rows: programs for some share its kernels, and their bindings are apart."""
    text = TEXT.replace("8x24", "?x24").replace("<8xf32>", "<?xf32>").replace("%x: tensor<?x24xf32>", f"%x: {ROWS}")
    text = text.replace("graph.cumulative_sum %e {axis = 1 : i64}", "graph.tanh %e")
    programs = compile_sized_on_device(parse(text), False, lambda step: False)
    device = open_device()
    driver: Any = device.driver
    random, rows_met = np.random.default_rng(0), (5, 1, 700, 5, 4096)
    launches = 0
    for rows in rows_met:
        native = programs.at({"rows": rows})
        assert isinstance(native, CallerProgram)
        with device.active():
            stream, binding = driver.Stream(), native.bind()
            blocks = [_block(driver, buffer) for buffer in native.program.buffers]
            x: Any = random.standard_normal((rows, 24)).astype(np.float32)
            driver.memcpy_htod(blocks[0], x)
            binding.table[:] = [int(block) for block in blocks]
            for _ in range(3):
                for piece in binding.pieces:
                    piece(stream.handle)
            stream.synchronize()
            for result, value in zip(native.program.results, parts_of(-np.tanh(np.exp(x))), strict=True):
                found = np.empty(value.shape, np.float32)
                driver.memcpy_dtoh(found, blocks[result.index])
                np.testing.assert_allclose(found, value, rtol=1e-3)
        launches = native.stats.kernel_launches
    assert launches == 15, "counts of one text are not those of all of its programs"
    assert [one.name for one in programs.symbols] == ["rows"]
    return f"{len(rows_met)} sizes, {launches} launches"


def parts_of(wanted: Any) -> list[Any]:
    """The results: rows, and their sums."""
    return [wanted, wanted.sum(1)]


def _block(driver: Any, buffer: Any) -> Any:
    block = driver.mem_alloc(max(prod(buffer.shape) * 8, 512))
    if buffer.data is not None:
        driver.memcpy_htod(block, buffer.data.reshape(-1).view(np.uint8))
    return block


SCENARIOS: dict[str, Callable[[], str]] = {
    each.__name__: each for each in (pieces_on_streams, pieces_for_any_rows, context_of_others)
}

if __name__ == "__main__":
    for name in sys.argv[1:] or SCENARIOS:
        print(f"{name}: {SCENARIOS[name]()}", flush=True)
