"""Statements of random functions of jax that work on each element."""

from __future__ import annotations

from jax_functions import ANY, FLOATS, INTEGERS, NUMBERS, Builder

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
