"""The C math functions: accuracy against libm's long double, special values, integers, casts, and that they vectorise."""

import functools
import platform
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any, cast

import numpy as np
import pytest
from math_accuracy import (
    BOUNDS,
    BUILDS,
    C_MATH,
    CALLS_LIBM,
    CC,
    DTYPES,
    FLAGS,
    PARTS,
    SCALAR,
    SHARED,
    SIGNATURES,
    TRANSCENDENTAL,
    WARN,
    Library,
    loops,
    need,
    references,
    report,
    run,
    samples,
    ulps,
)
from numpy.typing import NDArray

from fuse_opt.lowering.c.headers.functions import FAMILIES, c_helpers, functions_of

Array = NDArray[Any]
IS_GCC = CC is not None and "gcc" in Path(CC).resolve().name
"""Whether the compiler of this machine is one that says which loops it vectorised."""


Built = Callable[[str, str], tuple[Path, str]]


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Built:
    """By compiler and what it may use of the machine: a library of all loops, and what gcc says of those that are vectors."""

    @functools.cache
    def build(compiler: str, march: str) -> tuple[Path, str]:
        folder = tmp_path_factory.mktemp("c_math")
        source, target = folder / "loops.c", folder / "all.so"
        source.write_text(C_MATH + loops() + references())
        options = [march] if march else []
        if IS_GCC and compiler in (CC, "gcc"):
            options += ["-fopt-info-vec", "-fno-ipa-icf"]  # no loop stands in for an equal one
        said = run(compiler, *FLAGS, *WARN, *options, "-shared", "-fPIC", str(source), "-o", str(target), "-lm")
        return target, said

    return build


@pytest.fixture(scope="module", params=BUILDS)
def lib(request: pytest.FixtureRequest, built: Built) -> Library:
    compiler, march = request.param
    need(compiler)
    return Library(built(compiler, march)[0])


@pytest.mark.sampled(25)
@pytest.mark.parametrize("name", TRANSCENDENTAL)
@pytest.mark.parametrize("type_name", ["f32", "f64"])
def test_accuracy(lib: Library, name: str, type_name: str) -> None:
    function = f"fo_{name}_{type_name}"
    dtype = {"f32": np.float32, "f64": np.float64}[type_name]
    x = samples(dtype, 40_000, seed=len(name))
    exact = lib.reference(name, x)
    if function.startswith(CALLS_LIBM):
        ok = np.isfinite(x)
        assert ulps(lib(function, x), exact)[ok].max() <= 1.0
        return
    if np.finfo(np.longdouble).nmant <= np.finfo(dtype).nmant:
        pytest.skip("long double is no wider than double here: no reference")
    report(function, lib(function, x), exact, x)


@pytest.mark.parametrize("type_name", ["f32", "f64"])
def test_accuracy_of_exp_without_positive_arguments(lib: Library, type_name: str) -> None:
    """Also between the least normal result and what is rounded to 0, and where x - max(x) was rounded above 0."""
    name, dtype = f"fo_exp_negative_{type_name}", {"f32": np.float32, "f64": np.float64}[type_name]
    if np.finfo(np.longdouble).nmant <= np.finfo(dtype).nmant:
        pytest.skip("long double is no wider than double here: no reference")
    least = float(np.log(np.finfo(dtype).smallest_subnormal))
    dense = np.random.default_rng(2).uniform(least - 2, least + 40, 20_000).astype(dtype)
    x = np.concatenate([-np.abs(samples(dtype, 40_000, seed=15)), dense, np.linspace(-1, 1, 20_000).astype(dtype)])
    report(name, lib(name, x), lib.reference("exp", x), x)


@pytest.mark.sampled(27)
@pytest.mark.parametrize("type_name", ["f32", "f64"])
@pytest.mark.parametrize("name", SHARED)
def test_accuracy_of_shared_exponentials(lib: Library, name: str, type_name: str) -> None:
    """Between the greatest results, denormal ones and zero, too."""
    function, dtype = f"fo_shared_{name}_{type_name}", {"f32": np.float32, "f64": np.float64}[type_name]
    if np.finfo(np.longdouble).nmant <= np.finfo(dtype).nmant:
        pytest.skip("long double is no wider than double here: no reference")
    most = -float(np.log(np.finfo(dtype).smallest_subnormal)) + 2
    dense = np.random.default_rng(4).uniform(-most, most, 20_000).astype(dtype)
    x = np.concatenate([samples(dtype, 40_000, seed=16), dense])
    x = -np.abs(x) if "nonpositive" in name else x
    reference, sign = SHARED[name]
    with np.errstate(invalid="ignore"):
        wide = -np.abs(x.astype(np.longdouble)) if sign == 0 else sign * x.astype(np.longdouble)
    if reference == "sigmoid":
        below = lib.reference("exp", -np.abs(wide))
        exact = np.where(wide < 0, below, 1 + 0 * below) / (1 + below)
    else:
        exact = lib.reference(reference, wide)
    got = lib(function, x, x) if reference == "tanh" else lib(function, x)
    report(function, got, exact, x)


@pytest.mark.parametrize("name", ["sin", "cos", "tan"])
def test_accuracy_of_moderate_arguments(lib: Library, name: str) -> None:
    """Below 10000, beside multiples of pi / 2, too: the same bits as the functions of all arguments."""
    if np.finfo(np.longdouble).nmant <= np.finfo(np.float32).nmant:
        pytest.skip("long double is no wider than double here: no reference")
    x = samples(np.float32, 40_000, seed=17)
    near = (np.arange(6366) * (np.pi / 2)).astype(np.float32)
    dense = np.random.default_rng(18).uniform(-1e4, 1e4, 100_000).astype(np.float32)
    x = np.concatenate([x[np.abs(x) < 1e4], near, -near, np.nextafter(near, np.float32(1e9)), dense])
    got = lib(f"fo_moderate_{name}_f32", x)
    np.testing.assert_array_equal(got, lib(f"fo_{name}_f32", x))
    report(f"fo_moderate_{name}_f32", got, lib.reference(name, x), x)


@pytest.mark.parametrize("type_name", ["f32", "f64"])
def test_rsqrt_accuracy(lib: Library, type_name: str) -> None:
    dtype = {"f32": np.float32, "f64": np.float64}[type_name]
    x = samples(dtype, 40_000, seed=1)
    if np.finfo(np.longdouble).nmant <= np.finfo(dtype).nmant:
        pytest.skip("long double is no wider than double here: no reference")
    with np.errstate(all="ignore"):
        report(f"fo_rsqrt_{type_name}", lib(f"fo_rsqrt_{type_name}", x), 1 / np.sqrt(x.astype(np.longdouble)), x)


def test_pow_accuracy(lib: Library) -> None:
    rng = np.random.default_rng(3)
    edge = np.array([0, 1, 0.5, 2, 3, 2.5, 1e-45, 1e-38, 3.4e38, 2**24 - 1, 2**24, np.inf, np.nan], np.float32)
    edge = np.concatenate([edge, -edge])
    x, y = (a.ravel() for a in np.meshgrid(edge, edge))
    parts = [(x, y)]
    parts.append((samples(np.float32, 20_000, 4), rng.permutation(samples(np.float32, 20_000, 5))))
    positive = np.exp(rng.uniform(-88, 88, 60_000)).astype(np.float32)
    reach = (rng.uniform(-104, 89, 60_000) / np.log(positive.astype(float))).astype(np.float32)
    near = (1 + rng.normal(0, 1e-3, 60_000)).astype(np.float32)
    parts += [(positive, reach), (near, rng.uniform(-60000, 60000, 60_000).astype(np.float32))]
    parts.append((-positive, np.round(reach)))
    x, y = (np.concatenate([p[i] for p in parts]) for i in range(2))
    report("fo_pow_f32", lib("fo_pow_f32", x, y), lib.reference("pow", x, y), x, y)


def pairs(dtype: Any, seed: int) -> tuple[Array, Array]:
    """Special pairs, any two numbers, and two numbers of about one size, of every size."""
    rng = np.random.default_rng(seed)
    info = np.finfo(dtype)
    edge = np.array([0, 1, 2.5, np.inf, np.nan, info.max, info.tiny, info.smallest_subnormal], dtype)
    edge = np.concatenate([edge, -edge])
    x, y = (a.ravel() for a in np.meshgrid(edge, edge))
    any_x = samples(dtype, 20_000, seed)
    size = np.ldexp(1.0, rng.integers(info.minexp - info.nmant, info.maxexp - 3, 60_000))
    near_x, near_y = ((rng.normal(0, 1, 60_000) * size).astype(dtype) for _ in range(2))
    return np.concatenate([x, any_x, near_x]), np.concatenate([y, rng.permutation(any_x), near_y])


@pytest.mark.parametrize("type_name", ["f32", "f64"])
@pytest.mark.parametrize("name", ["atan2", "hypot"])
def test_accuracy_of_two(lib: Library, name: str, type_name: str) -> None:
    dtype = {"f32": np.float32, "f64": np.float64}[type_name]
    if np.finfo(np.longdouble).nmant <= np.finfo(dtype).nmant:
        pytest.skip("long double is no wider than double here: no reference")
    x, y = pairs(dtype, seed=11)
    report(f"fo_{name}_{type_name}", lib(f"fo_{name}_{type_name}", x, y), lib.reference(name, x, y), x, y)


@pytest.mark.parametrize("type_name", ["f32", "f64"])
def test_lgamma_accuracy(lib: Library, type_name: str) -> None:
    """Below -2, in f64, the error is one of max(|y|, 1): no digits are left next to a zero."""
    name, dtype = f"fo_lgamma_{type_name}", {"f32": np.float32, "f64": np.float64}[type_name]
    if np.finfo(np.longdouble).nmant <= np.finfo(dtype).nmant:
        pytest.skip("long double is no wider than double here: no reference")
    rng = np.random.default_rng(12)
    ranges = ((-3, 3), (-25, 0), (-200, 0), (0, 10), (0.99, 1.01), (1.99, 2.01))
    dense = [rng.uniform(low, high, 20_000).astype(dtype) for low, high in ranges]
    whole = np.arange(-40, 40).astype(dtype)
    beside = [np.nextafter(whole, dtype(far)) for far in (-100, 100)]
    x = np.concatenate([samples(dtype, 40_000, 13), whole, *beside, *dense])
    got, exact = lib(name, x), lib.reference("lgamma", x)
    above = ~(x < -2) if dtype is np.float64 else np.isfinite(x) | ~np.isfinite(x)
    report(name, got[above], exact[above], x[above])
    rest, eps = ~above & np.isfinite(exact), float(np.finfo(dtype).eps)
    error = np.abs(got[rest] - exact[rest]) / np.maximum(np.abs(exact[rest]), 1)
    assert np.all(error <= BOUNDS[name] * eps)
    np.testing.assert_array_equal(got[~above & ~rest], exact[~above & ~rest].astype(dtype))


@pytest.mark.parametrize("type_name", ["f32", "f64"])
def test_log10_is_exact_at_powers_of_ten(lib: Library, type_name: str) -> None:
    count = {"f32": 11, "f64": 23}[type_name]
    powers = np.array([float(10**k) for k in range(count)])
    assert lib(f"fo_log10_{type_name}", powers).tolist() == list(range(count))


def test_worst_reductions_of_sine(lib: Library) -> None:
    """The floats nearest to a multiple of pi / 2, of odd and of even ones, and other known hard ones."""
    hard = np.array([float.fromhex("0x1.f37c8ap+96"), float.fromhex("0x1.f37c8ap+95"), 2.0**127, 3.1415927, 102943.71])
    x = hard.astype(np.float32)
    for name in ("sin", "cos", "tan"):
        report(f"fo_{name}_f32", lib(f"fo_{name}_f32", x), lib.reference(name, x), x)


@pytest.mark.parametrize("type_name", ["f32", "f64"])
def test_exact_functions_equal_numpy(lib: Library, type_name: str) -> None:
    dtype = {"f32": np.float32, "f64": np.float64}[type_name]
    x = samples(dtype, 20_000, seed=6)
    y = np.random.default_rng(7).permutation(x)
    unary: dict[str, Callable[[Array], Array]] = {
        "sqrt": np.sqrt,
        "floor": np.floor,
        "ceil": np.ceil,
        "trunc": np.trunc,
        "round": np.rint,
    }
    binary: dict[str, Callable[[Array, Array], Array]] = {
        "max": np.maximum,
        "min": np.minimum,
        "rem": np.remainder,
        "floordiv": np.floor_divide,
        "fmod": np.fmod,
    }
    with np.errstate(all="ignore"):
        for name, reference in unary.items():
            got, expected = lib(f"fo_{name}_{type_name}", x), reference(x)
            np.testing.assert_array_equal(got, expected, err_msg=name)
            number = ~np.isnan(x)
            np.testing.assert_array_equal(np.signbit(got[number]), np.signbit(expected[number]), err_msg=name)
        for name, reference in binary.items():
            np.testing.assert_array_equal(lib(f"fo_{name}_{type_name}", x, y), reference(x, y), err_msg=name)
        eps = np.finfo(dtype).eps
        got = lib(f"fo_fma_{type_name}", np.array([1 + eps]), np.array([1 - eps]), np.array([-1]))
        assert got.tolist() == [-(float(eps) ** 2)]


WHOLE = ["i8", "i16", "i32", "i64", "u8", "u16", "u32", "u64"]


def integers(dtype: Any) -> tuple[Array, Array]:
    info = np.iinfo(dtype)
    if info.bits == 8:
        every: Array = np.arange(info.min, info.max + 1).astype(dtype)
        x, y = (a.ravel() for a in np.meshgrid(every, every))
        return x, y
    rng = np.random.default_rng(9)
    edge = [info.min, info.min + 1, *([-2, -1] if info.min else []), 0, 1, 2, info.max - 1, info.max]
    wide: Array = np.asarray(cast(Any, rng).integers(info.min, info.max, 300, dtype=dtype, endpoint=True))
    small: Array = rng.integers(-100 if info.min else 0, 100, 100).astype(dtype)
    values = np.concatenate([np.array(edge, dtype), wide, small])
    x, y = (a.ravel() for a in np.meshgrid(values, values))
    return x, y


def wrapped(value: int, itemsize: int) -> int:
    half = 1 << (8 * itemsize - 1)
    return (value + half) % (2 * half) - half


@pytest.mark.sampled(12)
@pytest.mark.parametrize("type_name", WHOLE)
def test_integer_division_equals_numpy(lib: Library, type_name: str) -> None:
    x, y = integers(DTYPES[f"fo_{type_name}"])
    with np.errstate(all="ignore"):
        np.testing.assert_array_equal(lib(f"fo_floordiv_{type_name}", x, y), np.floor_divide(x, y))
        np.testing.assert_array_equal(lib(f"fo_rem_{type_name}", x, y), np.remainder(x, y))
        if type_name[0] == "i":
            found = zip(x.tolist(), y.tolist(), lib(f"fo_truncdiv_{type_name}", x, y).tolist(), strict=True)
            assert all(
                wrapped(abs(a) // abs(b) * (-1) ** ((a < 0) != (b < 0)) if b else 0, x.itemsize) == q
                for a, b, q in found
            )


@pytest.mark.parametrize("type_name", WHOLE)
def test_shifts_equal_numpy(lib: Library, type_name: str) -> None:
    """NumPy shifts everything out where the count is negative or not below the width."""
    x, y = integers(DTYPES[f"fo_{type_name}"])
    np.testing.assert_array_equal(lib(f"fo_shl_{type_name}", x, y), np.left_shift(x, y))
    np.testing.assert_array_equal(lib(f"fo_shr_{type_name}", x, y), np.right_shift(x, y))


@pytest.mark.sampled(24)
@pytest.mark.parametrize("target", WHOLE)
@pytest.mark.parametrize("type_name", ["f32", "f64"])
def test_casts_truncate_and_saturate(lib: Library, type_name: str, target: str) -> None:
    dtype = {"f32": np.float32, "f64": np.float64}[type_name]
    info = np.iinfo(DTYPES[f"fo_{target}"])
    ends = np.array([float(info.min), float(info.max)], dtype)
    near = [np.nextafter(ends, dtype(np.inf)), np.nextafter(ends, dtype(-np.inf)), ends - dtype(0.5), ends + dtype(0.5)]
    x = np.concatenate([samples(dtype, 5_000, seed=10), ends, *near])
    expected = [
        0 if np.isnan(v) else info.max if v >= info.max else info.min if v <= info.min else int(v) for v in x.tolist()
    ]
    got = lib(f"fo_cast_{type_name}_{target}", x)
    assert got.tolist() == expected


def test_no_undefined_behaviour(tmp_path: Path) -> None:
    """Every function at every combination of special arguments under the sanitizer, which stops at the first trap."""
    need(CC or "cc")
    floats = (
        "0, -0.0, 1, -1, 0.5, -2.5, 1e-45, 1e-310, 127.5, 255.5, 2147483648.0, -2147483648.0, 9223372036854775808.0, "
    )
    floats += "-9.3e18, 1e30, -1e30, 3.4e38, 1e300, -1e300, 88.8, -104, 745, 1 / zero, -1 / zero, zero / zero"
    whole = "0, 1, -1, 2, -2, 127, -128, 255, 32767, -32768, 2147483647, -2147483647 - 1, "
    whole += "9223372036854775807, -9223372036854775807 - 1"
    body: list[str] = []
    for name, (result, parameters) in SIGNATURES.items():
        if name in PARTS:
            continue
        opens = "".join(f"for (int i{k} = 0; i{k} < N{t[:2]}; i{k}++) " for k, t in enumerate(parameters))
        actuals = ", ".join(f"({t}){t[:2]}s[i{k}]" for k, t in enumerate(parameters))
        body.append(f"{opens}{{ volatile {result} y = {name}({actuals}); (void)y; }}")
    text = "\n".join(body).replace("Nfl", "NF").replace("Ndo", "NF").replace("Nfo", "NI")
    text = text.replace("fls[", "fs[").replace("dos[", "fs[").replace("fos[", "is[")
    main = (
        f"int main(void) {{ volatile double zero = 0; double fs[] = {{{floats}}}; fo_i64 is[] = {{{whole}}};\n"
        f"enum {{ NF = sizeof fs / sizeof *fs, NI = sizeof is / sizeof *is }};\n{text}\nreturn 0; }}\n"
    )
    source, program = tmp_path / "ub.c", tmp_path / "ub"
    source.write_text(C_MATH + main)
    sanitize = ["-fsanitize=undefined,float-cast-overflow", "-fsanitize-undefined-trap-on-error"]
    run(CC or "cc", "-O0", *FLAGS[1:], *sanitize, str(source), "-o", str(program), "-lm")
    run(str(program))


def test_loops_vectorise(built: Built) -> None:
    """gcc says which loops it vectorised: all but those of functions documented as scalar."""
    need("gcc")
    if platform.machine() not in ("x86_64", "AMD64") or "clang" in run("gcc", "--version"):
        pytest.skip("the remarks of gcc on x86-64 are read here")
    native = IS_GCC and "__AVX512BW__" in run(CC or "cc", "-march=native", "-dM", "-E", "-x", "c", "/dev/null")
    compiler, march = (CC or "cc", "-march=native") if native else ("gcc", "-march=x86-64-v4")
    text, remarks = C_MATH + loops(), built(compiler, march)[1]
    vectorised = {int(m[1]) for m in re.finditer(r"loops\.c:(\d+):\d+: optimized: loop vectorized", remarks)}
    scalar = [
        name
        for number, line in enumerate(text.splitlines(), 1)
        for name in re.findall(r"^void loop_(\w+)\(", line)
        if number not in vectorised and not name.startswith(SCALAR)
    ]
    assert scalar == []


def test_clamps_are_minima_and_maxima(tmp_path: Path) -> None:
    """gcc compares and blends where it knows the bounds (`FO_KEPT`); stores that may alias leave loops vectors."""
    need("gcc")
    if platform.machine() not in ("x86_64", "AMD64") or "clang" in run("gcc", "--version"):
        pytest.skip("the instructions of gcc on x86-64 are read here")
    names = [f"fo_{word}_{t}" for word in ("exp", "exp_negative", "exp2", "tanh", "erf") for t in ("f32", "f64")]
    wanted = [line for line in loops().splitlines() if re.match(rf"void loop_({'|'.join(names)})\(", line)]
    body = "for (long i = 0; i < n; i++) y[i] = fo_cast_f32_i8(fo_exp_f32(x[i]));"
    wanted.append(f'void chars(long n, fo_i8 *y, const float *x) {{ _Pragma("omp simd") {body} }}')
    source, target = tmp_path / "clamps.c", tmp_path / "clamps.s"
    source.write_text(c_helpers([*names, "fo_cast_f32_i8"]) + "\n".join(wanted) + "\n")
    options = ["-march=x86-64-v4", "-mprefer-vector-width=512", "-fno-strict-aliasing", "-S"]
    run("gcc", *FLAGS, *options, str(source), "-o", str(target))
    loop_of = {
        m[1]: m[0] for m in re.finditer(r"^(\w+):\n.*?\.size\t\1,", target.read_text(), re.MULTILINE | re.DOTALL)
    }
    assert len(loop_of) == len(names) + 1
    for name, text in loop_of.items():
        assert re.search(r"v(min|max)p[sd]\t.*%zmm", text), f"{name} has no minimum of vectors"
        assert name == "chars" or not re.search(r"vp?cmp\w*p[sd]\t", text), f"{name} compares"


@pytest.mark.parametrize("name", functions_of(FAMILIES))
def test_each_function_is_complete_alone(name: str) -> None:
    text = c_helpers([name])
    defined = re.findall(r"^(?:FO_FN|FO_APART) [\w ]+? \*?(fo_\w+)\(", text, re.MULTILINE)
    assert defined[-1] == name
    for position, each in enumerate(defined):
        body = text.split(f" {each}(", 1)[1].split("\n}\n", 1)[0]
        assert set(re.findall(r"\b(fo_\w+)\(", body)) <= set(defined[:position])


def test_selection_is_deterministic_and_compiles(tmp_path: Path) -> None:
    need(CC or "cc")
    text = c_helpers({"fo_erf_f64", "fo_tanh_f64", "fo_rem_i8"})
    assert text == c_helpers(["fo_rem_i8", "fo_tanh_f64", "fo_erf_f64", "fo_erf_f64"])
    assert text.count("fo_expm1_core_f64(double x) {") == 1
    assert "fo_log" not in text
    assert c_helpers([]) == ""
    source = tmp_path / "some.c"
    source.write_text(text)
    run(CC or "cc", *FLAGS, *WARN, "-fsyntax-only", str(source))
    with pytest.raises(KeyError, match="a function 'fo_nothing'"):
        c_helpers(["fo_nothing"])
