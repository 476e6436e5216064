"""Statements that read and write at positions."""

from __future__ import annotations

from jax_functions import ANY, NUMBERS, Builder


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
