"""Functions of PyTorch on a few arguments, each a line of text: what models do besides products and convolutions."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from fuse_opt.frontends.torch.fx.api import torch

CASES = """
a.sum(1); a.sum(0); a.sum(); s.sum(1); a.amax(1); a.amax(0); s.amax(1); a.argmax(1); a.argmax(0); a.argmin(); a.prod(1)
a.mean(); a.std(); s.var(1); a.norm(dim=1); a.logsumexp(1); (a > 3).any(1); (a > 0).all(0); (a > 0).sum(); (a > 0).sum(1)
torch.aminmax(a); a.cumsum(1); a.cumsum(0); a.cumprod(1); a.cummax(1)[0]; a.logcumsumexp(1); F.mse_loss(a, b)
F.cross_entropy(a, i); F.nll_loss(a, i); a.softmax(0); s.softmax(1); a.log_softmax(0); p.softmax(1); q.softmax(0)
a + b; a * 2 + 1; a.clamp(-1, 1); torch.lerp(a, b, 0.3); torch.addcmul(a, b, b, value=0.5); torch.where(t, a, b)
a.round(); a.tanh(); a.abs() ** 2.5; a.abs().log(); torch.atan2(a, b); a.nan_to_num(); torch.heaviside(a, b); a.exp(); a.sin()
a.abs().lgamma(); a.clamp(-0.9, 0.9).erfinv(); a.fmod(0.7); a % b; torch.floor_divide(a, b); a.sigmoid(); a.erf(); a.sqrt()
F.softplus(a); F.elu(a); F.mish(a); F.hardswish(a); F.gelu(a); F.silu(a); F.hardtanh(a); F.leaky_relu(a); F.logsigmoid(a)
torch.cat([a, b], 0); torch.cat([a, b], 1); torch.stack([a, b], 2); F.pad(a, (3, 5, 2, 2)); a.flip(1) * 1.5; a.roll(7, 1) + 1
a.repeat(1, 2) + 1; a.repeat_interleave(3, 1); a.tril(); a.triu(1); a.diagonal() * 2; a + torch.eye(len(a)); a.diff(dim=1)
a[:, None, 0] * b[None, :, 0]; a.t().contiguous(); a.t() + b; a[::2, ::3] * 2; a[:, 1:-1] - a[:, 2:]; a * b.roll(1, 0)
((a[:200, None, :50] - b[None, :200, :50]) ** 2).sum(-1); torch.trapezoid(a, dim=1); torch.linalg.cross(o, o.flip(0))
a[i] * 2; a[i, i.flip(0)]; a.gather(1, j); a.gather(0, j); a.gather(1, i[None].expand(len(a), -1)); a.take(j)
torch.zeros_like(a).scatter_add(1, j, b); a.scatter(1, j, b); a.index_add(0, i, b); a.index_put((i,), b, accumulate=True)
a.index_fill(0, i, 0.0); a.masked_fill(t, 0.0); F.one_hot(i % 500, 500); F.embedding(j[:20], a); i.bincount(minlength=500)
a.topk(5, 1)[0]; a.sort(1)[0]; a.median(1)[0]; torch.bucketize(a, torch.linspace(-2, 2, 20)); a.quantile(0.3, 1)
h + g; h * 1.5; h.t() + 1; h.sum(1); h.softmax(1); F.gelu(h); h.float(); a.half(); F.layer_norm(h, h.shape[1:]); h.amax(0)
w + v; w * 1.5; w.t() + 1; w.sum(0); w.softmax(1); F.silu(w); w.float(); a.bfloat16(); F.layer_norm(w, w.shape[1:]); w.amax(1)
d + d; d.exp(); d.softmax(1); d.t() * 2; d.sum(0); d.float(); a.double(); d.tanh(); d.fmod(0.7)
n * 3 + 1; n.sum(1); n.amax(1); n // 7; n % 7; n.float(); a.int(); (n >> 2) & 3; n.t() + n; n // (n.abs() + 1); n.cumsum(1)
j * 3; j.sum(); j.amax(1); j % 7; j.float(); a.long(); j == j.flip(0); j.t() + 1
c + c; c * c; c.float() * 0.1; c.sum(1); a.to(torch.int8); c.t().contiguous(); c.amax(0); (a * 255).clamp(0, 255).to(torch.uint8)
t.sum(1); a.bool(); t & (b > 0); t.float(); ~t; t.t() | t
x.permute(0, 2, 3, 1).contiguous(); y.permute(0, 3, 1, 2).contiguous(); F.max_pool2d(x, 2); F.avg_pool2d(x, 3, 1, 1)
F.interpolate(x, scale_factor=2, mode="nearest"); F.interpolate(x, scale_factor=2, mode="bilinear"); F.pixel_shuffle(x, 2)
F.batch_norm(x, torch.zeros(32), torch.ones(32)); F.group_norm(x, 8); F.instance_norm(x); F.unfold(x, 3); x.mean((2, 3))
F.layer_norm(a, a.shape[1:]); F.rms_norm(a, a.shape[1:]); F.normalize(a); F.adaptive_avg_pool2d(x, 7); F.pad(x, (1, 1, 1, 1))
"""
"""Lines of functions; `arguments` has what their letters are."""


def arguments(elements: int, seed: int = 5) -> Mapping[str, Any]:
    """By letter: tensors of about so many elements, of f32 where the functions do not show another type."""
    draw = torch.Generator().manual_seed(seed)

    def normal(*extents: int) -> Any:
        return torch.randn(extents, generator=draw)

    def drawn(low: int, high: int, dtype: Any, *extents: int) -> Any:
        return torch.randint(low, high, extents, generator=draw, dtype=dtype)

    rows, columns = int(elements**0.5) | 1, int(elements**0.5) | 1
    side, image = max(1, rows // 8), max(2, int((elements / 256) ** 0.5))
    a, b = normal(rows, columns), normal(rows, columns)
    return {
        "a": a, "b": b, "s": normal(64, side, side), "p": normal(elements // 64, 64), "q": normal(64, elements // 64),
        "o": normal(elements // 3, 3), "h": a.half(), "g": b.half(), "w": a.bfloat16(), "v": b.bfloat16(), "d": a.double(),
        "i": drawn(0, rows, torch.int64, rows), "j": drawn(0, rows, torch.int64, rows, columns), "t": a > 0,
        "n": drawn(-1000, 1000, torch.int32, rows, columns), "c": drawn(-9, 10, torch.int8, rows, columns),
        "x": normal(8, 32, image, image), "y": normal(8, image, image, 32),
    }  # fmt: skip


def cases() -> list[str]:
    """All functions as text, in order."""
    return [text.strip() for line in CASES.strip().splitlines() for text in line.split(";")]


def function(text: str, given: Mapping[str, Any]) -> tuple[Callable[..., Any], list[Any]]:
    """The function of a text, and its arguments."""
    scope = {"torch": torch, "F": torch.nn.functional, "len": len}
    letters = [name for name in compile(text, "<case>", "eval").co_names if name in given]
    made = eval(f"lambda {', '.join(letters)}: {text}", scope)
    return made, [given[letter] for letter in letters]
