"""Every way a kernel can run on a GPU, asked for by the entries of its schedule: on the CPU against the reference."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cache

import numpy as np
import pytest
from cuda_matrix_programs import Text, axes
from cuda_on_cpu import ORDERS, CudaOnCpu, needs_cxx
from ir_testing import Array, apply, evaluate, function, graph_ops, kernels, parse, random_arguments, text_of
from narrow_floats import decode, name_of
from xdsl.dialects import memref, scf, vector
from xdsl.dialects.builtin import DictionaryAttr, IntegerAttr, ModuleOp, StringAttr, i64
from xdsl.ir import Attribute, Operation, SSAValue

from fuse_opt.dialects import gpu
from fuse_opt.lowering.emit.cuda import build_cuda_program, emit_cuda
from fuse_opt.lowering.errors import LoweringError
from fuse_opt.lowering.gpu import kernel as gpu_kernel
from fuse_opt.lowering.program import GridLaunch, Segment
from fuse_opt.runtime.emulation import program as emulation
from fuse_opt.tools.compiler.pipeline import DEFAULT_PIPELINE

Entries = Mapping[str, int | str]
TOLERANCES = {"float16": 4e-3, "bf16": 3e-2, "float32": 3e-5, "float64": 1e-12}
FLOATS = ("f32", "f16", "bf16", "f64")


def pointwise(n: int, dtype: str, donated: bool = False) -> str:
    text = Text()
    x, y = text.argument((n,), dtype, donated), text.argument((n,), dtype)
    return text.returning(text.op("maximum", [text.op("multiply", [x, y], (n,), dtype), y], (n,), dtype))


def masked(n: int) -> str:
    """Elements of one, two, four and eight bytes in one kernel, and two results."""
    text = Text()
    x, y, u = text.argument((n,), "f64"), text.argument((n,), "f16"), text.argument((n,), "ui8")
    small = text.op("astype", [x], (n,), "f32", "dtype = f32")
    less = text.op("less", [text.op("astype", [y], (n,), "f32", "dtype = f32"), small], (n,), "i1")
    return text.returning(less, text.op("where", [less, u, text.op("add", [u, u], (n,), "ui8")], (n,), "ui8"))


def broadcast(rows: int, columns: int, dtype: str) -> str:
    text = Text()
    x, v, c = text.argument((rows, columns), dtype), text.argument((columns,), dtype), text.argument((rows, 1), dtype)
    a = text.op("add", [text.op("multiply", [x, v], (rows, columns), dtype), c], (rows, columns), dtype)
    return text.returning(a)


def softmax(rows: int, columns: int, dtype: str, axis: int = 1, donated: bool = False) -> str:
    text = Text()
    x = text.argument((rows, columns), dtype, donated)
    return text.returning(text.op("softmax", [x], (rows, columns), dtype, f"axis = {axis} : i64"))


def reduce(op: str, rows: int, columns: int, axis: int, dtype: str) -> str:
    text = Text()
    x = text.argument((rows, columns), dtype)
    return text.returning(text.op(op, [x], ((columns, rows)[axis],), dtype, axes(axis)))


def statistics(rows: int, columns: int, axis: int) -> str:
    """Stores of every element and of every row, in place where memory is given up."""
    text, shape = Text(), (rows, columns)
    kept = (1, columns) if axis == 0 else (rows, 1)
    x, old = text.argument(shape, "f32", donated=True), text.argument(kept, "f32", donated=True)
    most = text.op("max", [x], kept, "f32", axes(axis, keepdims=True))
    shifted = text.op("exp", [text.op("subtract", [x, most], shape, "f32")], shape, "f32")
    total = text.op("sum", [shifted], kept, "f32", axes(axis, keepdims=True))
    mixed = text.op("add", [total, old], kept, "f32")
    return text.returning(text.op("divide", [shifted, old], shape, "f32"), mixed)


def moments(rows: int, columns: int, axis: int, dtype: str) -> str:
    """Mean and variance of what has been widened, and one of the two again."""
    text, shape, kept = Text(), (rows, columns), ((columns, rows)[axis],)
    x = text.argument(shape, dtype)
    wide = x if dtype in ("f32", "f64") else text.op("astype", [x], shape, "f32", "dtype = f32")
    of = dtype if wide is x else "f32"
    mean, variance = (text.op(name, [wide], kept, of, axes(axis)) for name in ("mean", "var"))
    return text.returning(mean, variance, text.op("sqrt", [variance], kept, of))


def moments_by_division(rows: int, columns: int) -> str:
    """As JAX and ONNX write them: sums over a number, under another shape."""
    text, shape, kept = Text(), (rows, columns), (1, columns)
    x = text.argument(shape, "f32")
    count = text.op("full", [], kept, "f32", f"shape = array<i64: 1, {columns}>, dtype = f32, value = {rows}.0 : f64")
    total = text.op("sum", [x], (columns,), "f32", axes(0))
    row = text.op("reshape", [total], kept, "f32", f"shape = array<i64: 1, {columns}>")
    mean = text.op("divide", [row, count], kept, "f32")
    apart = text.op("subtract", [x, mean], shape, "f32")
    squares = text.op("multiply", [apart, apart], shape, "f32")
    total = text.op("sum", [squares], kept, "f32", axes(0, keepdims=True))
    variance = text.op("divide", [total, count], kept, "f32")
    return text.returning(mean, variance)


def moments_of_nothing() -> str:
    """Of a part of an array without elements."""
    text = Text()
    none = text.op("slice", [text.argument((16,), "f32")], (0,), "f32", "starts = array<i64: 4>, stops = array<i64: 4>")
    mean, variance = (text.op(name, [none], (1,), "f32", axes(0, keepdims=True)) for name in ("mean", "var"))
    return text.returning(mean, variance)


def layer_norm(rows: int, columns: int, dtype: str) -> str:
    text, shape = Text(), (rows, columns)
    x, scale, bias = text.argument(shape, dtype), text.argument((columns,), dtype), text.argument((columns,), dtype)
    attributes = "axis = 1 : i64, epsilon = 1.0e-05 : f64"
    return text.returning(text.op("layer_norm", [x, scale, bias], shape, dtype, attributes))


def row_sums_less_total(rows: int, columns: int, dtype: str) -> str:
    """Sums of rows of what a sum over all rows is taken from: stages over other dimensions that read one array."""
    text, shape = Text(), (1, rows, columns)
    x = text.argument(shape, dtype)
    wide = text.op("astype", [x], shape, "f32", "dtype = f32")
    total = text.op("sum", [wide], (1, 1, 1), "f32", "axes = array<i64: 1, 2>, keepdims = true")
    rest = text.op("subtract", [wide, total], shape, "f32")
    sums = text.op("sum", [rest], (rows,), "f32", "axes = array<i64: 0, 2>")
    return text.returning(sums, text.op("square", [rest], shape, "f32"))


def transpose(shape: Sequence[int], order: Sequence[int], dtype: str) -> str:
    text, transposed = Text(), [shape[axis] for axis in order]
    x, y = text.argument(shape, dtype), text.argument(transposed, dtype)
    attribute = f"axes = array<i64: {', '.join(map(str, order))}>"
    moved = text.op("permute_dims", [x], transposed, dtype, attribute)
    return text.returning(text.op("maximum", [moved, y], transposed, dtype), moved)


CASES: dict[str, tuple[str, str, Entries]] = {
    **{f"vectors_{d}_{n}": (pointwise(n, d), "pointwise", {"vector": 16, "threads": 32})
       for d in (*FLOATS, "i8", "i32", "i64") for n in ((1, 1024, 1031) if d == "f16" else (1031,))},
    "vectors_several": (pointwise(2051, "f32"), "pointwise", {"vector": 4, "threads": 32, "unroll": 4}),
    "vectors_in_place": (pointwise(1031, "f16", True), "pointwise", {"vector": 8, "threads": 32, "unroll": 2}),
    "vectors_of_mixed_types": (masked(523), "pointwise", {"vector": 16, "threads": 32}),
    **{f"vectors_of_rows_{c}": (broadcast(9, c, "bf16"), "pointwise", {"vector": 8, "threads": 32}) for c in (64, 63)},
    **{f"row_{v}_{d}_{c}": (softmax(3, c, d), "row", {"variant": v, "vector": 8})
       for v in ("thread", "warp", "block", "shared", "stream") for d in ("f32", "bf16") for c in (7, 264)},
    **{f"row_lanes_{d}_{r}x{c}": (softmax(r, c, d), "row", {"variant": "warp"})
       for d in FLOATS for r, c in ((7, 6), (33, 40))},
    "row_lanes_in_place": (statistics(37, 24, 1), "row", {"variant": "warp"}),
    "row_threads": (softmax(2, 600, "f32"), "row", {"variant": "block", "threads": 256}),
    "row_in_place": (statistics(5, 136, 1), "row", {"variant": "shared", "vector": 4, "threads": 64}),
    **{f"row_after_total_{v}": (row_sums_less_total(2, 8, "f16"), "row", {"variant": v, "vector": 2})
       for v in ("warp", "block", "shared", "stream")},
    "row_dynamic_shared": (softmax(1, 13000, "f32"), "row", {"variant": "shared", "threads": 1024, "splits": 1}),
    **{f"column_{d}_{r}x{c}": (softmax(r, c, d, 0), "column", {"splits": 1})
       for d in FLOATS for r, c in ((3, 40), (70, 33))},
    "column_half_lanes": (softmax(1000, 40, "f32", 0), "column", {"splits": 1}),
    "column_threads": (softmax(100, 32, "f32", 0), "column", {"splits": 1, "threads": 1024}),
    "column_in_place": (statistics(150, 37, 0), "column", {"splits": 1}),
    "column_alone": (reduce("max", 8, 300, 0, "i8"), "column", {}),
    **{f"column_splits_{d}": (softmax(150, 37, d, 0), "column", {"splits": 4}) for d in ("f32", "f16")},
    "column_splits_of_integers": (reduce("sum", 301, 70, 0, "i64"), "column", {"splits": 5}),
    "column_splits_in_place": (statistics(150, 37, 0), "column", {"splits": 3}),
    **{f"split_{d}": (softmax(2, 3001, d), "split", {"splits": 3}) for d in FLOATS},
    **{f"split_{op}": (reduce(op, 3, 2500, 1, "i32"), "split", {"splits": 8, "threads": 64}) for op in ("max", "sum")},
    "split_vectors": (softmax(2, 4096, "bf16"), "split", {"splits": 2, "vector": 8, "threads": 64}),
    "split_in_place": (statistics(2, 2000, 1), "split", {"splits": 3, "threads": 64}),
    **{f"moments_column_{d}_{r}": (moments(r, 37, 0, d), "column", {"splits": 1, "threads": 64})
       for d in FLOATS for r in (300, 1024)},
    **{f"moments_splits_{d}": (moments(1000, 37, 0, d), "column", {"splits": 3}) for d in FLOATS},
    **{f"moments_even_splits_{c}": (moments(1024, c, 0, "f32"), "column", {"splits": 2}) for c in (1, 64)},
    **{f"moments_stream_{d}_{c}": (moments(3, c, 1, d), "row", {"variant": "stream", "vector": 8, "threads": 64})
       for d in FLOATS for c in (2048, 1999)},
    **{f"moments_split_{d}": (moments(2, 5000, 1, d), "split", {"splits": 3, "vector": 8, "threads": 64}) for d in FLOATS},
    **{f"moments_norm_{d}": (layer_norm(3, 2056, d), "row", {"variant": "stream", "threads": 64}) for d in FLOATS},
    **{f"running_column_{d}": (softmax(1100, 33, d, 0), "column", {"splits": 1, "threads": 128}) for d in ("f32", "bf16")},
    "running_stream": (softmax(3, 3001, "f32"), "row", {"variant": "stream", "threads": 64}),
    "running_shared": (softmax(3, 40001, "f32"), "row", {"variant": "shared", "splits": 1}),
    "held_bf16": (softmax(1, 120000, "bf16"), "row", {"splits": 1}),
    "held_f32": (softmax(1, 60000, "f32"), "row", {"splits": 1}),
    "held_moments": (layer_norm(1, 120000, "bf16"), "row", {"splits": 1}),
    "held_in_place": (statistics(1, 60000, 1), "row", {"splits": 1}),
    **{f"few_columns_{c}": (softmax(1500, c, "bf16", 0), "split", {"splits": 3}) for c in (3, 4)},
    "few_columns_whole": (moments(1300, 5, 0, "f32"), "split", {"splits": 1}),
    "moments_of_nothing": (moments_of_nothing(), "row", {}),
    "moments_by_division": (moments_by_division(1000, 37), "column", {"splits": 3}),
    "moments_one_split": (moments(2, 5000, 1, "f32"), "split", {"splits": 1, "threads": 64}),
    **{f"tile_{d}": (transpose((37, 70), (1, 0), d), "tile", {}) for d in (*FLOATS, "i8")},
    "tile_64": (transpose((64, 128), (1, 0), "f32"), "tile", {"tile": 64}),
    "tile_of_three": (transpose((5, 33, 40), (2, 0, 1), "f32"), "tile", {}),
}  # fmt: skip


def entries_of(numbers: Entries) -> DictionaryAttr:
    return DictionaryAttr(
        {name: StringAttr(n) if isinstance(n, str) else IntegerAttr(n, i64) for name, n in numbers.items()}
    )


def scheduled(text: str, kind: str, entries: Entries) -> ModuleOp:
    """The program with its one kernel scheduled so."""
    before, after = (DEFAULT_PIPELINE.index(name) for name in ("fuse-injective", "schedule-kernels"))
    module = apply(parse(text), DEFAULT_PIPELINE[:before])
    for op in graph_ops(module):
        if op.operands:
            op.attributes["fuse_group"] = StringAttr("one")
    module = apply(module, DEFAULT_PIPELINE[before:after])
    (kernel,) = kernels(module)
    found: dict[str, Attribute] = {"kind": StringAttr(kind)}
    kernel.schedule = DictionaryAttr({**found, "gpu": entries_of(entries)} if entries else found)
    return apply(module, DEFAULT_PIPELINE[after:])


def lowered(cases: Mapping[str, tuple[str, str, Entries]]) -> ModuleOp:
    """One module on buffers of the programs, each called as its key."""
    functions: list[Operation] = []
    for name, case in cases.items():
        body = function(scheduled(*case))
        body.detach()
        body.sym_name = StringAttr(name)
        functions.append(body)
    return apply(ModuleOp(functions), "convert-fused-to-gpu")


@cache
def programs() -> ModuleOp:
    return lowered(CASES)


@pytest.fixture(scope="module")
def on_cpu() -> CudaOnCpu:
    return CudaOnCpu(programs())


def assert_close(actual: Sequence[Array], expected: Sequence[Array]) -> None:
    for a, b in zip(actual, expected, strict=True):
        assert (a.dtype, a.shape) == (b.dtype, b.shape)
        tolerance = TOLERANCES.get(name_of(a.dtype), 0.0)
        np.testing.assert_allclose(decode(a), decode(b), tolerance, tolerance, equal_nan=True)


@pytest.mark.sampled(30)
@needs_cxx
@pytest.mark.parametrize("name", CASES)
def test_values_in_every_order_of_threads(name: str, on_cpu: CudaOnCpu) -> None:
    module = parse(CASES[name][0])
    arguments = random_arguments(module, 3)
    expected = evaluate(module, arguments)
    results = [on_cpu.run(name, arguments, order) for order in ORDERS.values()]
    for actual in results:
        assert_close(actual, expected)
        for one, other in zip(actual, results[0], strict=True):
            assert one.tobytes() == other.tobytes(), "the result depends on the order of threads"


@pytest.mark.sampled(26)
@needs_cxx
@pytest.mark.parametrize("name", [name for name in CASES if "vector" in CASES[name][2]])
def test_buffers_that_begin_at_odd_places(name: str, on_cpu: CudaOnCpu, monkeypatch: pytest.MonkeyPatch) -> None:
    """Multiples of 8 bytes and no more, so that nothing goes by vectors; the shim's sanitizer would show it if it did."""
    monkeypatch.setattr(emulation, "ALIGNMENT", dict.fromkeys(("argument", "result", "arena", "constant"), 8))
    module = parse(CASES[name][0])
    arguments = random_arguments(module, 3)
    assert_close(on_cpu.run(name, arguments), evaluate(module, arguments))


@needs_cxx
@pytest.mark.parametrize("name", ["moments_column_f32_1024", "moments_splits_f32", "moments_stream_f32_2048"])
def test_moments_of_values_far_from_zero(name: str, on_cpu: CudaOnCpu) -> None:
    """The error is that of rounding the elements; what is infinite, huge or equal stays what two ways would give."""
    (x,) = random_arguments(parse(CASES[name][0]), 3)
    axis = int("stream" in name)
    far = (x.astype(np.float64) * 10 + 3e4).astype(np.float32)
    mean, variance, _ = on_cpu.run(name, [far])
    np.testing.assert_allclose(mean, far.astype(np.float64).mean(axis), 1e-6)
    np.testing.assert_allclose(variance, far.astype(np.float64).var(axis), 2e-4)
    mean, variance, _ = on_cpu.run(name, [np.full_like(x, 1e20)])
    np.testing.assert_allclose(mean, 1e20, 1e-6)
    assert np.all(variance < 1e34), "equal elements, up to the rounding of their mean"
    x[1, 1] = np.inf
    mean, variance, _ = on_cpu.run(name, [x])
    assert np.isposinf(mean[1]) and np.isnan(variance[1]) and np.isfinite([mean[2], variance[2]]).all()


@needs_cxx
@pytest.mark.parametrize("name", ["running_column_f32", "running_stream", "running_shared"])
def test_sums_below_a_running_maximum_at_infinities(name: str, on_cpu: CudaOnCpu) -> None:
    """Who sees minus infinity alone adds nothing; a row of nothing else is NaN, as one with infinity or NaN."""
    (x,) = random_arguments(parse(CASES[name][0]), 3)
    rows = x.T if "column" in name else x
    rows[0, :700], rows[0, 800], rows[1] = -np.inf, 300, -np.inf
    rows[2, 7] = np.inf
    (found,) = on_cpu.run(name, [x])
    found = found.T if "column" in name else found
    assert found[0, 800] == 1 and not found[0, :800].any() and np.isnan(found[1:3]).all()


@pytest.mark.parametrize(
    ("name", "launches", "loads"),
    [("moments_splits_f16", 2, 2), ("moments_column_f32_1024", 1, 1), ("moments_stream_f64_1999", 1, 2),
     ("moments_split_f32", 2, 2), ("moments_norm_f32", 1, 3), ("moments_by_division", 2, 2),
     ("running_column_f32", 1, 3), ("running_stream", 1, 3), ("column_threads", 1, 2), ("running_shared", 1, 2),
     ("held_bf16", 1, 4), ("held_moments", 1, 4)],
)  # fmt: skip
def test_reductions_go_once_through_memory(name: str, launches: int, loads: int) -> None:
    """A load in the loop over batches, one in that over the rest, one where the elements are used."""
    module = apply(scheduled(*CASES[name]), "convert-fused-to-gpu")
    first, *others = main_kernels(module)
    assert len(others) == launches - 1
    found = [op for op in first.walk() if isinstance(op, memref.LoadOp | vector.LoadOp)]
    assert sum(op.operands[0] is first.arguments[0] for op in found) == loads
    assert not {first.arguments[0].type} & {kind for kernel in others for kind in kernel.function_type.inputs}


def main_kernels(module: ModuleOp) -> list[gpu.FuncOp]:
    """Those that run where buffers are aligned."""
    others = {str(op.attributes["fused.unaligned"]) for op in module.walk() if "fused.unaligned" in op.attributes}
    found = [op for op in module.walk() if isinstance(op, gpu.FuncOp)]
    return [kernel for kernel in found if not any(f"@{kernel.sym_name.data}" in other.split("::") for other in others)]


def kernels_of(text: str, kind: str, entries: Entries) -> list[tuple[str, GridLaunch]]:
    """The launches of the one kernel, and what its function says of its schedule."""
    module = apply(scheduled(text, kind, entries), "convert-fused-to-gpu")
    said = {op.sym_name.data: op.attributes["fused.schedule"] for op in module.walk() if isinstance(op, gpu.FuncOp)}
    (step,) = build_cuda_program(module).steps
    assert isinstance(step, Segment)
    found: list[tuple[str, GridLaunch]] = []
    for launch in step.launches:
        assert isinstance(launch, GridLaunch)
        note = said[launch.kernel]
        assert isinstance(note, StringAttr)
        found.append((note.data, launch))
    return found


@pytest.mark.parametrize(
    ("rows", "columns", "variant", "launches"),
    [
        (1 << 20, 12, "row, thread: 256 rows a block, 1 thread each", 1),
        (1 << 20, 20, "row, warp: 8 threads a row, 32 a block, vectors of 4 elements", 1),
        (8192, 256, "row, warp: 32 threads a row, 8 a block, vectors of 4 elements", 1),
        (512, 4096, "row, block: 256 threads a row, 1 a block, vectors of 4 elements", 1),
        (512, 50000, "row, shared: 1024 threads a row, 1 a block, vectors of 4 elements", 1),
        (512, 100000, "row, stream: 1024 threads a row, 1 a block, vectors of 4 elements, 49 % held", 1),
        (512, 300000, "row, stream: 1024 threads a row, 1 a block, vectors of 4 elements", 1),
        (2, 1 << 20, "split, launch 1 of 3: 128 blocks share a row, 256 threads a row, 1 a block", 3),
    ],
)
def test_the_variant_of_a_row_goes_by_its_size(rows: int, columns: int, variant: str, launches: int) -> None:
    found = kernels_of(softmax(rows, columns, "f32"), "row", {})
    assert (found[0][0], len(found)) == (variant, launches)
    assert (found[0][1].shared > 48 << 10) == ("shared" in variant or "held" in variant)


def test_few_columns_are_read_side_by_side() -> None:
    ((note, launch), *_) = kernels_of(reduce("sum", 1 << 20, 3, 0, "f32"), "row", {})
    assert note == "split, launch 1 of 2: 256 blocks share a row, 64 threads a row, 4 a block" and launch.block == (
        4,
        64,
        1,
    )


@pytest.mark.parametrize(("nbytes", "held"), [(167936, ", 65 % held"), (65536, "")])
def test_a_device_with_less_shared_memory_streams_the_row(nbytes: int, held: str) -> None:
    """What it has room for is held there while the rest is read again."""
    module = scheduled(softmax(512, 50000, "f32"), "row", {})
    module.attributes["fused.device"] = entries_of({"shared_memory": nbytes, "processors": 108})
    text = emit_cuda(module)
    assert f"// schedule: row, stream: 1024 threads a row, 1 a block, vectors of 4 elements{held}\n" in text
    assert ("shared_memory" in text.replace("// schedule", "")) == bool(held)


def test_what_does_not_fit_the_device_runs_without_shared_memory_and_says_so() -> None:
    module = scheduled(softmax(512, 4096, "f32"), "row", {})
    module.attributes["fused.device"] = entries_of({"shared_memory": 48, "static_shared": 48})
    with pytest.warns(
        UserWarning, match="needs 64 bytes of shared memory, a block has 48; it runs with a warp"
    ) as found:
        text = emit_cuda(module)
    assert len(found) == 1
    assert "__shared__" not in text and "// schedule: row, " in text


def test_few_columns_share_a_reduction_over_many_blocks_without_atomics() -> None:
    first, last = kernels_of(reduce("sum", 1 << 16, 64, 0, "f32"), "column", {})
    assert first[0] == "split, launch 1 of 2: 132 blocks share a row, 16 threads a row, 64 a block"
    assert first[1].grid == (132, 1, 1) and last[1].grid == (1, 1, 1)
    text = emit_cuda(scheduled(reduce("sum", 1 << 16, 64, 0, "f32"), "column", {}))
    assert "atomic" not in text and text.count("#pragma unroll 8\n") == 1


@needs_cxx
def test_a_small_grid_takes_blocks_in_turns(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gpu_kernel, "MOST_BLOCKS", 2)
    cases: dict[str, tuple[str, str, Entries]] = {
        "lanes": (softmax(70, 64, "f32"), "row", {}),
        "block": (softmax(9, 300, "f32"), "row", {}),
        "column": (softmax(70, 90, "f32", 0), "column", {}),
        "tile": (transpose((70, 90), (1, 0), "f32"), "tile", {}),
        "pointwise": (pointwise(3000, "f32"), "pointwise", {}),
    }
    module = lowered(cases)
    loops = [
        op
        for kernel in main_kernels(module)
        for op in kernel.walk()
        if isinstance(op, scf.ForOp) and isinstance(op.lb.owner, gpu.BlockIdOp)
    ]
    assert len(loops) == len(cases)
    on_cpu = CudaOnCpu(module)
    for name, (text, _, _) in cases.items():
        arguments = random_arguments(parse(text), 3)
        for order in ORDERS.values():
            assert_close(on_cpu.run(name, arguments, order), evaluate(parse(text), arguments))


def test_an_edited_schedule_is_kept_through_the_text_of_the_program() -> None:
    module = scheduled(softmax(4096, 128, "f32"), "row", {"variant": "block", "threads": 128})
    text = text_of(module)
    assert 'gpu = {variant = "block", threads = 128 : i64}' in text
    assert "// schedule: row, block: 128 threads a row" in emit_cuda(parse(text))


@pytest.mark.parametrize(
    ("entries", "problem"),
    [
        ({"variant": "fast"}, "entry 'variant': expected one of thread, warp, block, shared, stream, got \"fast\""),
        ({"threads": 100}, "entry 'threads': expected a power of two from 32 to 1024, got 100"),
        ({"vector": 0}, "entry 'vector': expected a power of two from 1 to 16, got 0"),
        (
            {"lanes": 4},
            "entry 'lanes': expected one of variant, threads, vector, splits, cache in a schedule of kind \"row\"",
        ),
    ],
)
def test_an_entry_that_cannot_be_is_refused(entries: Entries, problem: str) -> None:
    """By the verifier, see `schedule-kernels-gpu-invalid.mlir`, and by the lowering where nobody has verified."""
    module = scheduled(softmax(64, 64, "f32"), "row", {})
    (kernel,) = kernels(module)
    kernel.schedule = DictionaryAttr({"kind": StringAttr("row"), "gpu": entries_of(entries)})
    with pytest.raises(LoweringError) as caught:
        emit_cuda(module)
    assert f"'fused.kernel' schedule, gpu: {problem}" in str(caught.value)


def test_barriers_are_not_under_conditions_of_threads() -> None:
    """Only under what is the same for a whole block: whether buffers are aligned."""
    for kernel in (op for op in programs().walk() if isinstance(op, gpu.FuncOp)):
        for barrier in (op for op in kernel.walk() if isinstance(op, gpu.BarrierOp)):
            inside = barrier.parent_op()
            while inside is not kernel:
                assert isinstance(inside, scf.IfOp), f"{kernel.sym_name.data}: a barrier in '{inside}'"
                assert not _depends_on_thread(inside.cond), kernel.sym_name.data
                inside = inside.parent_op()


def _depends_on_thread(value: SSAValue) -> bool:
    stack = [value]
    while stack:
        owner = stack.pop().owner
        if not isinstance(owner, Operation) or isinstance(owner, gpu.ThreadIdOp | memref.LoadOp | gpu.ShuffleOp):
            return True
        stack.extend(() if isinstance(owner, memref.ExtractAlignedPointerAsIndexOp) else owner.operands)
    return False
