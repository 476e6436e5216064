"""Statements of random functions of jax. Each function adds one, or nothing."""

from __future__ import annotations

from jax_functions import ANY, FLOATS, INTEGERS, NUMBERS, Builder, Variable

JOINED = "lambda p, q: (p[0] + q[0], jnp.maximum(p[1], q[1]))"
SMOOTH = [
    "jnp.tanh",
    "jnp.exp",
    "jnp.sin",
    "jnp.cos",
    "jnp.arctan",
    "nn.sigmoid",
    "nn.relu",
    "nn.softplus",
    "nn.gelu",
    "nn.silu",
    "nn.elu",
    "nn.selu",
    "nn.mish",
    "jnp.sinh",
    "jnp.cosh",
    "jnp.arcsinh",
    "jnp.square",
    "jnp.expm1",
    "lax.erf",
    "jnp.logaddexp2",
    "nn.relu6",
    "nn.hard_sigmoid",
    "nn.hard_swish",
    "nn.log_sigmoid",
    "nn.leaky_relu",
    "nn.soft_sign",
    "nn.celu",
    "jnp.sinc",
    "jnp.exp2",
    "jnp.deg2rad",
]
EXACT = [
    "jnp.abs",
    "jnp.negative",
    "jnp.sign",
    "jnp.floor",
    "jnp.ceil",
    "jnp.round",
    "jnp.trunc",
    "jnp.isnan",
    "jnp.isfinite",
    "jnp.signbit",
]
POSITIVE = [
    "jnp.log",
    "jnp.sqrt",
    "lax.rsqrt",
    "jnp.log1p",
    "jnp.cbrt",
    "jnp.reciprocal",
    "lax.lgamma",
    "lax.digamma",
    "jnp.log2",
    "jnp.log10",
]
UNIT = ["jnp.arcsin", "jnp.arccos", "jnp.arctanh", "lax.erf_inv", "jnp.tan"]


def smooth(b: Builder) -> None:
    x = b.pick(FLOATS)
    b.add(f"{b.rng.choice(SMOOTH)}({x})", x)


def exact(b: Builder) -> None:
    x = b.pick(NUMBERS, exact=True)
    b.add(f"{b.rng.choice(EXACT)}({x})", x, exact=True)


def ranged(b: Builder) -> None:
    positive = b.chance(0.6)
    x = b.fresh(b.shape(), b.rng.choice(FLOATS), *((0.5, 4) if positive else (-0.75, 0.75)))
    b.add(f"{b.rng.choice(POSITIVE if positive else UNIT)}({x})", x)


def binary(b: Builder) -> None:
    x = b.pick(NUMBERS)
    y = b.partner(x) if b.chance(0.7) else b.fresh(x.shape, b.rng.choice(ANY))
    op = b.rng.choice(
        ("{} + {}", "{} - {}", "{} * {}", "jnp.maximum({}, {})", "jnp.minimum({}, {})", "jnp.arctan2({}, {})")
    )
    b.add(op.format(x, y), x, y, exact="m(" in op or not (x.is_float or y.is_float))


def scalars(b: Builder) -> None:
    x = b.pick(NUMBERS)
    op = b.rng.choice(
        ("{} * 2", "{} + 0.5", "3 - {}", "{} ** 2", "{} ** 3", "jnp.clip({}, -1, 1)", "{} / 4", "{} + 1", "-{}")
    )
    b.add(op.format(x), x, exact=not x.is_float and "0.5" not in op)


def quotients(b: Builder) -> None:
    x = b.pick(NUMBERS, exact=True)
    y = b.partner(x, 1, 3, same=True)
    op = b.rng.choice(
        ("{} / {}", "{} // {}", "{} % {}", "lax.div({}, {})", "lax.rem({}, {})", "jnp.fmod({}, {})", "jnp.power({}, {})",
         "jnp.divmod({}, {})", "lax.nextafter({}, {})", "jnp.hypot({}, {})", "jnp.logaddexp({}, {})", "jnp.copysign({}, {})",
         "jnp.float_power({}, {})", "jnp.gcd({}, {})", "jnp.remainder({}, {})")
    )  # fmt: skip
    b.add(op.format(x, y), x, y, exact=not x.is_float)


def comparisons(b: Builder) -> None:
    x = b.pick(ANY, exact=True)
    y = b.fresh(x.shape, x.dtype)
    b.add(f"{x} {b.rng.choice(('<', '<=', '==', '!=', '>', '>='))} {y}", x, y, exact=True)


def bits(b: Builder) -> None:
    x = b.pick((*INTEGERS, "bool"))
    y = b.partner(x, same=True)
    op = b.rng.choice(("{} & {}", "{} | {}", "{} ^ {}", "~{}", "lax.population_count({})", "lax.clz({})"))
    b.add(op.format(x, y), x, y, exact=True)
    if x.dtype != "bool":
        z = b.fresh(x.shape, x.dtype, 0, 3)
        how = b.rng.choice(("left", "right_arithmetic", "right_logical"))
        b.add(f"lax.shift_{how}({x}, {z})", x, z, exact=True)


def where(b: Builder) -> None:
    x = b.pick(ANY)
    c, y = b.fresh(x.shape, "bool"), b.partner(x)
    b.add(f"jnp.where({c}, {x}, {y})", x, y, exact=True)


def casts(b: Builder) -> None:
    to = b.rng.choice((*ANY, "int16", "uint16"))
    x = b.pick(ANY, exact=to not in FLOATS)
    if to.startswith("u") and x.dtype != "bool":
        x = b.fresh(x.shape, x.dtype, 0, 5)
    b.add(f"{x}.astype('{to}')", x, exact=True)


def bitcasts(b: Builder) -> None:
    x = b.pick(("float32", "int32", "uint32"), exact=True)
    to = b.rng.choice(("int32", "uint32", "uint8", "int16"))
    b.add(f"lax.bitcast_convert_type({x}, jnp.{to})", x, exact=True)


def movement(b: Builder) -> None:
    x = b.pick(ANY, 1)
    axis, other = b.axis(x.rank), b.axis(x.rank)
    shift = b.rng.randint(-3, 3)
    order = list(range(x.rank))
    b.rng.shuffle(order)
    texts = (
        f"jnp.flip({x}, {axis})", f"jnp.roll({x}, {shift}, {axis})", f"jnp.roll({x}, {shift})",
        f"jnp.swapaxes({x}, {axis}, {other})",
        f"jnp.transpose({x}, {tuple(order)})", f"{x}.reshape(-1)", f"{x}.reshape({x.shape[::-1]})",
        f"jnp.expand_dims({x}, {axis})",
        f"jnp.squeeze({x})", f"jnp.concatenate([{x}, {x}], {axis})", f"jnp.stack([{x}, {x}], {axis})", f"jnp.tile({x}, 2)",
        f"jnp.repeat({x}, 2, {axis})", f"jnp.tril({x}, {shift})", f"jnp.triu({x}, {shift})", f"jnp.diagonal({x})",
        f"jnp.broadcast_to({x}, {(2, *x.shape)})", f"jnp.rot90({x})", f"jnp.moveaxis({x}, {axis}, {other})", f"{x}[..., None]",
        f"jnp.array_split({x}, 2, {axis})", f"jnp.kron({x}, {x})", f"jnp.vander({x}, 3)", f"jnp.diag({x})",
    )  # fmt: skip
    b.add(b.rng.choice(texts), x, exact=True)


def slices(b: Builder) -> None:
    x = b.pick(ANY, 1)
    parts = list[str]()
    for n in x.shape[: b.rng.randint(1, x.rank)]:
        a, z = b.rng.randint(-n - 1, n + 1), b.rng.randint(-n - 1, n + 1)
        parts.append(
            b.rng.choice(
                (f"{a}:{z}", f"{a}:", "::2", "::-1", f"{z}:{a}:-2", str(b.rng.randrange(n)) if n else ":", ":")
            )
        )
    b.add(f"{x}[{', '.join(parts)}]", x, exact=True)


def dynamic_slices(b: Builder) -> None:
    x = b.pick(ANY, 1)
    kind = b.rng.choice(("int32", "int64", "uint8"))
    at = [b.argument(b.numbers.integers(0 if kind == "uint8" else -3, 5, ()).astype(kind)) for _ in x.shape]
    sizes = tuple(b.rng.randint(min(n, 1), n) for n in x.shape)
    names = ", ".join(map(str, at))
    if b.chance(0.5):
        b.add(f"lax.dynamic_slice({x}, ({names},), {sizes})", x, *at, exact=True)
        return
    update = b.fresh(sizes, x.dtype)
    b.add(f"lax.dynamic_update_slice({x}, {update}, ({names},))", x, update, *at, exact=True)


def pads(b: Builder) -> None:
    x = b.pick(ANY, 1)
    if b.chance(0.5):
        widths = [(b.rng.randint(-1, 2), b.rng.randint(-1, 2), b.rng.choice((0, 0, 1, 2))) for _ in x.shape]
        b.add(f"lax.pad({x}, {x}.dtype.type(1), {widths})", x, exact=True)
        return
    mode = b.rng.choice(("constant", "edge", "reflect", "symmetric", "wrap", "linear_ramp", "maximum", "mean"))
    widths = [(b.rng.randint(0, 2), b.rng.randint(0, 3)) for _ in x.shape]
    b.add(f"jnp.pad({x}, {widths}, mode='{mode}')", x, exact=mode not in ("linear_ramp", "mean"))


def reductions(b: Builder) -> None:
    x = b.pick(ANY, 0)
    axes = tuple(b.rng.sample(range(x.rank), b.rng.randint(0, x.rank)))
    op = b.rng.choice(
        [
            "sum",
            "mean",
            "max",
            "min",
            "prod",
            "var",
            "std",
            "any",
            "all",
            "ptp",
            "count_nonzero",
            "nanmax",
            "linalg.norm",
            "average",
        ]
    )
    keep = ", keepdims=True" if b.chance(0.4) and op != "average" else ""
    axis = b.rng.choice((f", axis={axes}", "", f", axis={b.axis(x.rank)}"))
    b.add(f"jnp.{op}({x}{axis}{keep})", x, exact=op in ("max", "min", "any", "all") or not x.is_float)


def special_reductions(b: Builder) -> None:
    x = b.pick(FLOATS, 1)
    axis = b.axis(x.rank)
    texts = (
        f"nn.softmax({x}, {axis})", f"nn.log_softmax({x}, {axis})", f"nn.logsumexp({x}, {axis})", f"nn.standardize({x}, {axis})",
        f"jnp.cumsum({x}, {axis})", f"jnp.cumprod({x}, {axis})", f"lax.cummax({x}, {axis % x.rank})",
        f"lax.cummin({x}, {axis % x.rank}, True)",
        f"lax.cumsum({x}, {axis % x.rank}, reverse=True)", f"lax.cumlogsumexp({x}, {axis % x.rank})",
        f"jnp.diff({x}, axis={axis})",
        f"nn.glu({x}, {axis})", f"jnp.trapezoid({x}, axis={axis})", f"jnp.gradient({x}, axis={axis})", f"jnp.cov({x})",
    )  # fmt: skip
    b.add(b.rng.choice(texts), x)


def orders(b: Builder) -> None:
    """Without ties."""
    x = b.pick(("float32", "int32", "float64", "bfloat16"), 1)
    numbers = b.numbers.permutation(min(x.value.size, 200)).astype("float64") / (4 if x.is_float else 1)
    shape = x.shape if x.value.size <= 200 else (200,)
    d = b.argument(numbers.reshape(shape).astype(x.value.dtype))
    axis = b.axis(d.rank)
    texts = (
        f"jnp.sort({d}, {axis})", f"jnp.argsort({d}, {axis})", f"jnp.argmax({d}, {axis})", f"jnp.argmin({d}, {axis})",
        f"jnp.sort({d}, {axis}, descending=True)", f"lax.top_k({d}, {min(2, d.shape[-1])})", f"jnp.median({d}, {axis})",
        f"jnp.argmax({d})", f"lax.sort(({d}, jnp.sin({d})), dimension={axis % d.rank}, num_keys=1)",
        f"jnp.quantile({d}, 0.3, {axis})",
        f"lax.sort(({d} // 3, {d}), dimension={axis % d.rank}, num_keys=2)", f"jnp.searchsorted(jnp.sort({d}.ravel()), {d})",
        f"lax.approx_max_k({d}, 1)", f"jnp.partition({d}, 0, {axis})", f"jnp.lexsort(({d}, {d} > 3))",
    )  # fmt: skip
    b.add(b.rng.choice(texts), d, exact=True)


def gathers(b: Builder) -> None:
    x = b.pick(ANY, 1)
    axis, n = b.axis(x.rank), 0
    n = x.shape[axis]
    kind = b.rng.choice(("int32", "int64", "int8"))
    at = b.argument(b.numbers.integers(-n, max(n, 1), b.shape(0, 2)).astype(kind))
    mode = b.rng.choice(("clip", "wrap", "fill", None))
    how = f", mode={mode!r}" if mode else ""
    first = b.argument(b.numbers.integers(-x.shape[0], max(x.shape[0], 1), (3, 1)).astype("int32"))
    last = b.argument(b.numbers.integers(0, max(x.shape[-1], 1), (2,)).astype("int32"))
    along = b.argument(
        b.numbers.integers(0, max(n, 1), [2 if k == axis % x.rank else m for k, m in enumerate(x.shape)])
    )
    texts = (
        f"jnp.take({x}, {at}, axis={axis}{how})", f"{x}[{first}, ..., {last}]", f"{x}[{at}]", f"{x}[{first}, {last}]",
        f"jnp.take_along_axis({x}, {along}, {axis})", f"{x}[..., {last}]", f"{x}[:, {first}]", f"{x}[{last}, None, :2]",
        f"{x}.at[{at}].get(mode='fill', fill_value=1)", f"jnp.choose(0, [{x}, {x}])", f"nn.one_hot({at}, 5)",
        f"jnp.take({x}, {at})",
    )  # fmt: skip
    b.add(b.rng.choice(texts), x, exact=True)


def scatters(b: Builder) -> None:
    x = b.pick(NUMBERS, 1, 4, exact=True)
    n = x.shape[0]
    how = b.rng.choice(("add", "max", "min", "mul", "set"))
    single = how in ("set", "mul")
    at = b.numbers.permutation(max(n, 1))[: min(n, 3)] if single else b.numbers.integers(-n, n + 1, (3,))
    a = b.argument(at.astype(b.rng.choice(("int32", "int64"))))
    texts = (
        f"{x}.at[{a}].{how}({x}[:1] * 2)", f"{x}.at[{a}, ..., 0].{how}(1)", f"{x}.at[1:, ..., ::2].{how}(2)",
        f"{x}.at[{a}].{how}(1, mode='drop')", f"jax.ops.segment_sum({x}, jnp.arange({n}) % 2, num_segments=3)",
        f"jax.ops.segment_max({x}, jnp.arange({n}) // 2, num_segments={n // 2 + 1})", f"{x}.at[{a}[:, None], {a}].{how}(1)",
        f"{x}.at[:, {a}].{how}(3)", f"jnp.bincount({a} % 4, length=5)", f"{x}.at[0].{how}({x}[-1])",
    )  # fmt: skip
    b.add(b.rng.choice(texts), x, exact=True)


def products(b: Builder) -> None:
    dtype = b.rng.choice((*FLOATS, "int32", "int8", "uint8"))
    x = b.pick((dtype,), 1, 4)
    y = b.fresh((x.shape[-1], b.extent()) if b.chance(0.7) else (x.shape[-1],), dtype)
    wide = f", preferred_element_type='{b.rng.choice(('float32', 'int32', 'float64'))}'" if b.chance(0.3) else ""
    contract = f"lax.dot_general({x}, {x}, ((({x.rank - 1},), ({x.rank - 1},)), ((0,), (0,))){wide})"
    texts = [
        f"{x} @ {y}",
        f"jnp.dot({x}, {y}{wide})",
        f"jnp.tensordot({x}, {y}, 1)",
        f"jnp.inner({x}, {x})",
        f"jnp.outer({x}, {x})",
    ]
    texts += [f"jnp.matmul({x}, {y}{wide})"] + ([contract] * 2 if x.rank > 1 else [])
    b.add(b.rng.choice(texts), x, y, exact=not x.is_float)


def contractions(b: Builder) -> None:
    sizes = {letter: b.rng.choice((1, 2, 3, 5)) for letter in "abcdef"}
    equation = b.rng.choice(
        ("abcd,bcda->ca", "abc,cde->abde", "ab,cb->ac", "abc,bdc->adb", "abcd,abed->abce", "aab,bc->ac", "ab,bc,cd->ad", "abc->b",
         "abcd,cf,be->afed", "ab,ab->ab", "a,b,c->cab", "abcd,dcba->", "abab->ab")
    )  # fmt: skip
    dtype, operands = b.rng.choice(("float32", "float64", "bfloat16", "int32")), list[Variable]()
    for term in equation.partition("->")[0].split(","):
        operands.append(b.fresh([sizes[letter] for letter in term], dtype))
    b.add(f"jnp.einsum('{equation}', {', '.join(map(str, operands))})", *operands)


def convolutions(b: Builder) -> None:
    count, groups, batches = b.rng.choice((1, 2, 2, 3)), b.rng.choice((1, 1, 2, 3)), 1
    if groups == 1 and b.chance(0.25):
        batches = 2
    letters = "HWD"[:count]
    spec: list[str] = []
    for first, second in (("N", "C"), ("I", "O"), ("N", "C")):
        order = [first, second, *letters]
        if b.chance(0.5):
            b.rng.shuffle(order)
        spec.append("".join(order))
    inner, outer = b.rng.choice((1, 2, 3)), b.rng.choice((1, 2, 4)) * groups * batches
    extents = {"N": b.rng.choice((1, 2)) * batches, "C": inner * groups, **{c: b.rng.randint(3, 8) for c in letters}}
    kernel = {"I": inner, "O": outer, **{c: b.rng.choice((1, 2, 3)) for c in letters}}
    dtype = b.rng.choice(("float32", "float32", "float64", "bfloat16", "int8"))
    x = b.fresh([extents[c] for c in spec[0]], dtype)
    w = b.fresh([kernel[c] for c in spec[1]], dtype, -1, 1)
    padding = (
        repr(b.rng.choice(("SAME", "VALID", "SAME_LOWER")))
        if b.chance(0.4)
        else [(b.rng.randint(0, 2), b.rng.randint(0, 3)) if b.chance(0.8) else (-1, 0) for _ in letters]
    )  # XLA is wrong where one side is padded and the other one cut
    more = f", feature_group_count={groups}" if groups > 1 else f", batch_group_count={batches}" if batches > 1 else ""
    for name in ("lhs_dilation", "rhs_dilation"):
        if b.chance(0.3) and isinstance(padding, list):
            more += f", {name}={tuple(b.rng.choice((1, 2)) for _ in letters)}"
    more += ", preferred_element_type='int32'" if dtype == "int8" else ""
    strides = tuple(b.rng.choice((1, 1, 2, 3)) for _ in letters)
    call = f"lax.conv_general_dilated({x}, {w}, {strides}, {padding}, dimension_numbers={tuple(spec)}{more})"
    if b.chance(0.15) and dtype != "int8":
        call = f"lax.conv_transpose({x}, {w}, {strides}, 'SAME', dimension_numbers={tuple(spec)})"
    b.add(call, x, w)


def windows(b: Builder) -> None:
    x = b.pick(("float32", "float32", "int32", "float64", "bfloat16"), 1, 4)
    sizes, strides, base, inner = (
        tuple(b.rng.choice(choices) for _ in x.shape) for choices in ((1, 2, 3), (1, 1, 2), (1, 1, 1, 2), (1, 1, 1, 2))
    )
    padding = b.rng.choice(("'SAME'", "'VALID'", str([(b.rng.randint(0, 2), b.rng.randint(0, 1)) for _ in x.shape])))
    start, op = b.rng.choice((("0", "lax.add"), ("-99", "lax.max"), ("99", "lax.min"), ("1", "lax.mul")))
    more = f", base_dilation={base}" if b.chance(0.3) else ""
    more += f", window_dilation={inner}" if b.chance(0.3) else ""
    b.add(
        f"lax.reduce_window({x}, {x}.dtype.type({start}), {op}, {sizes}, {strides}, {padding}{more})",
        x,
        exact=op != "lax.add",
    )


def control(b: Builder) -> None:
    x = b.pick(("float32", "int32", "float64"), 1)
    p = b.fresh((), "bool")
    k = b.argument(b.numbers.integers(-1, 4, ()).astype("int32"))
    texts = (
        f"lax.scan(lambda c, e: (c + e, c * e), jnp.zeros_like({x}[0]), {x})",
        f"lax.fori_loop(0, 3, lambda i, c: c + {x} * i, {x})",
        f"lax.scan(lambda c, e: (c * 2 + e.sum(), c), {x}.sum() * 0, {x}, reverse=True)",
        f"lax.map(lambda e: e * 2 + e.sum(), {x})",
        f"lax.scan(lambda c, _: (c + 1, c[0]), {x}, None, length=4)", f"lax.cond({p}, lambda v: v * 2, lambda v: v + 1, {x})",
        f"lax.switch({k}, [lambda v: v, lambda v: v * 2, lambda v: -v], {x})", f"lax.associative_scan(jnp.add, {x})",
        f"lax.while_loop(lambda c: c[0] < 5, lambda c: (c[0] + 2, c[1] * 2), (0, {x}))[1]",
        f"jax.checkpoint(lambda v: v * 3)({x})",
        f"lax.while_loop(lambda c: c.sum() < 5, lambda c: c + 1, {x})", f"lax.associative_scan(jnp.maximum, {x}, reverse=True)",
        f"lax.reduce({x}, {x}.dtype.type(0), lambda p, q: p + q, (0,))",
        f"lax.reduce(({x}, {x} * 2), ({x}.dtype.type(0), {x}.dtype.type(-99)), {JOINED}, (0,))",
        f"jax.vmap(lambda v: v * v.sum())({x})", f"jax.custom_jvp(lambda v: v * 2)({x})", f"lax.stop_gradient({x}) + {x}",
        f"lax.optimization_barrier({x}) * 2", f"lax.reduce_precision({x}.astype('float32'), 5, 4)",
    )  # fmt: skip
    b.add(b.rng.choice(texts), x)


def creation(b: Builder) -> None:
    n, m = b.extent(), b.extent()
    dtype = b.rng.choice(NUMBERS)
    texts = (
        f"jnp.arange({n}, dtype='{dtype}')", f"jnp.eye({n}, {m}, dtype='{dtype}')", f"jnp.full(({n}, {m}), 2, '{dtype}')",
        f"jnp.linspace(0, 1, {n})",
        f"lax.broadcasted_iota('{dtype}', ({n}, {m}), 1)", f"jnp.zeros(({n}, {m}), '{dtype}')", f"jnp.tri({n}, {m}, 1)",
        f"jnp.indices(({n}, {m}))",
        f"jnp.meshgrid(jnp.arange({n}), jnp.arange({m}))", f"jnp.asarray(np.arange({n * m}).reshape({n}, {m}) % 7, '{dtype}')",
    )  # fmt: skip
    b.add(b.rng.choice(texts), exact=True)


def images(b: Builder) -> None:
    x = b.pick(("float32", "float64"), 2, 4)
    shape = tuple(b.rng.randint(1, 8) if k else n for k, n in enumerate(x.shape))
    how = b.rng.choice(("nearest", "linear", "cubic", "lanczos3"))
    q = b.fresh((2, 3, 2, 4), "float32")
    texts = (
        f"jax.image.resize({x}, {shape}, '{how}')", f"nn.dot_product_attention({q}, {q}, {q})",
        f"nn.dot_product_attention({q}, {q}, {q}, is_causal=True)",
        f"lax.conv_general_dilated_patches({q}, (2, 2), (1, 1), 'VALID')", f"jnp.convolve({q}[0, 0, 0], {q}[0, 0, 1])",
        f"jnp.linalg.matrix_power({q}[0, 0] @ {q}[0, 0].T, 3)",
        f"jnp.interp({q}, jnp.arange(5.0), jnp.arange(5.0) ** 2)", f"jnp.polyval({q}[0, 0, 0], {q}[1])",
        f"jnp.cross({q}[..., :3], {q}[..., 1:])", f"jax.random.uniform(jax.random.key(3), (5,)) * {q}[0, 0, 0, 0]",
    )  # fmt: skip
    b.add(b.rng.choice(texts), x)


MAKERS = (
    smooth, smooth, exact, ranged, binary, binary, scalars, quotients, comparisons, bits, where, casts, bitcasts, movement,
    movement, slices, dynamic_slices, pads, reductions, reductions, special_reductions, orders, gathers, gathers, scatters,
    scatters, products, products, contractions, convolutions, convolutions, windows, windows, control, creation, images,
)  # fmt: skip
