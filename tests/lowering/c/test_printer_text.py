"""The printed text where it is a contract: signatures, readability, refusals, size, and that compilers vectorise it."""

from __future__ import annotations

import subprocess
import time
from pathlib import Path

import numpy as np
import pytest
from c_op_cases import CASES
from c_printing import (
    CALLEES,
    CC,
    CONSTANTS,
    COUNT,
    FLAGS,
    NUMPY,
    build,
    combine,
    needs_cc,
    needs_nvcc,
    nvcc,
    parallel,
    parse,
    print_all,
    print_one,
    run,
)
from xdsl.dialects import func

import fuse_opt
from fuse_opt.lowering.c.language import CUDA, C
from fuse_opt.lowering.c.printer import CPrintError, print_function, print_translation_unit
from fuse_opt.lowering.emit import emit_c

SOFTMAX = f"""
func.func private @softmax(%x: memref<8192xf32>, %y: memref<8192xf32>, %begin: index, %end: index)
    attributes {{fused.comment = "graph.softmax(%x) */", fused.schedule = "row"}} {{
  %c0 = arith.constant 0 : index
  %c1 = arith.constant 1 : index
  %n = arith.constant 1024 : index
  %ninf = arith.constant 0xFF800000 : f32
  %zero = arith.constant 0.0 : f32
  %buf = memref.alloca() : memref<1024xf32>
  scf.for %row = %begin to %end step %c1 {{
    %base = arith.muli %row, %n : index
    %m = {
    parallel(
        "%j",
        "%n",
        f'''
      %at = arith.addi %base, %j : index
      %v = memref.load %x[%at] : memref<8192xf32>
      {combine("%v", "arith.maximumf", "f32")}''',
        "%ninf",
        "f32",
    )
}
    %sum = {
    parallel(
        "%j",
        "%n",
        f'''
      %at = arith.addi %base, %j : index
      %v = memref.load %x[%at] : memref<8192xf32>
      %d = arith.subf %v, %m : f32
      %e = math.exp %d : f32
      memref.store %e, %buf[%j] : memref<1024xf32>
      {combine("%e", "arith.addf", "f32")}''',
        "%zero",
        "f32",
    )
}
    {
    parallel(
        "%j",
        "%n",
        '''
      %p = memref.load %buf[%j] : memref<1024xf32>
      %q = arith.divf %p, %sum : f32
      %at = arith.addi %base, %j : index
      memref.store %q, %y[%at] : memref<8192xf32>
      scf.reduce''',
    )
}
  }}
  func.return
}}"""

SOFTMAX_C = """\
// graph.softmax(%x) * /
// schedule: row
static void softmax(const float *restrict x, float *restrict y, long begin, long end) {
  float buf[1024] __attribute__((aligned(64)));
  for (long row = begin; row < end; ++row) {
    long base = row * 1024;
    float m = -__builtin_inff();
    #pragma omp simd reduction(fo_maximumf_f32:m)
    for (long j = 0; j < 1024; ++j) {
      float v = x[base + j];
      m = fo_max_f32(m, v);
    }
    float sum = 0.0f;
    #pragma omp simd reduction(+:sum)
    for (long j_1 = 0; j_1 < 1024; ++j_1) {
      float v_1 = x[base + j_1];
      float d = v_1 - m;
      float e = fo_exp_f32(d);
      buf[j_1] = e;
      sum = sum + e;
    }
    #pragma omp simd
    for (long j_2 = 0; j_2 < 1024; ++j_2) {
      float p = buf[j_2];
      float q = p / sum;
      y[base + j_2] = q;
    }
  }
}
"""

KERNEL = """
"gpu.module"() <{sym_name = "m"}> ({
  "gpu.func"() <{function_type = (memref<8192xf32>, memref<8192xf16>, memref<8xi64>) -> (),
                 known_block_size = array<i32: 128, 1, 1>}> ({
  ^bb0(%x: memref<8192xf32>, %y: memref<8192xf16>, %k: memref<8xi64>,
       %sh: memref<4xf32, #gpu.address_space<workgroup>>, %row: memref<2xf32, #gpu.address_space<private>>):
    %t = "gpu.thread_id"() <{dimension = #gpu<dim x>}> : () -> index
    %b = "gpu.block_id"() <{dimension = #gpu<dim x>}> : () -> index
    %c128 = arith.constant 128 : index
    %c0 = arith.constant 0 : index
    %offset = arith.constant 16 : i32
    %width = arith.constant 32 : i32
    %p = arith.muli %b, %c128 : index
    %i = arith.addi %p, %t : index
    %v = memref.load %x[%i] : memref<8192xf32>
    memref.store %v, %row[%c0] : memref<2xf32, #gpu.address_space<private>>
    %w = memref.load %row[%c0] : memref<2xf32, #gpu.address_space<private>>
    %s, %ok = gpu.shuffle xor %w, %offset, %width : f32
    %m = arith.maximumf %v, %s : f32
    %first = arith.cmpi eq, %t, %c0 : index
    scf.if %first {
      memref.store %m, %sh[%c0] : memref<4xf32, #gpu.address_space<workgroup>>
    }
    "gpu.barrier"() : () -> ()
    %q = memref.load %sh[%c0] : memref<4xf32, #gpu.address_space<workgroup>>
    %h = arith.truncf %q : f32 to f16
    memref.store %h, %y[%i] : memref<8192xf16>
    %a = memref.load %k[%c0] : memref<8xi64>
    %twice = arith.addi %a, %a : i64
    %d, %ok2 = gpu.shuffle down %twice, %offset, %width : i64
    memref.store %d, %k[%c0] : memref<8xi64>
    "gpu.return"() : () -> ()
  }) {sym_name = "red", gpu.kernel, workgroup_attributions = 1 : i64} : () -> ()
}) : () -> ()"""

KERNEL_CUDA = """\
extern "C" __global__ void __launch_bounds__(128) red(const float *__restrict__ x, __half *__restrict__ y,
    long long *__restrict__ k) {
  __shared__ __align__(16) float sh[4];
  __align__(16) float row[2];
  int t = (int)threadIdx.x;
  int i = (int)blockIdx.x * 128 + t;
  float v = x[i];
  row[0] = v;
  float w = row[0];
  float s = __shfl_xor_sync(0xffffffffu, w, 16, 32);
  float m = fo_max_f32(v, s);
  if (t == 0) {
    sh[0] = m;
  }
  __syncthreads();
  float q = sh[0];
  __half h = __float2half_rn(q);
  y[i] = h;
  long long a = k[0];
  long long d = __shfl_down_sync(0xffffffffu, (long long)((unsigned long long)a + (unsigned long long)a), 16, 32);
  k[0] = d;
}
"""


def test_softmax_text():
    function = print_one(SOFTMAX)
    assert function.text == SOFTMAX_C
    assert function.helpers == ("fo_exp_f32", "fo_max_f32")
    assert (
        function.prototype == "static void softmax(const float *restrict x, float *restrict y, long begin, long end);"
    )
    assert print_one(SOFTMAX) == function


def test_kernel_text():
    function = print_one(KERNEL, CUDA)
    assert function.text == KERNEL_CUDA
    assert function.includes == ("<cuda_fp16.h>",)


@needs_nvcc
def test_kernel_compiles(tmp_path: Path):
    report = nvcc(print_translation_unit([print_one(KERNEL, CUDA)], CUDA), tmp_path)
    assert "'red'" in report and "0 bytes spill stores" in report


@needs_cc
@pytest.mark.parametrize("text", [SOFTMAX], ids=["softmax"])
def test_gcc_vectorises_loops_and_reductions(text: str, tmp_path: Path):
    assert CC is not None
    version = subprocess.run([CC, "--version"], capture_output=True, text=True).stdout
    if "Free Software Foundation" not in version:
        pytest.skip("reads gcc's report")
    source = print_translation_unit(print_all(text), C, "void *keep[] = {(void *)softmax};\n")
    path = tmp_path / "program.c"
    path.write_text(source)
    command = [CC, *FLAGS, "-fopt-info-vec-optimized", str(path), "-o", str(tmp_path / "program.so")]
    report = subprocess.run(command, capture_output=True, text=True, check=True).stderr
    lines = source.splitlines()
    for number, line in enumerate(lines, 1):
        if line.lstrip().startswith("#pragma omp simd"):
            end = next(n for n in range(number, len(lines)) if lines[n].strip() == "}")
            found = any(f"program.c:{n}:" in report for n in range(number, end + 1))
            assert found, "\n".join([*lines[number - 1 : end + 1], report])


@needs_cc
def test_softmax_runs(tmp_path: Path):
    unit = print_translation_unit(print_all(SOFTMAX.replace("func.func private", "func.func")), C)
    x = np.random.default_rng(0).normal(size=(8, 1024)).astype(np.float32)
    got = np.zeros_like(x)
    run(build(unit, tmp_path), "softmax", x, got, 0, 8)
    wide = np.exp(x.astype(np.float64) - x.max(axis=1, keepdims=True))
    np.testing.assert_allclose(got, wide / wide.sum(axis=1, keepdims=True), rtol=2e-6)


def test_arguments():
    function = print_one("""
func.func @exp(%in: memref<4xi1>, %inout: memref<4xf32> {fused.alias}, %0: memref<0xui8>, %while: memref<f16>, %s: f32,
               %dynamic: memref<?xi64>) -> f32 {
  %v = memref.load %while[] : memref<f16>
  %x = arith.extf %v : f16 to f32
  %c0 = arith.constant 0 : index
  memref.store %x, %inout[%c0] : memref<4xf32>
  func.return %s : f32
}""")
    assert function.name == "exp_" + function.name[-8:]
    assert function.text.splitlines() == [
        f"float {function.name}(const unsigned char *restrict in, float *inout, const unsigned char *restrict arg0,",
        "    const unsigned short *restrict while_1, float s, const long *restrict dynamic) {",
        "  (void)in;",
        "  (void)arg0;",
        "  (void)dynamic;",
        "  unsigned short v = while_1[0];",
        "  float x = fo_f16_to_f32(v);",
        "  inout[0] = x;",
        "  return s;",
        "}",
    ]


@needs_cc
def test_functions_call_each_other_in_any_order(tmp_path: Path):
    text = """
func.func @outer(%x: memref<1xf32>) {
  %c0 = arith.constant 0 : index
  %v = memref.load %x[%c0] : memref<1xf32>
  %sin = func.call @sin(%v) : (f32) -> f32
  func.call @store(%x, %sin) : (memref<1xf32>, f32) -> ()
  func.return
}
func.func private @store(%x: memref<1xf32>, %v: f32) {
  %c0 = arith.constant 0 : index
  memref.store %v, %x[%c0] : memref<1xf32>
  func.return
}
func.func private @sin(%x: f32) -> f32 {
  %y = arith.addf %x, %x : f32
  func.return %y : f32
}"""
    x = np.array([3], np.float32)
    run(build(print_translation_unit(print_all(text), C), tmp_path), "outer", x)
    assert x[0] == 6


def test_one_unit_needs_distinct_names():
    function = print_one("func.func @k() { func.return }")
    with pytest.raises(ValueError, match="share the C names"):
        print_translation_unit([function, function], C)


def test_large_buffers_widen_the_index_in_cuda():
    text = "func.func @k(%x: memref<{0}xf32>, %n: index) {{ func.return }}"
    assert "int n" in print_one(text.format(2**30 - 1), CUDA).prototype
    assert "long long n" in print_one(text.format(2**30), CUDA).prototype
    assert "long n" in print_one(text.format(2**40), C).prototype


@pytest.mark.parametrize(
    ("body", "message"),
    [
        ("%c = arith.constant 1.0 : f16\n%d = arith.addf %c, %c : f16\nmemref.store %d, %h[%n] : memref<4xf16>",
         "'arith.addf' op in function 'k' cannot be printed as C: no row 'arith.addf' for 'f16'"),
        ("%d = math.ctpop %i : i32\nmemref.store %d, %w[%n] : memref<4xi32>", "no row 'math.ctpop' for 'i32'"),
        ("%d = memref.dim %w, %n : memref<4xi32>\nmemref.store %n, %p[%d] : memref<4xindex>", "'memref.dim' op"),
        ("%d = memref.load %m[%n, %n] : memref<2x2xf32>\nmemref.store %d, %m[%n, %n] : memref<2x2xf32>", "flatten it"),
        ("%d = memref.load %l[%n] : memref<4xf32, strided<[2]>>\nmemref.store %d, %l[%n] : memref<4xf32, strided<[2]>>",
         "flatten it"),
        ("func.call @fo_nothing(%i) : (i32) -> ()", "no function 'fo_nothing'"),
        ('"gpu.barrier"() : () -> ()', "'gpu.barrier' op in function 'k' cannot be printed as C"),
        ('"scf.execute_region"() ({ scf.yield }) : () -> ()', "'scf.execute_region' op"),
        ('%a, %b = arith.addui_extended %i, %i : i32, i1\nmemref.store %a, %w[%n] : memref<4xi32>', "no row in its table of ops"),
    ],
)  # fmt: skip
def test_what_has_no_row_is_refused(body: str, message: str):
    text = f"""
func.func @k(%h: memref<4xf16>, %w: memref<4xi32>, %p: memref<4xindex>, %m: memref<2x2xf32>,
             %l: memref<4xf32, strided<[2]>>, %i: i32, %n: index) {{
  {body}
  func.return
}}"""
    with pytest.raises(CPrintError) as caught:
        print_one(text)
    assert message in str(caught.value)
    assert caught.value.op.name in str(caught.value)


def test_types_without_rows_are_refused():
    with pytest.raises(CPrintError, match="no row 'f80' in the table of types"):
        print_one("func.func @k(%x: f80) { func.return }")
    with pytest.raises(CPrintError, match="no row 'tensor<4xf32>'"):
        print_one("func.func @k(%x: tensor<4xf32>) { func.return }")


def test_kernels_are_refused_in_c():
    with pytest.raises(CPrintError, match="it has no kernels"):
        print_one(KERNEL, C)


def chain(length: int) -> str:
    """Alternating integer arithmetic on one value, each result used once."""
    ops = "\n".join(
        f"  %v{i} = arith.{'muli' if i % 2 else 'addi'} %v{i - 1}, %n : index" for i in range(1, length + 1)
    )
    return f"""
func.func @chain(%o: memref<1xindex>, %v0: index, %n: index) {{
  %c0 = arith.constant 0 : index
{ops}
  memref.store %v{length}, %o[%c0] : memref<1xindex>
  func.return
}}"""


@needs_cc
def test_long_chains_are_cut_into_statements(tmp_path: Path):
    (op,) = parse(chain(10_000)).ops
    assert isinstance(op, func.FuncOp)
    start = time.process_time()
    function = print_function(op, C)
    assert time.process_time() - start < 10
    assert max(map(len, function.text.splitlines())) < 120
    out = np.zeros(1, np.int64)
    flags = [flag for flag in FLAGS if flag != "-O3"]
    run(build(print_translation_unit([function], C), tmp_path, flags), "chain", out, 1, 3)
    expected = 1
    for i in range(1, 10_001):
        expected = (expected * 3 if i % 2 else expected + 3) % 2**64
    assert out.view(np.uint64)[0] == expected


@needs_cc
def test_nothing_is_undefined(tmp_path: Path, capfd: pytest.CaptureFixture[str]):
    functions = print_all(CALLEES + "".join(case.function() for case in CASES.values()))
    flags = [*FLAGS, "-O0", "-fsanitize=undefined,float-cast-overflow", "-fno-sanitize=float-divide-by-zero"]
    library = build(print_translation_unit(functions, C), tmp_path, flags)
    for case in CASES.values():
        run(library, case.name, *case.inputs(), np.zeros(COUNT, NUMPY[case.kinds[2]]))
    assert "runtime error" not in capfd.readouterr().err


def test_dead_code_is_left_out():
    text = print_one(f"""
func.func @k(%x: memref<{COUNT}xf32>) {{
  {CONSTANTS}
  %v = memref.load %x[%c0] : memref<{COUNT}xf32>
  %w = math.exp %v : f32
  %b = memref.alloca() : memref<4xf32>
  func.return
}}""").text
    assert text == "void k(const float *restrict x) {\n  (void)x;\n}\n"


WHOLE = """func.func @main(%x: tensor<4xui8>, %u: tensor<4xui8>) -> tensor<4xui8> {
  %0 = graph.slice_scatter %x, %u {starts = array<i64: 0>, stops = array<i64: 4>}
    : (tensor<4xui8>, tensor<4xui8>) -> tensor<4xui8>
  func.return %0 : tensor<4xui8>
}"""


def test_what_nobody_reads_is_not_loaded_where_it_is_taken_as_signed() -> None:
    """nvcc warned of a variable that was never referenced."""
    kernel = emit_c(fuse_opt.optimize(WHOLE)).partition("static void kernel_slice_scatter(")[2].partition("\n}")[0]
    assert "u[i]" in kernel and "x[i]" not in kernel
