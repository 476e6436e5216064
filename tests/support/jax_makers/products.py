"""Statements of products, convolutions, windows and images."""

from __future__ import annotations

from jax_functions import FLOATS, Builder, Variable


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
