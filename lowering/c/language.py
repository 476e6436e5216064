"""The targets of the C printer: a C-like language is one record."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace

from fuse_opt.lowering.c.headers.functions import c_helpers, cuda_helpers
from fuse_opt.lowering.c.op_table import FLOATS, Level, Row, Rows, call, loose, over, prefix, shared_rows
from fuse_opt.lowering.hints import MOST_ON_STACK

_FO_MATH = (
    "exp exp2 expm1 log log1p log2 log10 sqrt rsqrt cbrt sin cos tan asin acos atan sinh cosh tanh asinh acosh atanh "
    "erf floor ceil trunc"
)
_LIBM_MATH = "round"
_F8 = ("f8E4M3FN", "f8E5M2")
_IN_BITS = ("f16", "bf16", *_F8)
"""Floats that are kept as unsigned integers in C."""


@dataclass(frozen=True, slots=True)
class CLanguage:
    """What differs between C-family targets."""

    name: str
    types: Mapping[str, str]
    """By type of the IR: the C type of a value. `index` is 32 or 64 bits wide, see `wide_index`."""
    stored: Mapping[str, str]
    """The C type of a buffer's element, where that differs from a value's."""
    unsigned: Mapping[str, str]
    """By integer type of the IR: the C type of the same width without sign."""
    rows: Rows
    """The spelling of ops; see `c_rows`."""
    literals: Mapping[str, str]
    """By type: a literal that is no plain number; {text} is the value as an int or float literal, {bits} its bits."""
    helpers: Callable[[Iterable[str]], str]
    """The definitions of `fo_*` functions that a program needs."""
    function: str = "{static}{result} {name}"
    """The head of a function; {static} is `static ` for private ones, else nothing."""
    kernel: str | None = None
    """The head of a `gpu.func` kernel; {bounds} is `launch_bounds` or nothing. None where there are no kernels."""
    launch_bounds: str = ""
    restrict: str = "restrict"
    local_array: str = "{} {}[{}]"
    lasting_array: str | None = None
    """The same of one that is there once for all calls; None where there is none."""
    thread_array: str | None = None
    """The same of one that is there once for each thread."""
    most_local: int | None = None
    """Bytes of all local arrays of a function, of which stacks have no more; None where there are no stacks."""
    local_vector: str | None = None
    """The same of a variable that is a vector of {2} elements; None where there is none."""
    shared_array: str | None = None
    dynamic_shared: str = ""
    """Declares {} as the shared memory that a launch asks for, in bytes."""
    barrier: str | None = None
    vector: str | None = None
    """The type of a vector of elements {0} of which there are {1}, aligned to its size; None where there is none."""
    once: tuple[str, str] | None = None
    """A load from the address {0}, and a store of {1} there, of what is not wanted again; None where they are as others."""
    rolled: tuple[str, ...] = ()
    """Lines before a loop that is not to be unrolled."""
    streamed: tuple[str, ...] = ()
    """The same of one that no compiler is to unroll."""
    scalar: tuple[str, ...] = ()
    """Lines that begin the body of a loop of which no vectors are to be made."""
    prefers: tuple[str, ...] = ()
    """Lines before a function, not to be inlined, in which the compiler is to prefer vectors of {bits} bits, but {where}; none
    where it has no such word."""
    splits_lines: str = ""
    """Where not to, if only for stores of whole lines within two: for processors to which these cost no more."""
    opaque: str = ""
    """A number {0} of type {t} as one that compilers do not know, where that makes extrema with it cheaper."""
    simd: str = ""
    """Before a loop whose iterations are independent."""
    reduction: str = ""
    """Added to `simd` for one accumulator, from an operator or declared name, and the variable."""
    declared_reduction: str = ""
    """Declares {name} as an idempotent combiner of {type} by {text} over omp_out and omp_in."""
    reduction_operators: Mapping[str, str] = field(default_factory=dict[str, str])
    """By combining op: the operator's name in `reduction`."""
    includes: Mapping[str, str] = field(default_factory=dict[str, str])
    """By type: the header it needs."""
    wide_index: str = "long"
    """`index` in functions whose buffers have 2**30 elements or more."""
    index_bits: int = 64

    def with_wide_index(self) -> CLanguage:
        """This language with an `index` for large buffers; 2**30 leaves room for a loop's last `i += step`."""
        if self.index_bits == 64:
            return self
        unsigned = {**self.unsigned, "index": f"unsigned {self.wide_index}"}
        return replace(self, types={**self.types, "index": self.wide_index}, unsigned=unsigned, index_bits=64)

    def stored_type(self, type_name: str) -> str | None:
        return self.stored.get(type_name) or self.types.get(type_name)

    def row(self, key: str, type_name: str) -> Row | None:
        """The spelling of an op at a type, or None."""
        by_type = self.rows.get(key, {})
        source, _, target = type_name.partition(">")
        wanted = (type_name, f"{source}>*", f"*>{target}", "*") if target else (type_name, "*")
        return next((by_type[name] for name in wanted if name in by_type), None)


def _types(wide: str, index: str, boolean: str, half: str, brain: str) -> dict[str, str]:
    signed = {"i8": "signed char", "i16": "short", "i32": "int", "i64": wide, "index": index}
    return {
        "i1": boolean,
        **signed,
        "ui8": "unsigned char",
        "ui16": "unsigned short",
        "ui32": "unsigned int",
        "ui64": f"unsigned {wide}",
        "f16": half,
        "bf16": brain,
        **dict.fromkeys(_F8, "unsigned char"),
        "f32": "float",
        "f64": "double",
    }


def _unsigned(wide: str, index: str) -> dict[str, str]:
    narrow = {"i8": "unsigned char", "i16": "unsigned short", "i32": "unsigned"}
    return {**narrow, "i64": f"unsigned {wide}", "index": f"unsigned {index}"}


def _merged(*tables: Rows) -> dict[str, dict[str, Row]]:
    merged: dict[str, dict[str, Row]] = {}
    for table in tables:
        for key, by_type in table.items():
            merged.setdefault(key, {}).update(by_type)
    return merged


_F8_BITS = {f"{a}>{b}": prefix("({T}){0}") for h in _F8 for a, b in (("i8", h), (h, "i8"))}


def _widening(types: Iterable[str]) -> dict[str, Row]:
    """Conversions of these types by helpers."""
    return {
        **{f"{narrow}>f32": call(f"fo_{narrow}_to_f32({{0}})") for narrow in types},
        **{f"{narrow}>f64": prefix(f"(double)fo_{narrow}_to_f32({{0}})") for narrow in types},
    }


def _narrowing(types: Iterable[str]) -> dict[str, Row]:
    return {f"{wide}>{narrow}": call(f"fo_{wide}_to_{narrow}({{0}})") for narrow in types for wide in FLOATS}


def _c_rows() -> dict[str, dict[str, Row]]:
    rows = {f"math.{name}": over(FLOATS, call(f"fo_{name}_{{t}}({{0}})")) for name in _FO_MATH.split()}
    rows |= {f"math.{name}": over(FLOATS, call(f"__builtin_{name}{{f}}({{0}})")) for name in _LIBM_MATH.split()}
    rows |= {
        "arith.cmpf uno": over(FLOATS, call("__builtin_isunordered({0}, {1})")),  # one comparison of vectors
        "math.exp nonpositive": over(FLOATS, call("fo_exp_negative_{t}({0})")),
        "math.absf": over(FLOATS, call("__builtin_fabs{f}({0})")),
        "math.absi": over(
            ("i8", "i16", "i32", "i64", "index"), Row("({T})({0} < 0 ? -{0} : {0})", Level.UNARY, (Level.ATOM,))
        ),
        "math.copysign": over(FLOATS, call("__builtin_copysign{f}({0}, {1})")),
        "math.atan2": over(FLOATS, call("fo_atan2_{t}({0}, {1})")),
        "math.powf": over(FLOATS, call("fo_pow_{t}({0}, {1})")),
        "math.fma": over(FLOATS, call("fo_fma_{t}({0}, {1}, {2})")),
        "math.roundeven": over(FLOATS, call("fo_round_{t}({0})")),
        "arith.extf": _widening(_IN_BITS),
        "arith.truncf": _narrowing(_IN_BITS),
        "arith.bitcast": {
            **{f"{f}>{i}": prefix("({T})fo_bits_{s}({0})") for f, i in (("f32", "i32"), ("f64", "i64"))},
            **{f"{i}>{f}": call("fo_from_bits_{t}(({V}){0})") for f, i in (("f32", "i32"), ("f64", "i64"))},
            **{f"{a}>{b}": prefix("({T}){0}") for h in ("f16", "bf16") for a, b in (("i16", h), (h, "i16"))},
            **_F8_BITS,
        },
    }
    return rows


def _cuda_math_rows() -> dict[str, dict[str, Row]]:
    names = {name: name for name in (*_FO_MATH.split(), *_LIBM_MATH.split())}
    rows = {f"math.{name}": over(FLOATS, call(f"{spelt}{{f}}({{0}})")) for name, spelt in names.items()}
    rows |= {
        f"math.{name}": over(FLOATS, call(f"{spelt}{{f}}({{0}}, {{1}})"))
        for name, spelt in {"powf": "pow", "atan2": "atan2", "copysign": "copysign"}.items()
    }
    positive = "({T})({0} < 0 ? 0u - ({U}){0} : ({U}){0})"
    rows |= {
        "math.exp nonpositive": rows["math.exp"],
        "math.absf": over(FLOATS, call("fabs{f}({0})")),
        "math.absi": over(("i8", "i16", "i32", "i64", "index"), prefix(positive)),
        "math.fma": over(FLOATS, call("fma{f}({0}, {1}, {2})")),
        "math.roundeven": over(FLOATS, call("rint{f}({0})")),
        "arith.extf": {
            "f16>f32": call("__half2float({0})"),
            "bf16>f32": call("__bfloat162float({0})"),
            "f16>f64": prefix("(double)__half2float({0})"),
            "bf16>f64": prefix("(double)__bfloat162float({0})"),
            **_widening(_F8),
        },
        "arith.truncf": {
            "f32>f16": call("__float2half_rn({0})"),
            "f32>bf16": call("__float2bfloat16_rn({0})"),
            "f64>f16": call("__float2half_rn(fo_odd_f64_to_f32({0}))"),
            "f64>bf16": call("__float2bfloat16_rn(fo_odd_f64_to_f32({0}))"),
            **_narrowing(_F8),
        },
        "arith.bitcast": {
            "f32>i32": call("__float_as_int({0})"),
            "i32>f32": call("__int_as_float({0})"),
            "f64>i64": call("__double_as_longlong({0})"),
            "i64>f64": call("__longlong_as_double({0})"),
            "f16>i16": call("__half_as_short({0})"),
            "i16>f16": call("__short_as_half({0})"),
            "bf16>i16": call("__bfloat16_as_short({0})"),
            "i16>bf16": call("__short_as_bfloat16({0})"),
            **_F8_BITS,
        },
    }
    return rows


def _gpu_rows() -> dict[str, dict[str, Row]]:
    rows: dict[str, dict[str, Row]] = {}
    for op, variable in (
        ("thread_id", "threadIdx"),
        ("block_id", "blockIdx"),
        ("block_dim", "blockDim"),
        ("grid_dim", "gridDim"),
    ):
        for d in "xyz":
            rows[f"gpu.{op} {d}"] = {"index": prefix(f"({{T}}){variable}.{d}", inline=True)}
    for d in "xyz":
        product = f"({{T}})blockIdx.{d} * ({{T}})blockDim.{d} + ({{T}})threadIdx.{d}"
        rows[f"gpu.global_id {d}"] = {"index": loose(product)}
    for mode, name in (("xor", "shfl_xor"), ("up", "shfl_up"), ("down", "shfl_down"), ("idx", "shfl")):
        shuffle = call(f"__{name}_sync(0xffffffffu, {{0}}, {{1}}, {{2}})")
        narrow = prefix(f"({{T}})__{name}_sync(0xffffffffu, (int){{0}}, {{1}}, {{2}})")
        rows[f"gpu.shuffle {mode}"] = {
            **over(("f16", "bf16", *FLOATS, "i32", "i64"), shuffle),
            **over(("i1", "i8", "i16"), narrow),
        }
    return rows


C = CLanguage(
    name="C",
    types=_types("long", "long", "_Bool", "unsigned short", "unsigned short"),
    stored={"i1": "unsigned char"},
    unsigned=_unsigned("long", "long"),
    rows=_merged(shared_rows(wraps=True), _c_rows()),
    literals={
        "i64": "{text}L",
        "index": "{text}L",
        "f16": "0x{bits:04x}",
        "bf16": "0x{bits:04x}",
        **dict.fromkeys(_F8, "0x{bits:02x}"),
    },
    helpers=c_helpers,
    local_array="{} {}[{}] __attribute__((aligned(64)))",
    lasting_array="static {} {}[{}] __attribute__((aligned(64)))",
    thread_array="static _Thread_local {} {}[{}] __attribute__((aligned(64)))",
    most_local=MOST_ON_STACK,
    local_vector="{0} {1} __attribute__((vector_size({2} * sizeof({0}))))",
    scalar=('__asm__("");',),
    rolled=("#ifdef __clang__", "#pragma clang loop unroll(disable)", "#endif"),
    streamed=("#ifdef __clang__", "#pragma clang loop unroll(disable)", "#else", "#pragma GCC unroll 1", "#endif"),
    prefers=(
        "#if defined(__x86_64__) && !defined(__clang__){where}",
        '__attribute__((noinline, target("prefer-vector-width={bits}")))',
        "#endif",
    ),
    splits_lines=" && !defined(__AVX512FP16__)",
    opaque="fo_opaque_{t}({0})",
    simd="#pragma omp simd",
    reduction=" reduction({}:{})",
    declared_reduction=(
        "#pragma omp declare reduction({name}:{type}:omp_out = {text}) initializer(omp_priv = omp_orig)"
    ),
    reduction_operators={
        "arith.addf": "+",
        "arith.mulf": "*",
        "arith.addi": "+",
        "arith.muli": "*",
        "arith.andi": "&",
        "arith.ori": "|",
        "arith.xori": "^",
        "arith.maxsi": "max",
        "arith.minsi": "min",
    },
)
"""C11 with GNU builtins and `#pragma omp simd`. Compile with -fwrapv -fno-strict-aliasing -fopenmp-simd
-fno-tree-sink -fno-ipa-modref.

Floats of 16 and 8 bits are unsigned integers converted by integer arithmetic, which vectorises; gcc 12 has no `__bf16` and
does not vectorise conversions of `_Float16`."""

CUDA = CLanguage(
    name="CUDA",
    types=_types("long long", "int", "bool", "__half", "__nv_bfloat16"),
    stored={"i1": "unsigned char"},
    unsigned={**_unsigned("long long", "int"), "index": "unsigned"},
    rows=_merged(shared_rows(wraps=False), _cuda_math_rows(), _gpu_rows()),
    literals={
        "i64": "{text}LL",
        "index": "{text}LL",
        "f16": "__float2half_rn({text})",
        "bf16": "__float2bfloat16_rn({text})",
        **dict.fromkeys(_F8, "0x{bits:02x}"),
    },
    helpers=cuda_helpers,
    function="static __device__ {result} {name}",
    kernel='extern "C" __global__ {result} {bounds}{name}',
    launch_bounds="__launch_bounds__({}) ",
    restrict="__restrict__",
    local_array="__align__(16) {} {}[{}]",
    shared_array="__shared__ __align__(16) {} {}[{}]",
    dynamic_shared="extern __shared__ __align__(1024) unsigned char {}[]",
    barrier="__syncthreads()",
    vector="fo_vector<{}, {}>",
    once=("fo_load_once({0})", "fo_store_once({0}, {1})"),
    includes={"f16": "<cuda_fp16.h>", "bf16": "<cuda_bf16.h>"},
    wide_index="long long",
    index_bits=32,
)
"""CUDA C++17 for sm_80 and newer; 8-bit floats are `unsigned char` as in C.

Overflow of i32 and i64 is computed unsigned; `index` is plain, as it must not overflow."""
