"""Programs on a CUDA device that are called with arrays of several libraries, on several streams."""

from __future__ import annotations

import importlib.util
import sys
from importlib import import_module
from typing import Any

import numpy as np
from cuda_foreign import Exported, Foreign, Tensor, stand_in_for_torch
from cuda_running import (
    SCALED,
    Array,
    chain,
    chain_value,
    changes,
    compiled,
    counters,
    normal,
    on_device,
    raises,
)

import fuse_opt
from fuse_opt.lowering.program.float_formats import NARROW, narrow, widen
from fuse_opt.runtime.cuda.program import CudaProgram, CudaStats
from fuse_opt.runtime.device.driver import open_device

STEP = SCALED.replace("%x: tensor<8x33xf32>", "%x: tensor<8x33xf32> {graph.donated}")


def device_arrays() -> str:
    """Arrays of several kinds, without a copy where none is needed."""
    program, x, b = compiled(SCALED), normal(8, 33), normal(33, seed=1)
    expected, cases = np.tanh(x + b), 0

    def check(found: Any, copied: dict[str, int], before: CudaStats, on_host: bool = False) -> None:
        nonlocal cases
        cases += 1
        change = {name: n for name, n in changes(before, program.stats).items() if name.startswith(("bytes", "sync"))}
        assert change == copied, (change, copied)
        np.testing.assert_allclose(found if on_host else found.get(), expected, 1e-5, 1e-6)

    with on_device() as (device, gpuarray):
        dx, db = gpuarray.to_gpu(x), gpuarray.to_gpu(b)
        uploaded = {"bytes_to_device": b.nbytes}
        for first in (dx, Foreign(dx), Foreign(dx, strides=None), Foreign(dx, 1), Exported(dx, 2)):
            before = program.stats
            check(program(first, db), {}, before)
            before = program.stats
            check(program(first, b), uploaded, before)
        exported = Exported(dx, 2)
        program(exported, db)
        assert exported.asked and exported.asked[0] not in (0, None)
        shifted = gpuarray.empty(8 * 33 + 1, np.float32)
        view = shifted[1:].reshape(8, 33)
        view.set(x)
        before = program.stats
        for _ in range(3):  # launched, captured, replayed; by the kernel for what does not begin at a multiple of 16
            before = program.stats
            check(program(view, db), {}, before)
            before = program.stats
            check(program(dx, db), {}, before)
        halves = gpuarray.empty(8 * 33 * 4 + 2, np.uint8)[2:]
        before = program.stats
        off = Foreign(halves, shape=(8, 33), strides=None, typestr="<f4")
        device.driver.memcpy_htod(halves.gpudata, x)
        check(program(off, db), {"bytes_on_device": x.nbytes}, before)
        before, out = program.stats, np.empty((33, 8), np.float32).T
        (found,) = (program(dx, db, out=[out]),)
        assert found is out
        check(out, {"bytes_to_host": x.nbytes, "synchronizations": 1}, before, on_host=True)
        before, target = program.stats, gpuarray.empty((8, 33), np.float32)
        assert program(x, b, out=[target]) is target
        check(target, {"bytes_to_device": x.nbytes + b.nbytes}, before)
        before = program.stats
        assert program(dx, db, out=[dx]) is dx, "an argument may be overwritten"
        check(dx, {"bytes_on_device": x.nbytes}, before)
        dx.set(x)
        raises(
            ValueError, "argument 0 .*expected an array in C order", lambda: program(Foreign(dx, strides=(4, 32)), db)
        )
        raises(ValueError, r"out\[0\]: expected float32 \[8, 33\], got f32 \[33\]", lambda: program(dx, db, out=[db]))
        readonly = Foreign(dx, data=(int(dx.gpudata), True))
        raises(ValueError, r"out\[0\] cannot be written to", lambda: program(dx, db, out=[readonly]))
        raises(TypeError, r"argument 1 \('b'\): expected float32 \[33\], got float64 \[33\]",
               lambda: program(dx, gpuarray.empty(33, np.float64)))  # fmt: skip
        raises(
            ValueError, r"argument 1 \('b'\): expected float32 \[33\], got float32 \[8, 33\]", lambda: program(dx, dx)
        )
        raises(TypeError, "stream: expected a handle", lambda: program(dx, db, stream="mine"))
        assert device.driver.Context.get_current() is not None
    before = program.stats
    copied = {"bytes_to_device": x.nbytes + b.nbytes, "bytes_to_host": x.nbytes, "synchronizations": 1}
    check(program(np.asfortranarray(x), np.repeat(b, 2)[::2]), copied, before, on_host=True)
    raises(TypeError, "'main' takes 2 arguments, got 1", lambda: program(x))
    return f"{cases} cases"


def torch_tensors() -> str:
    """Tensors of torch's in and out, on its current stream."""
    program, x, b = compiled(SCALED), normal(8, 33), normal(33, seed=1)
    expected = np.tanh(x + b)
    with on_device() as (device, gpuarray):
        if counters() is None and importlib.util.find_spec("torch") is not None:
            return _real_torch(program, x, b, expected)
        stream = device.driver.Stream(1)
        sys.modules["torch"] = stand_in_for_torch(stream.handle)
        try:
            dx, db = Tensor(gpuarray.to_gpu(x)), Tensor(gpuarray.to_gpu(b))
            out = Tensor(gpuarray.empty((8, 33), np.float32))
            for _ in range(4):
                (found,) = (program(dx, db, out=[out]),)
                assert found is out
                made = program(dx, Tensor(db.array, "torch.float32"))
                assert isinstance(made, Tensor) and made.data_ptr() != out.data_ptr()
                stream.synchronize()
                for tensor in (found, made):
                    np.testing.assert_allclose(tensor.numpy(), expected, 1e-5, 1e-6)
            assert program.stats.synchronizations == program.stats.bytes_on_device == 0, program.stats
            strided = Tensor(gpuarray.to_gpu(np.asfortranarray(x)))
            found = program(strided, db)
            stream.synchronize()
            np.testing.assert_allclose(found.numpy(), expected, 1e-5, 1e-6)
            wrong = Tensor(db.array, "torch.complex64")
            raises(TypeError, r"expected float32 \[33\], got torch.complex64 \[33\]", lambda: program(dx, wrong))
            db.device.index = 1
            raises(
                ValueError, "argument 1 .*expected an array on device 0, got one on device 1", lambda: program(dx, db)
            )
        finally:
            del sys.modules["torch"]
    return "a stand-in for torch"


def _real_torch(program: CudaProgram, x: Array, b: Array, expected: Array) -> str:
    torch: Any = import_module("torch")
    for stream in (torch.cuda.default_stream(), torch.cuda.Stream()):
        with torch.cuda.stream(stream):
            dx, db = torch.as_tensor(x, device="cuda"), torch.as_tensor(b, device="cuda")
            for call in range(4):
                found = program(dx * 1, db, out=[torch.empty_like(dx)] if call % 2 else None)
                np.testing.assert_allclose((found * 1).cpu().numpy(), expected, 1e-5, 1e-6)
    return f"torch {torch.__version__}"


FROZEN = """func.func @main(%x: tensor<8x33xf32>, %b: tensor<33xf32> {graph.frozen}) -> tensor<8x33xf32> {
  %e = graph.exp %b : (tensor<33xf32>) -> tensor<33xf32>
  %s = graph.multiply %x, %e : (tensor<8x33xf32>, tensor<33xf32>) -> tensor<8x33xf32>
  func.return %s : tensor<8x33xf32>
}"""


def frozen_arguments() -> str:
    """What follows from them alone is computed by a program of its own, when they are bound."""
    program, x, b = fuse_opt.compile(FROZEN, target="cuda"), normal(8, 33), normal(33, seed=1)
    np.testing.assert_allclose(program(x, b), x * np.exp(b), 1e-5, 1e-6)
    program.freeze({"b": b})
    with on_device() as (_, gpuarray):
        dx = gpuarray.to_gpu(x)
        for given in (x, dx, x):
            found = program(given)
            np.testing.assert_allclose(found if given is x else found.get(), x * np.exp(b), 1e-5, 1e-6)
    raises(ValueError, "read-only", lambda: b.fill(0))
    np.testing.assert_allclose(program.freeze({1: -b})(x), x * np.exp(-b), 1e-5, 1e-6)
    return f"{program.stats.prepared_bytes} bytes prepared"


def donated_arguments() -> str:
    """Memory that is given up is written to where it is, or a copy is written back."""
    program, x, b = compiled(STEP), normal(8, 33), normal(33, seed=1)
    expected = np.tanh(x + b)
    given = x.copy()
    assert program(given, b) is given
    np.testing.assert_allclose(given, expected, 1e-5, 1e-6)
    raises(ValueError, "argument 0 .*donated: expected a writeable array in C order",
           lambda: program(np.asfortranarray(x), b))  # fmt: skip
    with on_device() as (_, gpuarray):
        dx, db = gpuarray.to_gpu(x), gpuarray.to_gpu(b)
        before = program.stats
        assert program(dx, db) is dx
        assert not changes(before, program.stats).get("bytes_on_device")
        np.testing.assert_allclose(dx.get(), expected, 1e-5, 1e-6)
        view = gpuarray.empty(8 * 33 + 1, np.float32)[1:].reshape(8, 33)
        view.set(x)
        assert program(view, db) is view
        np.testing.assert_allclose(view.get(), expected, 1e-5, 1e-6)
        whole = gpuarray.to_gpu(np.concatenate([x.reshape(-1), b]))
        inside = Foreign(whole, shape=(33,), strides=None, data=(int(whole.gpudata) + 12 * 4, False))
        raises(ValueError, "arguments 0 and 1 share memory", lambda: program(whole[: 8 * 33].reshape(8, 33), inside))
    return "host and device"


def narrow_floats() -> str:
    """Element types that neither NumPy nor PyCUDA can compute with."""
    count = 0
    for name, dtype in NARROW.items():
        t, r = f"tensor<7x10x{name}>", f"tensor<10x7x{name}>"
        line = f"%r = graph.permute_dims %x {{axes = array<i64: 1, 0>}} : ({t}) -> {r}"
        program = compiled(f"func.func @main(%x: {t}) -> {r} {{ {line} func.return %r : {r} }}")
        x = narrow(np.linspace(-3, 3, 70, dtype=np.float32).reshape(7, 10), name)
        np.testing.assert_array_equal(widen(program(x)), widen(x).T)
        with on_device() as (_, gpuarray):
            raw = gpuarray.to_gpu(x.view(f"u{dtype.itemsize}"))
            given = Foreign(raw, typestr=f"<V{dtype.itemsize}")
            found = program(given)
            assert program(given, out=[found]) is found
            bits = np.empty((10, 7), f"u{dtype.itemsize}")
            open_device().driver.memcpy_dtoh(bits, found.gpudata)
            np.testing.assert_array_equal(widen(bits.view(dtype)), widen(x).T)
        count += 1
    return f"{count} types"


def streams() -> str:
    """Work is ordered behind and before other work on the caller's stream, with a graph and without."""
    program, cases = compiled(SCALED), 0
    with on_device() as (device, gpuarray):
        driver = device.driver
        mine, other = driver.Stream(1), driver.Stream(1)  # 1: not ordered with the default stream
        x, b = normal(8, 33), normal(33, seed=1)
        dx, db = gpuarray.to_gpu(x), gpuarray.to_gpu(b)
        for call in range(8):
            stream = (mine, other)[call // 2 % 2]
            dx, db, out = gpuarray.empty((8, 33), np.float32), gpuarray.to_gpu(b), gpuarray.empty((8, 33), np.float32)
            late = driver.pagelocked_empty((8, 33), np.float32)
            late[...] = x + call
            driver.memcpy_htod_async(dx.gpudata, late, stream)
            program(Foreign(dx, stream.handle) if call % 2 else dx, db, out=[out], stream=None if call % 2 else stream)
            driver.memset_d32_async(dx.gpudata, 0, 8 * 33, stream)  # must come after it was read
            back = driver.pagelocked_empty((8, 33), np.float32)
            driver.memcpy_dtoh_async(back, out.gpudata, stream)
            stream.synchronize()
            np.testing.assert_allclose(back, np.tanh(x + call + b), 1e-5, 1e-6, err_msg=f"call {call}")
            cases += 1
        out = gpuarray.empty((8, 33), np.float32)
        for call in range(4):  # the default stream, before and after the program's own
            dx.set(x + call)
            program(dx, db, out=[out], stream=0 if call % 2 else None)
            np.testing.assert_allclose(out.get(), np.tanh(x + call + b), 1e-5, 1e-6)
        # One arena, two streams: a run must not begin before the last one on the other stream has ended.
        program = compiled(chain(5), "unfused")
        xs = [gpuarray.to_gpu(normal(64, 33, seed=seed)) for seed in range(2)]
        outs = [gpuarray.empty((64, 33), np.float32) for _ in range(2)]
        for _ in range(3):
            for number, stream in enumerate((mine, other)):
                program(xs[number], out=[outs[number]], stream=stream.handle)
        if counters():
            assert program.stats.synchronizations == 0
        other.synchronize()
        mine.synchronize()
        for a, found in zip(xs, outs, strict=True):
            np.testing.assert_allclose(found.get(), chain_value(a.get(), 5), 1e-5, 1e-6)
    return f"{cases + 10} calls"


TWO = """func.func @main(%x: tensor<64xf32> {graph.donated}, %y: tensor<32xf32>) -> (tensor<32xf32>, tensor<64xf32>) {
  %0 = graph.exp %y : (tensor<32xf32>) -> tensor<32xf32>
  %1 = graph.tanh %x : (tensor<64xf32>) -> tensor<64xf32>
  func.return %0, %1 : tensor<32xf32>, tensor<64xf32>
}"""


def targets_in_common_memory() -> str:
    """A result in donated memory is read before another is written there; results in the same memory are refused."""
    program, x, y = compiled(TWO), normal(64), normal(32, seed=1)
    expected = np.exp(y), np.tanh(x)
    with on_device() as (_, gpuarray):
        dy, cases = gpuarray.to_gpu(y), 0
        for on_host in (False, True):
            second: Any = np.empty(64, np.float32) if on_host else gpuarray.empty(64, np.float32)
            for _ in range(3):
                dx = gpuarray.to_gpu(x)
                program(dx, dy, out=[dx[:32], second])
                np.testing.assert_allclose(dx[:32].get(), expected[0], 1e-5, 1e-6)
                np.testing.assert_allclose(second if on_host else second.get(), expected[1], 1e-5, 1e-6)
                cases += 1
        whole = gpuarray.empty(95, np.float32)
        raises(ValueError, r"out\[0\] and out\[1\] share memory",
               lambda: program(gpuarray.to_gpu(x), dy, out=[whole[:32], whole[31:]]))  # fmt: skip
    return f"{cases} calls"


RESULTS = """func.func @main(%x: tensor<2x3xf32>, %y: tensor<6xf32> {graph.donated}) -> (
    tensor<2x3xf32>, tensor<3x2xf32>, tensor<2x3xf32>, tensor<6xf32>, tensor<3xi64>, tensor<0x4xf32>) {
  %c = graph.constant dense<[7, -8, 9]> : tensor<3xi64>
  %e = graph.constant dense<0.0> : tensor<0x4xf32>
  %a = graph.abs %x : (tensor<2x3xf32>) -> tensor<2x3xf32>
  %b = graph.reshape %a {shape = array<i64: 3, 2>} : (tensor<2x3xf32>) -> tensor<3x2xf32>
  func.return %a, %b, %x, %y, %c, %e : tensor<2x3xf32>, tensor<3x2xf32>, tensor<2x3xf32>, tensor<6xf32>,
    tensor<3xi64>, tensor<0x4xf32>
}"""


def results() -> str:
    """Results that are no kernel's own: arguments, constants, others in another shape, and empty ones."""
    program, x, y = compiled(RESULTS), normal(2, 3), normal(6, seed=1)
    wanted = [abs(x), abs(x).reshape(3, 2), x, y, np.array([7, -8, 9]), np.empty((0, 4), np.float32)]
    with on_device() as (_, gpuarray):
        for _ in range(3):
            found = program(x, y.copy())
            for a, b in zip(found, wanted, strict=True):
                np.testing.assert_array_equal(a, b)
            dx, dy = gpuarray.to_gpu(x), gpuarray.to_gpu(y)
            found = program(dx, dy)
            assert found[3] is dy
            for a, b in zip(found, wanted, strict=True):
                assert a.shape == b.shape and (not b.size or np.array_equal(a.get(), b))
    return f"{len(wanted)} results"
