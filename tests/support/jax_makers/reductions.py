"""Statements that reduce, order, or sum up along an axis; loops and branches."""

from __future__ import annotations

from jax_functions import ANY, FLOATS, Builder

JOINED = "lambda p, q: (p[0] + q[0], jnp.maximum(p[1], q[1]))"


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
