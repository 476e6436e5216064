"""Statements that move elements, or make some."""

from __future__ import annotations

from jax_functions import ANY, NUMBERS, Builder


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
