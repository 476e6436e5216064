"""Programs on a CUDA device where a mistake would show on a real one alone: whose stream waits for whose, odd addresses."""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Generator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import Any

import numpy as np
from cuda_foreign import Exported, Foreign
from cuda_running import SCALED, Array, chain, chain_value, changes, compiled, counters, driver_calls, normal, on_device

from fuse_opt.runtime.device.driver_library import THREAD_STREAM

SOFTMAX = """func.func @main(%x: tensor<8x128xf32>) -> tensor<8x128xf32> {
  %r = graph.softmax %x {axis = 1 : i64} : (tensor<8x128xf32>) -> tensor<8x128xf32>
  func.return %r : tensor<8x128xf32>
}"""


def softmax(x: Array) -> Array:
    power = np.exp(x - x.max(1, keepdims=True))
    return power / power.sum(1, keepdims=True)


def driver_function(name: str, *types: Any) -> Callable[..., None]:
    """Of the driver library, for streams that PyCUDA does not know."""
    function = getattr(ctypes.CDLL("libcuda.so.1"), name)
    function.argtypes = types

    def call(*arguments: Any) -> None:
        assert function(*arguments) == 0, name

    return call


def thread_streams() -> str:
    """Each thread's own default stream is another one by the same handle: the second call waits for the first one."""
    program = compiled(chain(5), "unfused")
    synchronize = driver_function("cuStreamSynchronize", ctypes.c_void_p)
    with on_device() as (device, gpuarray):
        aside = device.driver.Stream(1)
        xs = [gpuarray.to_gpu(normal(64, 33, seed=seed)) for seed in range(2)]
        outs = [gpuarray.empty((64, 33), np.float32) for _ in range(2)]
        back = device.driver.pagelocked_empty((64, 33), np.float32)

        def run(number: int, wait: bool) -> None:
            with on_device():
                program(xs[number], out=[outs[number]], stream=THREAD_STREAM)
                if wait:
                    synchronize(THREAD_STREAM)

        with ThreadPoolExecutor(1) as one, ThreadPoolExecutor(1) as other:
            for turn in range(4):
                for out in outs:
                    out.set(np.full((64, 33), 7, np.float32))
                one.submit(run, 0, False).result()
                other.submit(run, 1, True).result()
                device.driver.memcpy_dtoh_async(back, outs[0].gpudata, aside)  # which waits for nobody
                aside.synchronize()
                np.testing.assert_allclose(back, chain_value(xs[0].get(), 5), 1e-5, 1e-6, err_msg=f"turn {turn}")
        for x, out in zip(xs, outs, strict=True):
            np.testing.assert_allclose(out.get(), chain_value(x.get(), 5), 1e-5, 1e-6)
    return "2 threads"


def equal_handles() -> str:
    """A stream by the handle of one that is gone: it waits for what the old one may still be doing."""
    program = compiled(SCALED)
    with on_device() as (device, gpuarray):
        x, b = gpuarray.to_gpu(normal(8, 33)), gpuarray.to_gpu(normal(33))
        stream = device.driver.Stream(1)
        for _ in range(3):
            program(x, b, stream=stream)
        waits = driver_calls("cuStreamWaitEvent")
        program(x, b, stream=stream)
        if counters():
            assert driver_calls("cuStreamWaitEvent") == [waits[0] + 1]
        stream.synchronize()
    return "1 wait"


class Late(Exported):
    """An array that DLPack makes ready by a copy on the stream that it is asked for."""

    def __init__(self, array: Any, source: Array) -> None:
        super().__init__(array, 2)
        self._source = source

    def __dlpack__(self, stream: int) -> Any:
        copy = driver_function(
            "cuMemcpyHtoDAsync_v2", ctypes.c_uint64, ctypes.c_void_p, ctypes.c_size_t, ctypes.c_void_p
        )
        copy(int(self.array.gpudata), self._source.ctypes.data, self._source.nbytes, stream)
        return super().__dlpack__(stream)


def late_arrays() -> str:
    """What is made ready on the program's stream is waited for by a call on another one; its memory is kept until then."""
    program, x, b = compiled(SCALED), normal(8, 33), normal(33, seed=1)
    with on_device() as (device, gpuarray):
        driver = device.driver
        mine, others = driver.Stream(1), driver.Stream(1)
        source, back = (driver.pagelocked_empty((8, 33), np.float32) for _ in range(2))
        db, out, dx = gpuarray.to_gpu(b), gpuarray.empty((8, 33), np.float32), gpuarray.empty((8, 33), np.float32)
        for call in range(5):
            dx.set(np.full((8, 33), np.nan, np.float32))
            source[...] = x + call
            program(Late(dx, source), db, out=[out], stream=mine)
            driver.memcpy_dtoh_async(back, out.gpudata, mine)
            mine.synchronize()
            np.testing.assert_allclose(back, np.tanh(x + call + b), 1e-5, 1e-6, err_msg=f"call {call}")
        for call in range(4):  # x belongs to one stream, the call to another: the first one may write x again after it
            dx.set(x + call)
            program(Foreign(dx, others.handle), db, out=[out], stream=mine)
            driver.memset_d32_async(dx.gpudata, 0, 8 * 33, others)
            others.synchronize()
            driver.memcpy_dtoh_async(back, out.gpudata, mine)
            mine.synchronize()
            np.testing.assert_allclose(back, np.tanh(x + call + b), 1e-5, 1e-6, err_msg=f"call {call}")
    return "9 calls"


def odd_addresses() -> str:
    """Arrays that do not begin at multiples of 16 bytes, in and out: by the kernel for them, with nothing copied."""
    program, x = compiled(SOFTMAX), normal(8, 128)
    with on_device() as (_, gpuarray):
        whole, wholes = (gpuarray.empty(8 * 128 + 3, np.float32) for _ in range(2))
        places = [(0, 0), (1, 0), (0, 2), (3, 1), (0, 0)]
        for _ in range(3):
            for first, other in places:
                given, out = (w[k : k + 8 * 128].reshape(8, 128) for w, k in ((whole, first), (wholes, other)))
                given.set(x)
                assert program(given, out=[out]) is out
                np.testing.assert_allclose(out.get(), softmax(x), 1e-5, 1e-6, err_msg=f"{first} {other}")
        stats = program.stats
        assert stats.bytes_on_device == 0 and stats.kernel_launches == 3 * len(places), stats
    return f"{len(places)} places"


def captured_by_the_caller() -> str:
    """Somebody else's capture takes in a program's kernels, or its graph, and nothing that is outside of it."""
    begin = driver_function("cuStreamBeginCapture_v2", ctypes.c_void_p, ctypes.c_int)
    end = driver_function("cuStreamEndCapture", ctypes.c_void_p, ctypes.c_void_p)
    instantiate = driver_function("cuGraphInstantiateWithFlags", ctypes.c_void_p, ctypes.c_void_p, ctypes.c_ulonglong)
    launch = driver_function("cuGraphLaunch", ctypes.c_void_p, ctypes.c_void_p)
    for length in (2, 5):
        program = compiled(chain(length), "unfused")
        with on_device() as (device, gpuarray):
            stream, x, out = (
                device.driver.Stream(1),
                gpuarray.to_gpu(normal(64, 33)),
                gpuarray.empty((64, 33), np.float32),
            )
            for _ in range(2):  # from the second time on there is a graph
                program(x, out=[out], stream=stream)
            graph, executable = ctypes.c_void_p(), ctypes.c_void_p()
            other, before = gpuarray.empty((64, 33), np.float32), program.stats
            begin(stream.handle, 2)
            program(x, out=[other], stream=stream)
            program(x, out=[out], stream=stream)
            assert changes(before, program.stats) == {"calls": 2, "kernel_launches": 2 * length}, (
                "graphs are left alone"
            )
            with raises_text("a stream that is captured takes arrays of the device"):
                program(normal(64, 33), out=[out], stream=stream)
            end(stream.handle, ctypes.byref(graph))
            instantiate(ctypes.byref(executable), graph, 0)
            x.set(normal(64, 33, seed=1))
            launch(executable, stream.handle)
            stream.synchronize()
            for made in (out, other):
                np.testing.assert_allclose(made.get(), chain_value(x.get(), length), 1e-5, 1e-6)
            program(x, out=[out], stream=stream)  # ordered as before
            stream.synchronize()
    return "2 programs"


def bound_launch() -> str:
    """
    A program that is one launch, bound: after runs with other arrays and on another stream, in a thread that has no context,
    with arrays that begin anywhere, and with numbers that are others each time.
    """
    program = compiled(chain(1, "4096xf32"))
    with on_device() as (device, gpuarray):
        aside = device.driver.Stream(1)
        whole, x, other, y, z = (gpuarray.to_gpu(normal(n, seed=n)) for n in (4097, *[4096] * 4))
        bound = [(program.bind(given, out=[y]), given) for given in (x, whole[1:], other)]
        assert program.stats.calls == 0
        with ThreadPoolExecutor(1) as elsewhere:
            for turn in range(3):
                x.set(normal(4096, seed=turn))
                for run, given in bound:
                    for is_here in (True, False):
                        y.set(np.full(4096, 7, np.float32))
                        program(z, out=[other], stream=aside)  # what the last one reads
                        before = program.stats
                        assert (run() if is_here else elsewhere.submit(run).result()) is y
                        assert changes(before, program.stats) == {"calls": 1, "kernel_launches": 1}
                        np.testing.assert_allclose(y.get(), np.tanh(given.get()), 1e-5, 1e-6)
        np.testing.assert_allclose(y.get(), np.tanh(np.tanh(z.get())), 1e-5, 1e-6)
    return f"{program.stats.calls} calls"


@contextmanager
def raises_text(text: str) -> Generator[None]:
    try:
        yield
    except RuntimeError as error:
        assert text in str(error), error
    else:
        raise AssertionError(f"no error: {text}")


STREAM_SCENARIOS = (thread_streams, equal_handles, late_arrays, odd_addresses, captured_by_the_caller, bound_launch)
