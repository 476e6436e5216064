"""Functions of jax.numpy, lax and nn on a few arguments, each a line of text: what models do besides products."""

# pyright: reportUnknownMemberType=false, reportUnknownArgumentType=false, reportUnknownVariableType=false

from __future__ import annotations

from collections.abc import Callable, Mapping
from importlib import import_module
from typing import Any

import numpy as np
from function_table import Draws

jax: Any = import_module("jax")
jnp: Any = import_module("jax.numpy")

CASES = """
a + b; a.sum(); a.sum(0); a.sum(1); s.sum(1); s.sum((0, 2)); c.sum(0); c.sum(1); a.max(0); a.max(1); s.max(1); v.max(); n.min(1)
a.argmax(0); a.argmax(1); a.argmin(); jnp.prod(a * 0.01 + 1, 1); (a > 3).any(1); (a > -3).all(0); jnp.count_nonzero(a > 0)
a.mean(1); a.var(0); a.var(1); a.std(); s.var(1); jnp.ptp(a, 1); jnp.linalg.norm(a, axis=1); nn.logsumexp(a, 1)
nn.logsumexp(a, 0); jnp.cumsum(a, 1); jnp.cumsum(a, 0); jnp.cumprod(a * 0.01 + 1, 1); lax.cummax(a, 1); lax.cumlogsumexp(a, 1)
jnp.diff(a, axis=1); jnp.concatenate([a, b], 0); jnp.concatenate([a, b], 1); jnp.stack([a, b], -1); jnp.pad(a, ((2, 3), (1, 4)))
jnp.pad(a, ((2, 3), (1, 4)), mode="edge"); jnp.pad(a, ((2, 3), (1, 4)), mode="reflect")
lax.pad(a, f32(0), ((0, 0, 1), (0, 0, 1))); jnp.flip(a, 1); jnp.flip(a, 0); jnp.roll(a, 7, 1); jnp.roll(a, 7, 0)
jnp.tile(a, (1, 2)); jnp.repeat(a, 2, 1); jnp.repeat(a, 2, 0); a[::2, 1::3]; a[3:-5, 7:-2]
lax.dynamic_slice(a, (z, z), (len(a) // 2, len(a) // 2)); lax.dynamic_slice_in_dim(a, z, len(a) // 2, 0)
lax.dynamic_update_slice(a, b[: len(a) // 2, : len(a) // 2], (z, z)); lax.dynamic_update_slice_in_dim(a, b[:9], z, 0); a[i]
a[:, i]; jnp.take_along_axis(a, j, 1); jnp.take_along_axis(a, j, 0); a[j, j]; a.at[i].set(b); a.at[i].add(b); a.at[:, i].add(b)
a.at[2:-2, 3:-3].set(b[2:-2, 3:-3]); jax.ops.segment_sum(a, i, len(a)); jnp.bincount(j.ravel(), length=len(a))
jnp.where(t, a, b); jnp.select([a > 1, a < -1], [a, b], 0); jnp.clip(a, -1, 1); jnp.tril(a); jnp.triu(a, 3); jnp.diagonal(a)
a + jnp.eye(len(a), dtype=f32); jnp.outer(a[0], b[0]); a[0][:, None] - b[0][None]; a + jnp.arange(len(a), dtype=f32); a.T; h.T
k.T; e.T; x.transpose(0, 2, 3, 1); y.transpose(0, 3, 1, 2); s.transpose(0, 2, 1); s.transpose(1, 0, 2); s.transpose(2, 1, 0)
g.transpose(4, 3, 2, 1, 0); g.transpose(0, 2, 1, 4, 3); g.transpose(3, 1, 0, 4, 2); a.reshape(-1) * 2; depth_to_space(x)
a.astype(jnp.float16); a.astype(jnp.bfloat16); a.astype(jnp.int8); a.astype(jnp.int32); a.astype(jnp.int64)
a.astype(jnp.float64); a.astype(bool); h.astype(f32); w.astype(f32); e.astype(f32); n.astype(f32); k.astype(f32)
u.astype(f32) / 255; l.astype(f32); n.astype(jnp.int8); l.astype(jnp.int32); t.astype(f32); h + h * 2; w * w + 1; n * 3 + 1
k + k; l * l + 1; n // m; n % m; n // 7; n % 7; l // 7; lax.div(n, m); jnp.fmod(a, f32(0.7)); a % f32(0.7); a // f32(0.7)
(u >> 2) & 3; n.sum(1); k.sum(1, dtype=jnp.int32); h.sum(1); w.sum(0); e.sum(1); lax.population_count(n); lax.clz(n); jnp.exp(a)
jnp.log(p); jnp.log1p(p); jnp.expm1(a); jnp.tanh(a); jnp.sin(a); jnp.cos(a); jnp.tan(a); jnp.arcsin(a * 0.1); jnp.arctan(a)
jnp.arctan2(a, b); jnp.sinh(a); jnp.arcsinh(a); jnp.arctanh(a * 0.1); jnp.sqrt(p); lax.rsqrt(p); jnp.cbrt(a); p ** f32(2.5)
p**b; a**3; jnp.hypot(a, b); jnp.logaddexp(a, b); jnp.round(a); jnp.floor(a); jnp.sign(a); jnp.isfinite(a); jnp.nan_to_num(a)
jnp.copysign(a, b); jnp.nextafter(a, b); jnp.exp2(a); jnp.log2(p); jnp.sinc(a); special.erf(a); special.erfc(a)
special.erfinv(jnp.clip(a, -0.9, 0.9)); special.digamma(p); special.gammaln(p); special.i0e(a); special.xlogy(p, p); jnp.exp(e)
jnp.log(jnp.abs(e)); jnp.tanh(e); jnp.sin(e); jnp.abs(e) ** 2.5; jnp.exp(h); jnp.tanh(w); nn.relu(a); nn.gelu(a)
nn.gelu(a, approximate=False); nn.silu(a); nn.softplus(a); nn.elu(a); nn.selu(a); nn.mish(a); nn.hard_swish(a); nn.sigmoid(a)
nn.log_sigmoid(a); nn.leaky_relu(a); nn.celu(a); nn.glu(a[:, :-1], 1); nn.softmax(a, 1); nn.softmax(a, 0); nn.softmax(s, 1)
nn.softmax(c, 1); nn.softmax(d, 0); nn.log_softmax(a, 1); nn.standardize(a, 1); nn.one_hot(i, 511); nn.softmax(w, 1)
window(y, -jnp.inf, lax.max, (1, 2, 2, 1), (1, 2, 2, 1), "VALID")
window(y, -jnp.inf, lax.max, (1, 3, 3, 1), (1, 2, 2, 1), "SAME")
window(x, -jnp.inf, lax.max, (1, 1, 2, 2), (1, 1, 2, 2), "VALID")
window(y, f32(0), lax.add, (1, 3, 3, 1), (1, 1, 1, 1), "SAME") / 9
window(x, f32(0), lax.add, (1, 1, 3, 3), (1, 1, 1, 1), "SAME") / 9
jax.grad(lambda y: window(y, -jnp.inf, lax.max, (1, 2, 2, 1), (1, 2, 2, 1), "VALID").sum())(y); resize(y, "nearest")
resize(y, "bilinear"); lax.conv_general_dilated(x, q, (1, 1), "SAME", feature_group_count=31)
lax.conv_general_dilated_patches(x[:1], (3, 3), (1, 1), "SAME"); lax.top_k(a, 5)[0]; jnp.sort(a, 1); jnp.sort(a, 0)
jnp.argsort(a, 1); jnp.median(a, 1); jnp.convolve(v, r, "same"); jnp.einsum("bij,bij->bi", s, s); jnp.einsum("ij,j->i", a, a[0])
jnp.einsum("ij,i->j", a, a[0]); jnp.trace(a); jnp.dot(v, v); (a[:255, None, :64] - a[None, :255, :64]) ** 2
((a[:255, None, :64] - a[None, :255, :64]) ** 2).sum(-1); ((a - b) ** 2).mean()
-jnp.take_along_axis(nn.log_softmax(a), i[:, None], 1).mean(); jax.grad(lambda a: jnp.tanh(a).sum())(a)
a + jax.random.uniform(jax.random.key(0), a.shape, dtype=f32); jnp.searchsorted(o, a[1]); interpolated(a)
jnp.polyval(jnp.array([1, 2, 3, 4, 5], dtype=f32), a); jnp.unpackbits(u, axis=1); lax.bitcast_convert_type(a, jnp.int32)
a @ a[:, :16]
"""
"""Lines of functions; `arguments` has what their letters are."""


def arguments(elements: int, seed: int = 0) -> Mapping[str, Any]:
    """By letter: arrays of about so many elements, of f32 where the functions do not show another type."""
    draws = Draws(elements, seed)
    (rows, side, image, depth), normal, drawn = draws.extents, draws.normal, draws.drawn
    a, x, n = normal(rows, rows), normal(8, 31, image, image), drawn(-1000, 1000, np.int32, rows, rows)
    return {
        "a": a, "b": normal(rows, rows), "p": np.abs(a) + np.float32(0.1), "s": normal(63, side, side), "v": normal(elements | 1),
        "c": normal(elements // 63, 63), "d": normal(63, elements // 63), "i": drawn(0, rows, np.int32, rows),
        "j": drawn(0, rows, np.int32, rows, rows), "h": a.astype(np.float16), "w": a.astype(jnp.bfloat16),
        "e": a.astype(np.float64), "n": n, "m": drawn(1, 50, np.int32, rows, rows), "k": drawn(-100, 100, np.int8, rows, rows),
        "u": drawn(0, 255, np.uint8, rows, rows), "l": n.astype(np.int64), "t": a > 0, "x": x, "z": np.int32(5),
        "y": np.ascontiguousarray(x.transpose(0, 2, 3, 1)), "q": normal(31, 1, 3, 3), "g": normal(7, 9, 11, depth, 33),
        "o": np.sort(a[0]), "r": normal(7),
    }  # fmt: skip


def cases() -> list[str]:
    """All functions as text, in order."""
    return [text.strip() for line in CASES.strip().splitlines() for text in line.split(";")]


def depth_to_space(x: Any) -> Any:
    batch, _, rows, columns = x.shape
    blocks = x[:, :28].reshape(batch, 7, 2, 2, rows, columns)
    return blocks.transpose(0, 1, 4, 2, 5, 3).reshape(batch, 7, 2 * rows, 2 * columns)


def resize(y: Any, method: str) -> Any:
    batch, rows, columns, channels = y.shape
    return jax.image.resize(y, (batch, 2 * rows, 2 * columns, channels), method)


def interpolated(a: Any) -> Any:
    grid = jnp.linspace(-3, 3, 17, dtype=np.float32)
    return jnp.interp(a, grid, jnp.sin(grid))


def function(text: str, given: Mapping[str, Any]) -> tuple[Callable[..., Any], list[Any]]:
    """The function of a text, and its arguments."""
    scope = {
        "jax": jax, "jnp": jnp, "lax": jax.lax, "nn": jax.nn, "special": jax.scipy.special, "f32": np.float32, "len": len,
        "window": jax.lax.reduce_window, "depth_to_space": depth_to_space, "resize": resize, "interpolated": interpolated,
    }  # fmt: skip
    letters = [name for name in compile(text, "<case>", "eval").co_names if name in given]
    made = eval(f"lambda {', '.join(letters)}: {text}", scope)
    return made, [given[letter] for letter in letters]
