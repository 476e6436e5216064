"""Random functions of the operations that networks are made of: convolutions, pools, norms, attention, gathers, losses.

As in torch_programs.py, statements are tried at once on small tensors, and what PyTorch refuses is left out.
"""

from __future__ import annotations

import random
from dataclasses import replace
from typing import Any

from torch_programs import Argument, Builder, Program, other_sizes

IMAGES: tuple[tuple[int, ...], ...] = ((2, 4, 6, 5), (1, 4, 7, 7), (3, 4, 5, 9), (2, 6, 4, 4))
ROWS: tuple[tuple[int, ...], ...] = ((2, 6, 8), (3, 5, 8), (1, 7, 8), (2, 6, 5))
TABLES: tuple[tuple[int, ...], ...] = ((6, 8), (8, 8), (5, 8), (8, 6), (4, 4))
FILTERS: tuple[tuple[int, ...], ...] = (
    (6, 4, 3, 3),
    (4, 1, 3, 3),
    (4, 2, 2, 3),
    (6, 4, 1, 1),
    (4, 6, 3, 3),
    (8, 8, 3),
    (6, 6, 2),
)
VECTORS: tuple[tuple[int, ...], ...] = ((4,), (6,), (8,), (5,))


def _statements(text: str) -> tuple[str, ...]:
    """Of operands by rank: {i} has four axes, {r} and {r2} three, {t} and {t2} two, {v} one, {w} is a filter."""
    return tuple(each.strip().replace("F.", "torch.nn.functional.") for each in text.split(" ;"))


OF_IMAGES = _statements("""
    F.conv2d({i}, {w}) ; F.conv2d({i}, {w}, {v}, padding=1) ; F.conv2d({i}, {w}, None, 2, 1) ;
    F.conv2d({i}, {w}, {v}, 1, 2, 2) ; F.conv2d({i}, {w}, None, 1, 1, 1, 2) ;
    F.conv2d({i}, {w}, {v}, (2, 1), (1, 0), 1, 4) ; F.conv2d({i}, {w}, padding='same') ; F.conv_transpose2d({i}, {w}) ;
    F.conv_transpose2d({i}, {w}, None, 2, 1, 1) ; F.max_pool2d({i}, 2) ; F.max_pool2d({i}, 3, 2, 1) ;
    F.max_pool2d({i}, (2, 3), 1, (1, 1), 1, True) ; F.avg_pool2d({i}, 2) ; F.avg_pool2d({i}, 3, 1, 1) ;
    F.avg_pool2d({i}, 3, 2, 1, True, False) ; F.adaptive_avg_pool2d({i}, 1) ; F.adaptive_avg_pool2d({i}, (2, 3)) ;
    F.adaptive_max_pool2d({i}, 2) ; F.batch_norm({i}, {v}, {v}.abs() + 1, {v}, {v}) ;
    F.batch_norm({i}, None, None, {v}, {v}, True) ; F.group_norm({i}, 2) ; F.group_norm({i}, 2, {v}, {v}) ;
    F.instance_norm({i}) ; F.pad({i}, (1, 2, 0, 1)) ; F.pad({i}, (1, 1, 1, 1), 'reflect') ;
    F.pad({i}, (2, 1, 1, 0), 'replicate') ; F.pad({i}, (1, 2, 1, 1), 'circular') ; F.pad({i}, (-1, 1)) ;
    F.interpolate({i}, scale_factor=2) ; F.interpolate({i}, size=(3, 7)) ;
    F.interpolate({i}, scale_factor=2, mode='bilinear') ; F.pixel_shuffle({i}, 2) ; F.pixel_unshuffle({i}, 2) ;
    F.unfold({i}, 2) ; F.softmax({i}, 1) ; F.channel_shuffle({i}, 2) ; {i}.permute(0, 2, 3, 1) ; {i}.flatten(2) ;
    {i}.permute(0, 2, 3, 1).contiguous() ; {i}.contiguous(memory_format=torch.channels_last) ; {i}.mean((2, 3)) ;
    {i}.amax((0, 2)) ; {i}.var((2, 3)) ; {i}.std(1, keepdim=True) ; {i}[:, :, ::2, 1:] ; {i}.chunk(2, 1)[1] ;
    torch.cat([{i}, {i}], 1) ; F.local_response_norm({i}, 2) ; F.normalize({i}) ; F.lp_pool2d({i}, 2, 2) ;
    F.prelu({i}, {v}) ; F.glu({i}, 1)
""")
OF_ROWS = _statements("""
    F.linear({r}, {t}) ; F.linear({r}, {t}, {v}) ; F.layer_norm({r}, {r}.shape[-1:]) ; F.layer_norm({r}, (8,), {v}, {v}) ;
    F.rms_norm({r}, {r}.shape[-1:]) ; torch.bmm({r}, {r2}.mT) ; torch.baddbmm({r}, {r}, {r2}) ; {r} @ {t} ; {r} @ {r2}.mT ;
    torch.einsum('bij,bkj->bik', {r}, {r2}) ; torch.einsum('bij,jk->bki', {r}, {t}) ; F.conv1d({r}, {w}) ;
    F.conv1d({r}, {w}, padding=1) ; F.scaled_dot_product_attention({r}, {r2}, {r2}) ;
    F.scaled_dot_product_attention({r}, {r}, {r}, is_causal=True) ;
    (lambda q: F.scaled_dot_product_attention(q, q, q))({r}.unflatten(-1, (2, -1)).transpose(1, 2)).flatten(2) ;
    F.scaled_dot_product_attention({r}, {r}, {r}, torch.ones(6, 6, dtype=torch.bool).tril()) ; F.softmax({r}, -1) ;
    F.log_softmax({r}, 1) ; F.gelu({r}) ; F.gelu({r}, approximate='tanh') ; F.silu({r}) ; F.mish({r}) ; F.hardswish({r}) ;
    F.elu({r}) ; F.leaky_relu({r}, 0.1) ; F.softplus({r}) ; F.hardtanh({r}) ; F.logsigmoid({r}) ; {r}.cumsum(1) ;
    {r}.cumprod(-1) ; {r}.logsumexp(-1) ; {r}.topk(2, -1)[0] ; {r}.sort(1, True)[0] ; {r}.argsort(-1) ; {r}.norm(dim=-1) ;
    {r}.unflatten(-1, (2, -1)).transpose(1, 2) ; {r}.mT ; {r}[:, -1] ; {r}.flip(1) ; {r}.roll(2, 1) ; {r}.tril() ;
    {r}.triu(1) ; {r}.masked_fill({r} > 0.5, -1.0) ; {r}.masked_select({r} > 0).sum() ; torch.where({r} > 0, {r}, {r2}) ;
    {r}.clamp(-1, 1) ; {r}.repeat_interleave(2, 1) ; {r}.gather(1, ({r} * 2).long().clamp(0, 4)) ;
    {r}.index_select(1, torch.tensor([2, 0, 0])) ; {r}.scatter_add(1, ({r} * 2).long().clamp(0, 4), {r2}) ;
    {r}.index_add(1, torch.tensor([1, 1]), {r}[:, :2]) ; {r}[:, [0, 2, 1]] ;
    {r}.index_put((torch.tensor([0, 0]),), {r}[:1, :].sum(0), accumulate=True) ; {r}.diff(dim=1) ; {r}.cummax(1)[0] ;
    {r}.unfold(1, 3, 2) ; torch.cdist({r}, {r2}) ; torch.outer({v}, {v}) ; {r}.softmax(-1) @ {r2} ;
    {r}.var(-1, keepdim=True) ; {r}.median(-1)[0]
""")
OF_TABLES = _statements("""
    F.embedding(({t} * 2).long().clamp(0, 3), {t2}) ; {t} @ {t2} ; torch.addmm({t}, {t}, {t2}) ; torch.mm({t}, {t2}.t()) ;
    torch.addmm({v}, {t}, {t2}, beta=0.5, alpha=2.0) ; torch.mv({t}, {v}) ; torch.dot({v}, {v}) ;
    torch.addr({t}, {v}, {v}) ; F.cross_entropy({t}, torch.arange({t}.shape[0]) % {t}.shape[1]) ;
    F.nll_loss({t}.log_softmax(1), torch.arange({t}.shape[0]) % 3, reduction='none') ; F.mse_loss({t}, {t2}) ;
    F.smooth_l1_loss({t}, {t2}, reduction='none') ; F.binary_cross_entropy_with_logits({t}, {t2}.sigmoid()) ;
    F.kl_div({t}.log_softmax(1), {t2}.softmax(1), reduction='batchmean') ; F.l1_loss({t}, {t2}) ; F.huber_loss({t}, {t2}) ;
    F.cosine_similarity({t}, {t2}) ; F.one_hot(({t} * 2).long().abs(), 20).float().sum(0) ; {t}.kron({t2}) ; {t}.trace() ;
    F.triplet_margin_loss({t}, {t2}, {t}) ; F.hinge_embedding_loss({t}, {t2}.sign()) ; F.softmin({t}, 0) ; {t}.diag() ;
    {t}.logcumsumexp(1) ; torch.linalg.vector_norm({t}, dim=1) ; {t}.std_mean(1)[0] ; {t}.count_nonzero(0) ;
    {t}.bucketize({v}.sort()[0]) ; {t}.nan_to_num() ; torch.histc({t}.float(), 4, -2, 2) ;
    torch.meshgrid({v}, {v}, indexing='ij')[0] ; torch.tensordot({t}, {t2}, 2) ; {t}.lerp({t2}, 0.25) ;
    torch.addcmul({t}, {t}, {t2}, value=0.5) ; torch.addcdiv({t}, {t}, {t2}.abs() + 1) ; {t}.erf() ; {t}.sigmoid() ;
    {t}.tanh() ; {t}.exp() ; {t}.abs().sqrt() ; ({t}.abs() + 1).log() ; ({t}.abs() + 1).rsqrt() ; {t}.pow(2) ; {t}.pow(3) ;
    {t}.floor() ; {t}.round() ; {t}.sign() ; {t}.fmod(0.75) ; {t}.remainder(0.75) ; torch.atan2({t}, {t2}) ;
    torch.hypot({t}, {t2}) ; {t}.expm1() ; {t}.cos() ; torch.special.xlogy({t}, {t2}.abs())
""")
WRITES = _statements("""
    {i}.mul_({v}.view(1, -1, 1, 1)) ; {r}.add_({v}) ; {t}.addmm_({t}, {t2}) ; {r}[:, 0] = 1 ; {i}[:, :, 1:, 1:].relu_() ;
    {r}.mT.neg_() ; {t}.scatter_(0, ({t} * 2).long().clamp(0, 3), {t2}) ; {r}.index_fill_(1, torch.tensor([0]), 2.0) ;
    {t}.index_add_(0, torch.tensor([0]), {t2}[:1]) ; {i}.clamp_(-1, 1) ; {v}.copy_({v} * 2) ;
    {t}.masked_fill_({t} > 0, 0.5) ; {t}.t().mul_(2) ; {i}.permute(0, 2, 3, 1).add_({v}) ; {r}.lerp_({r2}, 0.5)
""")
_KINDS = (OF_IMAGES, OF_ROWS, OF_TABLES, OF_IMAGES, OF_ROWS, WRITES)
_LAYOUTS = ("plain", "plain", "plain", "transposed", "steps", "shifted", "last")


def random_network(seed: int) -> Program:
    """The program of a seed."""
    rng = random.Random(f"network {seed}")
    dtype, grads = rng.choice(("float32",) * 4 + ("float64", "float16", "bfloat16")), rng.random() < 0.5
    roles = {"i": IMAGES, "r": ROWS, "t": TABLES, "w": FILTERS, "v": VECTORS}
    arguments: list[Argument] = []
    for role, shapes in roles.items():
        for number in range(rng.randint(1, 3 if role == "w" else 2)):
            layout = "plain" if role == "w" and rng.random() < 0.7 else rng.choice(_LAYOUTS)
            arguments.append(
                Argument(f"{role}{number}", dtype, rng.choice(shapes), layout, grads and rng.random() < 0.6)
            )
    builder = NetworkBuilder(rng, arguments, seed, _KINDS)
    for _ in range(rng.randint(2, 6)):
        builder.add()
    used = " ".join(builder.lines)
    kept = tuple(a for a in arguments if a.name in used) or tuple(arguments[:1])
    computed = [name for name in builder.values if name.startswith("v_")]
    names = computed or [kept[0].name]
    returned = tuple(rng.choices(names, k=rng.randint(1, 3)))
    program = Program(kept, (), tuple(builder.lines), returned, rng.random() < 0.3, seed)
    return replace(program, sizes=other_sizes(rng, program)) if program.dynamic else program


class NetworkBuilder(Builder):
    """Statements on values of the rank that an operation is for."""

    prefix = "v_"

    def operands(self) -> dict[str, str]:
        ranks: dict[int, list[str]] = {}
        for name, value in self.values.items():
            if not name.startswith("w") and _is_operand(value):
                ranks.setdefault(value.dim(), []).append(name)
        filters = [name for name in self.values if name.startswith("w")]
        chosen = {
            key: self.rng.choice(ranks.get(rank) or [key + "0"])
            for key, rank in (("i", 4), ("r", 3), ("t", 2), ("v", 1))
        }
        others = {f"{key}2": self.rng.choice(ranks.get(rank) or [key + "0"]) for key, rank in (("r", 3), ("t", 2))}
        return {**chosen, **others, "w": self.rng.choice(filters)}


def _is_operand(value: Any) -> bool:
    return bool(value.is_floating_point())
