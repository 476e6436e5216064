"""Programs on a CUDA device, through PyCUDA: checks that hold on a GPU and on the stand-in driver of `fake_cuda`.

    python tests/support/cuda_scenarios.py NAME...   # runs the functions of these names, each printing a line; all without a name

They run in a process of their own where the driver is a stand-in, which must be there before PyCUDA is imported.
"""

from __future__ import annotations

import ctypes
import gc
import sys
import time
import warnings
from collections import deque
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any
from unittest.mock import patch

import numpy as np
from cuda_array_scenarios import (
    device_arrays,
    donated_arguments,
    frozen_arguments,
    narrow_floats,
    results,
    streams,
    targets_in_common_memory,
    torch_tensors,
)
from cuda_library_scenarios import LIBRARY_SCENARIOS
from cuda_running import (
    EXAMPLES,
    SCALED,
    Array,
    chain,
    chain_value,
    changes,
    compiled,
    counters,
    driver_calls,
    listed,
    normal,
    on_device,
    shrunk,
)
from cuda_sized_scenarios import SIZED_SCENARIOS
from cuda_sparse_scenarios import SPARSE_SCENARIOS
from cuda_stream_scenarios import STREAM_SCENARIOS
from cuda_whole_scenarios import WHOLE_SCENARIOS

from fuse_opt.lowering.program import GridLaunch, Segment
from fuse_opt.lowering.program.float_formats import narrow, widen
from fuse_opt.runtime.backends.registry import unavailable_backends
from fuse_opt.runtime.device import kernel_graphs
from fuse_opt.tools.commands.measuring import difference, example_inputs
from fuse_opt.tools.compiler.api import evaluate
from fuse_opt.tools.compiler.pipeline import DEFAULT_PIPELINE


def examples() -> str:
    """All examples, three times each: launched, captured, replayed."""
    kernels = 0
    for path in EXAMPLES:
        text = shrunk(path)
        program, inputs = compiled(text), example_inputs(text)
        expected = evaluate(text, *(a.copy() for a in inputs))
        for _ in range(3):
            found = program(*(a.copy() for a in inputs))
            for a, b in zip(listed(found), listed(expected), strict=True):
                assert difference(a, b) < 2e-5, path.stem
        stats = program.stats
        made = stats.graph_captures + stats.graphs_made
        assert stats.graph_launches == 2 * made and not stats.captures_refused, path.stem
        assert made or stats.kernel_launches == 3 * stats.launches, path.stem
        kernels += stats.kernels
    return f"{len(EXAMPLES)} examples, {kernels} kernels"


def twelve_kernels() -> str:
    """Twelve kernels are one graph launch in every call after the first, and nothing waits in any of them."""
    program = compiled(chain(12), "unfused")
    assert program.stats.launches == program.stats.kernels * 3 == 12, program.stats
    waits = ("cuStreamSynchronize", "cuCtxSynchronize", "cuEventSynchronize", "cuMemFree_v2", "cuMemAlloc_v2",
             "cuMemcpyDtoHAsync_v2", "cuMemcpyDtoH_v2", "cuMemcpyHtoDAsync_v2", "cuMemcpyHtoD_v2")  # fmt: skip
    with on_device() as (_, gpuarray):
        x, y = gpuarray.to_gpu(normal(64, 33)), gpuarray.empty((64, 33), np.float32)
        expected = chain_value(x.get(), 12)
        for call in range(5):
            y.set(np.full_like(expected, 7))
            before, waited = program.stats, driver_calls(*waits)
            launches, graphs = driver_calls("cuLaunchKernelEx"), driver_calls("cuGraphLaunch")
            (found,) = (program(x, out=[y]),)
            assert found is y
            wanted = {"calls": 1, "kernel_launches": 12} if call == 0 else {"calls": 1, "graph_launches": 1}
            wanted |= {"graphs_made": 1} if call == 1 else {}
            assert changes(before, program.stats) == wanted, (call, changes(before, program.stats))
            assert driver_calls(*waits) == waited, "the host waited, or copied"
            if counters() and call > 1:
                assert driver_calls("cuLaunchKernelEx") == launches
                assert [b - a for a, b in zip(graphs, driver_calls("cuGraphLaunch"), strict=True)] == [1]
                assert counters().fake_cuda_waiting() > 0, "nothing has run yet"
            np.testing.assert_allclose(y.get(), expected, 1e-5, 1e-6)
    return f"{program.stats.launches} launches, then 1 graph launch a call, {program.stats.synchronizations} synchronisations"


def changing_pointers() -> str:
    """From the second call on all is one launch of a graph, whose kernels get new arguments where no graph has the addresses."""
    program = compiled(chain(5), "unfused")
    with on_device() as (_, gpuarray), patch.multiple(kernel_graphs, _MOST_GRAPHS=8, _IDLE=0):
        outs = [gpuarray.empty((64, 33), np.float32) for _ in range(11)]
        inputs = [gpuarray.to_gpu(normal(64, 33, seed=seed)) for seed in range(3)]
        for turn in range(4):
            for number, out in enumerate(outs):
                x = inputs[number % 3]
                out.set(np.full((64, 33), -5, np.float32))
                program(x, out=[out])
                np.testing.assert_allclose(out.get(), chain_value(x.get(), 5), 1e-5, 1e-6, err_msg=f"{turn}.{number}")
        stats = program.stats
        assert (stats.graph_launches, stats.kernel_launches, stats.graph_captures) == (43, 5, 0), stats
        assert stats.graphs_made == 9 and 40 <= stats.graph_updates <= 43 * 5, stats
        dropped = [program(inputs[0]) for _ in range(2)]
        del dropped
        before, y = program.stats, program(inputs[0])
        for _ in range(5):
            y = program(inputs[0])  # the one before is dropped when this one is there: two addresses in turns
        assert changes(before, program.stats)["graph_launches"] >= 4, changes(before, program.stats)
        np.testing.assert_allclose(y.get(), chain_value(inputs[0].get(), 5), 1e-5, 1e-6)
    return f"{stats.graphs_made} graphs, {stats.graph_updates} updates, {stats.graph_launches} graph launches"


def rotating_results() -> str:
    """Twenty results that live in turns: each address has its graph, made without a capture; one kernel needs none."""
    counts: list[tuple[int, int, int]] = []
    for length in (1, 5):
        program, live = compiled(chain(length, "8x16xf32"), "unfused"), deque[Any](maxlen=20)
        with on_device() as (_, gpuarray):
            x = gpuarray.to_gpu(normal(8, 16))
            for _ in range(700):
                live.append(program(x))
            for result in live:
                np.testing.assert_allclose(result.get(), chain_value(x.get(), length), 1e-5, 1e-6)
        stats = program.stats
        counts.append((stats.graph_captures, stats.graphs_made, stats.graph_updates))
    none, (captures, made, updates) = counts
    assert none == (0, 0, 0) and captures == 0 and 0 < made <= 22 and updates <= 2 * 21 + 21, counts
    return f"{captures} captures, {made} graphs, {updates} updates"


def outliving_results() -> str:
    """Results are their callers', also when the program is gone; memory goes back to the device with the last of them."""
    with on_device() as (_, gpuarray):
        program, x = compiled(chain(1, "8x16xf32")), gpuarray.to_gpu(normal(8, 16))
        kept, dropped = program(x), program(x)
        freed = driver_calls("cuMemFree_v2")
        del program, dropped
        gc.collect()
        others = [gpuarray.to_gpu(normal(8, 16, seed=seed)) for seed in range(8)]
        np.testing.assert_allclose(kept.get(), chain_value(x.get(), 1), 1e-5, 1e-6)
        del kept, others
        gc.collect()
        assert not counters() or driver_calls("cuMemFree_v2")[0] >= freed[0] + 2 + 8, (
            freed,
            driver_calls("cuMemFree_v2"),
        )
    return "one result"


CALLS = """func.func @main(%x: tensor<6x5xi32>, %y: tensor<5x4xi32>) -> (tensor<6x4xi32>, tensor<6x4xi32>) {
  %a = graph.negative %x : (tensor<6x5xi32>) -> tensor<6x5xi32>
  %m = graph.matmul %a, %y : (tensor<6x5xi32>, tensor<5x4xi32>) -> tensor<6x4xi32>
  %r = graph.abs %m : (tensor<6x4xi32>) -> tensor<6x4xi32>
  func.return %m, %r : tensor<6x4xi32>, tensor<6x4xi32>
}"""


def host_calls() -> str:
    """What no device library does, nor another op in its place, runs on the host, between copies that are counted."""
    program = compiled(CALLS, [name for name in DEFAULT_PIPELINE if name != "keep-on-device"])
    x, y = np.arange(30, dtype=np.int32).reshape(6, 5), np.arange(20, dtype=np.int32).reshape(5, 4) - 7
    with on_device() as (_, gpuarray):
        dx, dy = gpuarray.to_gpu(x), gpuarray.to_gpu(y)
        for _ in range(3):
            before = program.stats
            m, r = program(dx, dy)
            change = changes(before, program.stats)
            assert (change["host_calls"], change["synchronizations"]) == (1, 1), change
            assert (change["bytes_to_host"], change["bytes_to_device"]) == (x.nbytes + y.nbytes, 6 * 4 * 4), change
            np.testing.assert_array_equal(m.get(), -x @ y)
            np.testing.assert_array_equal(r.get(), abs(x @ y))
    return "one host call"


PRODUCTS: list[tuple[tuple[int, ...], tuple[int, ...], int, int, str]] = [
    ((5, 7), (7, 3), 0, 0, "f32"), ((7, 5), (7, 3), 1, 0, "f32"), ((5, 7), (3, 7), 0, 1, "f64"),
    ((7, 5), (3, 7), 1, 1, "f32"), ((2, 3, 5, 7), (7, 4), 0, 0, "f16"), ((2, 3, 5, 7), (2, 3, 7, 4), 0, 0, "bf16"),
    ((2, 3, 7, 5), (7, 4), 1, 0, "f32"), ((5, 7), (6, 7, 4), 0, 0, "f32"), ((6, 5, 7), (6, 4, 7), 0, 1, "f32"),
    ((2, 1, 5, 7), (1, 3, 7, 4), 0, 0, "f32"), ((7,), (7, 4), 0, 0, "f32"), ((5, 7), (7,), 0, 0, "f32"),
    ((7,), (7,), 0, 0, "f64"), ((5, 0), (0, 3), 0, 0, "f32"),
]  # fmt: skip


def given(array: Array, dtype: str) -> Array:
    return narrow(array, "bf16") if dtype == "bf16" else array.astype(f"f{int(dtype[1:]) // 8}")


def products() -> str:
    """Matrix products by cuBLAS, as np.matmul does them; those that are no plain stack become what is one, or a kernel."""
    assert not unavailable_backends("cuda").get("cublas")
    for a, b, transpose_a, transpose_b, dtype in PRODUCTS:
        x, y = normal(*a), normal(*b, seed=1)
        expected = np.matmul(x.swapaxes(-1, -2) if transpose_a else x, y.swapaxes(-1, -2) if transpose_b else y)
        ta, tb, tr = (f"tensor<{''.join(f'{n}x' for n in s)}{dtype}>" for s in (a, b, np.shape(expected)))
        flags = (
            f"{{transpose_lhs = {str(bool(transpose_a)).lower()}, transpose_rhs = {str(bool(transpose_b)).lower()}}}"
        )
        program = compiled(
            f"func.func @main(%x: {ta}, %y: {tb}) -> {tr} {{\n%r = graph.matmul %x, %y {flags} : ({ta}, {tb}) -> {tr}\n"
            f"func.return %r : {tr}\n}}"
        )
        for _ in range(3):
            found = program(given(x, dtype), given(y, dtype))
            found = widen(found) if dtype == "bf16" else found
            tolerance = {"bf16": 3e-2, "f16": 5e-3}.get(dtype, 1e-5)
            np.testing.assert_allclose(found, expected, tolerance, tolerance, err_msg=f"{a} {b} {dtype}")
        assert program.stats.host_ops == program.stats.host_calls == 0, (a, b)
    return f"{len(PRODUCTS)} products"


def threads() -> str:
    """Calls of one program from several threads, which have no context of their own."""
    program = compiled(SCALED)
    inputs = [(normal(8, 33, seed=seed), normal(33, seed=seed + 10)) for seed in range(4)]

    def call(number: int) -> Any:
        return program(*inputs[number % 4])

    with ThreadPoolExecutor(4) as pool:
        for number, found in enumerate(pool.map(call, range(32))):
            x, b = inputs[number % 4]
            np.testing.assert_allclose(found, np.tanh(x + b), 1e-5, 1e-6)
        dropped = [compiled(chain(3, "2048x2048xf32"), "unfused")]
        arena = int(dropped[0]._arena)  # pyright: ignore[reportPrivateUsage]
        assert is_allocated(arena)
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            pool.submit(dropped.clear).result()
            gc.collect()
    assert not is_allocated(arena), "its arena was not freed"
    return f"{program.stats.calls} calls"


def is_allocated(address: int) -> bool:
    """Whether the driver knows an address as memory of this process's: how much is free changes with what others do."""
    start, size = ctypes.c_uint64(), ctypes.c_size_t()
    with on_device():
        ask = ctypes.CDLL("libcuda.so.1").cuMemGetAddressRange_v2
        return ask(ctypes.byref(start), ctypes.byref(size), ctypes.c_uint64(address)) == 0


KERNEL_OF_ANY_NAME = """builtin.module attributes {gpu.container_module} {
  "gpu.module"() <{sym_name = "kernels"}> ({
    "gpu.func"() <{function_type = (memref<8xf32>, memref<8xf32>) -> (), known_block_size = array<i32: 8, 1, 1>}> ({
    ^bb0(%a: memref<8xf32>, %r: memref<8xf32>):
      %t = "gpu.thread_id"() <{dimension = #gpu<dim x>}> : () -> index
      %v = memref.load %a[%t] : memref<8xf32>
      %n = arith.negf %v : f32
      memref.store %n, %r[%t] : memref<8xf32>
      "gpu.return"() : () -> ()
    }) {sym_name = "class", gpu.kernel} : () -> ()
  }) : () -> ()
  func.func @main(%x: memref<8xf32>, %r: memref<8xf32>) attributes {
      fused.results = [{kind = "buffer", number = 0 : i64, type = memref<8xf32>}]} {
    %one = arith.constant 1 : index
    %eight = arith.constant 8 : index
    gpu.bulk 0 {
      "gpu.launch_func"(%one, %one, %one, %eight, %one, %one, %x, %r)
        <{kernel = @kernels::@class, operandSegmentSizes = array<i32: 0, 1, 1, 1, 1, 1, 1, 0, 0, 0, 0, 2, 0>}>
        : (index, index, index, index, index, index, memref<8xf32>, memref<8xf32>) -> ()
    }
    func.return
  }
}"""


def kernel_names() -> str:
    """A kernel whose name is a word of C."""
    program, x = compiled(KERNEL_OF_ANY_NAME, ""), normal(8)
    np.testing.assert_array_equal(program(x), -x)
    return "class"


SHARED = """func.func @main(%x: tensor<3x20000xf32>) -> tensor<3x20000xf32> {
  %r = fused.kernel(%a = %x : tensor<3x20000xf32>) -> (tensor<3x20000xf32>) attributes {
      schedule = {kind = "row", gpu = {variant = "shared", splits = 1 : i64}}} {
    %m = graph.max %a {axes = array<i64: 1>, keepdims = true} : (tensor<3x20000xf32>) -> tensor<3x1xf32>
    %s = graph.subtract %a, %m : (tensor<3x20000xf32>, tensor<3x1xf32>) -> tensor<3x20000xf32>
    fused.yield %s : tensor<3x20000xf32>
  }
  func.return %r : tensor<3x20000xf32>
}"""


def shared_memory() -> str:
    """A kernel that asks for more shared memory than it may declare."""
    program, x = compiled(SHARED, "plan-memory,bulk-launches"), normal(3, 20000)
    segments = [step for step in program.program.steps if isinstance(step, Segment)]
    (launch,) = (launch for segment in segments for launch in segment.launches)
    assert isinstance(launch, GridLaunch) and launch.shared > 48 << 10, launch
    for _ in range(3):
        np.testing.assert_array_equal(program(x), x - x.max(1, keepdims=True))
    return f"{launch.shared} bytes"


def five_warps() -> str:
    """A row of whole turns of five warps, whose sums are no halves of each other."""
    t, v = "tensor<1025x2560xbf16>", "tensor<2560xbf16>"
    text = (
        f"func.func @main(%x: {t}, %s: {v}, %b: {v}) -> {t} {{\n"
        f"%r = graph.layer_norm %x, %s, %b : ({t}, {v}, {v}) -> {t}\nfunc.return %r : {t}\n}}"
    )
    program = compiled(text)
    assert "160 threads a row" in program.source
    inputs = [narrow(normal(*shape, seed=k), "bf16") for k, shape in enumerate(((1025, 2560), (2560,), (2560,)))]
    np.testing.assert_allclose(widen(program(*inputs)), widen(evaluate(text, *inputs)), 2e-2, 2e-2)
    return "160 threads"


def bound_calls() -> str:
    """Calls with fixed arrays, of the device and of the host, between other calls of the program."""
    program = compiled(chain(5), "unfused")
    with on_device() as (_, gpuarray):
        x, y = gpuarray.to_gpu(normal(64, 33)), gpuarray.empty((64, 33), np.float32)
        host = normal(64, 33, seed=1)
        on_device_, on_host = program.bind(x, out=[y]), program.bind(host)
        assert program.stats.calls == 0
        for turn in range(4):
            x.set(normal(64, 33) + turn)
            host += 1
            found = program(normal(64, 33, seed=2))
            assert on_device_() is y
            np.testing.assert_allclose(y.get(), chain_value(x.get(), 5), 1e-5, 1e-6)
            np.testing.assert_allclose(on_host(), chain_value(host, 5), 1e-5, 1e-6)
            np.testing.assert_allclose(found, chain_value(normal(64, 33, seed=2), 5), 1e-5, 1e-6)
    return f"{program.stats.calls} calls"


def launch_costs() -> str:
    """Host microseconds of a call: not a check, a figure for reports."""
    program = compiled(chain(12), "unfused")
    with on_device() as (_, gpuarray):
        x, y = gpuarray.to_gpu(normal(64, 33)), gpuarray.empty((64, 33), np.float32)
        bound, costs = program.bind(x, out=[y]), list[float]()
        for call in (lambda: program(x, out=[y]), bound):
            times: list[float] = []
            for _ in range(50):
                started = time.perf_counter()
                call()
                times.append(time.perf_counter() - started)
            costs.append(1e6 * sorted(times)[25])
            y.get()
    return f"{costs[0]:.1f} us a call, {costs[1]:.1f} us a bound one"


SCENARIOS: dict[str, Callable[[], str]] = {
    scenario.__name__: scenario
    for scenario in (
        examples, twelve_kernels, changing_pointers, rotating_results, outliving_results, device_arrays, donated_arguments,
        frozen_arguments, narrow_floats, streams, torch_tensors, host_calls, products, threads, results, targets_in_common_memory,
        kernel_names, shared_memory, five_warps, bound_calls, *STREAM_SCENARIOS, *LIBRARY_SCENARIOS, *SPARSE_SCENARIOS,
        *WHOLE_SCENARIOS, *SIZED_SCENARIOS, launch_costs,
    )
}  # fmt: skip


def main(names: Sequence[str]) -> None:
    for name in names or SCENARIOS:
        print(f"{name}: {SCENARIOS[name]()}", flush=True)
    if (library := counters()) is not None:
        assert library.fake_cuda_broken_guards() == 0, "written outside of an array"


if __name__ == "__main__":
    main(sys.argv[1:])
