"""Random functions of what programs do between layers: indices, mixed element types, empty and single elements, writes.

As in torch_programs.py, statements are tried at once on small tensors, and what PyTorch refuses is left out.
"""

from __future__ import annotations

import random
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from torch_programs import Argument, Builder, Program, other_sizes

FLOATS = ("float32",) * 4 + ("float64", "float16", "bfloat16")
WHOLES = ("int64", "int64", "int32", "uint8", "int8", "int16", "bool")
SHAPES: tuple[tuple[int, ...], ...] = ((4, 6), (6, 4), (4, 6), (2, 4, 6), (6,), (4,), (4, 1), (1, 6), (2, 3, 4, 6))
ODD: tuple[tuple[int, ...], ...] = ((), (0, 6), (4, 0), (1,), (1, 1), (2, 0, 3), (17, 3), (3, 33))
_LAYOUTS = ("plain", "plain", "plain", "transposed", "steps", "shifted", "repeated", "last")


def _statements(text: str) -> tuple[str, ...]:
    """Of operands: {x} and {y} are any, {f} and {g} have floats, {n} and {m} whole numbers, {b} booleans."""
    return tuple(each.strip().replace("F.", "torch.nn.functional.") for each in text.split(" ;"))


ARITHMETIC = _statements("""
    {x} + {y} ; {x} - {y} * 2 ; {x} * {y} ; {x} / {y}.abs().add(1) ; {n} // 3 ; {n} % 3 ; {n} // ({m}.abs() + 1) ;
    {n} & {m} ; {n} % ({m}.abs() + 1) ; torch.div({n}, 3, rounding_mode='trunc') ;
    torch.div({f}, 0.75, rounding_mode='floor') ; torch.fmod({n}, 3) ; torch.remainder({f}, {g}.abs() + 0.5) ;
    {n} ^ {m} ; {n} | 5 ; ~{n} ; {n} << 1 ; {n} >> 1 ; {n} ** 2 ; {f} ** 2 ; 2 ** {f} ; {f} ** 3.0 ; 1 - {x} ;
    1 / ({x}.abs() + 1) ; {x} == {y} ; {x} != 0 ; {x} >= {y} ; {x} < 1.5 ; {b} & ({x} > 0) ; ~{b} ;
    {b}.logical_xor({x} > 1) ; {x}.logical_not() ; torch.where({b}, {x}, {y}) ; torch.where({x} > 0, {f}, 0.0) ;
    torch.where({b}, 1, {n}) ; {x}.sign() ; {x}.abs() ; -{f} ; {x}.square() ; {x}.clamp(-1, 2) ; {x}.clamp(min=0) ;
    torch.minimum({x}, {y}) ; torch.maximum({f}, {g}) ; {x}.lerp({x}, 0.5) ; {f}.addcmul({f}, {g}, value=-2) ;
    {x} * 0.5 ; {x} + 1 ; {x} * True ; {n} * 2.5 ; {n} / 4 ; {x}.float() + {y}.double() ; {x}.half() * {y} ;
    {x}.to(torch.int32) ; {x}.bool() ; {x}.long() ; {x}.to({y}.dtype) ; {x}.to(torch.uint8) ; {x}.type_as({f}) ;
    torch.add({x}, {y}, alpha=2) ; torch.sub({f}, {g}, alpha=0.5) ; torch.rsub({x}, 2) ; {f}.frac() ; {f}.trunc() ;
    {f}.round(decimals=1) ; torch.gcd({n}, {m}) ; {f}.isnan() ; {f}.isfinite() ; torch.copysign({f}, {g}) ;
    torch.heaviside({f}, {g}) ; {f}.sigmoid() * {x} ; torch.exp(-{f}.abs()) ; {f}.log1p().nan_to_num(0.0, 1.0, -1.0) ;
    {f}.tanh() + {n} ; torch.float_power({f}.abs(), 2) ; torch.logaddexp({f}, {g}) ; {x}.relu() ; F.relu6({f}) ;
    F.softplus({f}) ; torch.tensor(2.5) * {x} ; torch.tensor(3) + {x} ; {x} + {x}.shape[0] ; {x} * {x}.shape[-1] ;
    {x}.max() - {x} ; {f} - {f}.mean() ; {f} / ({f}.norm() + 1)
""")
SHUFFLES = _statements("""
    {x}.t() ; {x}.mT ; {x}.transpose(0, 1) ; {x}[1:] ; {x}[:, 1:] ; {x}[..., ::2] ; {x}[-1] ; {x}[:, -2:] ; {x}[None] ;
    {x}.unsqueeze(1) ; {x}.squeeze() ; {x}.reshape(-1) ; {x}.flatten() ; {x}.view(-1) ;
    {x}.permute(*reversed(range({x}.dim()))) ; {x}.expand(2, *{x}.shape) ; {x}.repeat(2, 1) ; {x}.tile(2) ;
    {x}.chunk(2, -1)[0] ; {x}.split(3, -1)[-1] ; {x}.unbind(0)[-1] ; {x}.tensor_split(3)[1] ;
    torch.cat([{x}, {x}], -1) ; torch.cat([{x}, {y}], 0) ; torch.stack([{x}, {x}], 1) ; torch.hstack([{x}, {y}]) ;
    {x}.flip(-1) ; {x}.roll(1, 0) ; {x}.rot90() ; {x}.tril() ; {x}.triu(1) ; {x}.diagonal() ; {x}.diag() ;
    torch.diag_embed({x}) ; F.pad({x}, (1, 1)) ; F.pad({x}, (0, 1, 1, 0), value=2) ; F.pad({x}, (-1, 0)) ;
    {x}.narrow(0, 1, 1) ; {x}.movedim(0, -1) ; {x}.unfold(-1, 2, 1) ; {x}.contiguous() ; {x}.clone() ; {x}.detach() ;
    {x}.as_strided((2, 2), (1, 2)) ; {x}.view(*{x}.shape, 1) ; {x}.repeat_interleave(2, 0) ;
    {x}.broadcast_to(3, *{x}.shape) ; torch.atleast_2d({x}) ; {x}.swapaxes(0, -1) ; {x}.unflatten(-1, (2, -1)) ;
    {x}.new_zeros(2, 3) ; {x}.new_full((2,), 3) ; torch.zeros_like({x}) ; torch.ones({x}.shape[0], 2) ;
    torch.arange({x}.shape[0], dtype={f}.dtype) ; torch.linspace(0, 1, 5) ; torch.eye({x}.shape[0]) ;
    torch.full_like({x}, 2) ; torch.empty(0) ; torch.tril(torch.ones(4, 4)) ; torch.arange(6) ;
    torch.block_diag({x}, {x}) ; {x}.ravel() ; {x}.view_as({x}) ; {x}.select(-1, 0) ; {x}.to(torch.float64).t() ;
    {x}.index_select(-1, torch.tensor([1, 0])) ; torch.narrow_copy({x}, 0, 0, 1) ; {x}.T ; {x}.unsafe_chunk(2)[0] ;
    torch.vander({x}) ; torch.cartesian_prod({x}, {x}) ; torch.combinations({x}) ;
    torch.meshgrid({x}, {x}, indexing='xy')[1] ; {x}.view(torch.uint8) ;
    {x}.contiguous(memory_format=torch.channels_last) ; {x}.clone(memory_format=torch.channels_last)
""")
SUMS = _statements("""
    {x}.sum() ; {x}.sum(0) ; {x}.sum(-1, keepdim=True) ; {x}.sum((0, 1)) ; {x}.sum(dtype=torch.float64) ;
    {x}.sum(0, dtype=torch.int64) ; {f}.mean() ; {f}.mean(0) ; {f}.mean(-1, keepdim=True) ; {x}.prod() ; {x}.prod(-1) ;
    {x}.max() ; {x}.min() ; {x}.max(0)[0] ; {x}.max(-1)[1] ; {x}.min(0)[1] ; {x}.argmax() ; {x}.argmin(-1) ;
    {x}.amax(0) ; {x}.amin((0, -1)) ; {x}.aminmax(dim=0)[1] ; {x}.any() ; {x}.any(0) ; {x}.all(-1) ;
    {x}.count_nonzero() ; {x}.cumsum(0) ; {x}.cumsum(-1) ; {x}.cumprod(-1) ; {x}.cummax(0)[0] ; {x}.cummax(0)[1] ;
    {x}.cummin(-1)[1] ; {f}.logcumsumexp(0) ; {f}.logsumexp(0) ; {f}.softmax(0) ; {f}.log_softmax(-1) ; {f}.std() ;
    {f}.var(0) ; {f}.var(0, correction=0) ; {f}.norm() ; {f}.norm(1, -1) ; {f}.norm(float('inf'), 0) ; {x}.sort(0)[0] ;
    {x}.sort(-1, descending=True)[1] ; {x}.sort(-1, stable=True)[1] ; {x}.argsort(0, stable=True) ; {x}.topk(2)[0] ;
    {x}.topk(1, 0, False)[1] ; {x}.kthvalue(1)[0] ; {f}.median() ; {x}.median(0)[0] ; {f}.quantile(0.5, 0) ;
    {x}.mode(0)[0] ; {x}.nansum() ; {f}.nanmean(0) ; {x}.diff() ; {x}.diff(dim=0) ; {x}.trace() ; {f} @ {g} ;
    {f}.matmul({g}.mT) ; torch.outer({f}, {g}) ; torch.mv({f}, {g}) ; torch.einsum('ij,kj->ik', {f}, {g}) ;
    torch.einsum('...i->...', {f}) ; {n} @ {m}.mT ; torch.bincount({n}.abs()) ; torch.dot({f}, {g}) ;
    torch.cross({f}[..., :3], {g}[..., :3], dim=-1) ; F.layer_norm({f}, {f}.shape[-1:]) ;
    F.cosine_similarity({f}, {g}, -1) ; F.mse_loss({f}, {g}) ; torch.cov({f}) ; torch.std_mean({f}, 0)[1] ;
    {x}.searchsorted({y}) ; torch.bucketize({x}, torch.tensor([0, 1, 2])) ; torch.histc({f}.float(), 4, -2, 2) ;
    {f}.renorm(2, 0, 1.0) ; {f}.cdist({g}) ; torch.addmm({f}, {f}, {g}, beta=0) ; torch.addmv({f}, {g}, {f}) ;
    {f}.sum() * {n}.sum() ; F.cross_entropy({f}, torch.arange({f}.shape[0]) % {f}.shape[-1]) ;
    F.one_hot({n}.abs().long(), 40)
""")
PLACES = _statements("""
    {x}[{b}] ; {x}[torch.tensor([0, -1])] ; {x}[:, torch.tensor([1, 0, 1])] ;
    {x}[torch.tensor([0, 1]), torch.tensor([1, 0])] ; {x}[torch.tensor([[0], [1]]), torch.tensor([0, 1])] ;
    {x}[..., [0, 2]] ; {x}[[1, 0], ..., 1:] ; {x}[{n}.abs() % 2] ; {x}[{n}.long().clamp(-1, 1)] ;
    {x}.take({n}.long().abs() % 4) ; {x}.gather(0, {n}.long().abs() % 2) ; {x}.gather(-1, {n}.long().abs() % 3) ;
    torch.take_along_dim({x}, {x}.argsort(-1), -1) ; {x}.masked_fill({b}, 2) ; {x}.masked_fill({x} > 1, -1) ;
    {x}.masked_select({b}).sum() ; {x}.scatter(0, {n}.long().abs() % 2, {x}) ;
    {x}.scatter(-1, {n}.long().abs() % 3, 2) ; {x}.scatter_add(0, {n}.long().abs() % 2, {x}) ;
    {x}.scatter_reduce(0, {n}.long().abs() % 2, {x}, 'amax') ;
    {x}.scatter_reduce(-1, {n}.long().abs() % 3, {x}, 'sum', include_self=False) ;
    {f}.scatter_reduce(0, {n}.long().abs() % 2, {f}, 'mean') ; {x}.index_add(0, torch.tensor([0, 0]), {x}[:2]) ;
    {x}.index_add(-1, torch.tensor([1, 0]), {x}[..., :2], alpha=2) ; {x}.index_copy(0, torch.tensor([1]), {y}[:1]) ;
    {x}.index_fill(-1, torch.tensor([0, 2]), 1) ; {x}.index_put((torch.tensor([0, 0]),), {x}[0], accumulate=True) ;
    {x}.index_put((torch.tensor([0, 1]), torch.tensor([1, 1])), torch.tensor(2).to({x}.dtype)) ;
    {x}.index_reduce(0, torch.tensor([0, 0]), {x}[:2], 'amax') ; F.embedding({n}.long().abs() % 4, {f}) ;
    F.embedding_bag(torch.arange(4).view(2, 2), {f}) ; {x}.select_scatter({y}, 0, 0) ;
    {x}.slice_scatter({x}[1:], 0, 1) ; {x}.diagonal_scatter({x}.diagonal() + 1) ;
    {x}.put(torch.tensor([0, 2]), {x}.reshape(-1)[:2]) ; {x}.masked_scatter({b}, {x}) ;
    torch.isin({x}, torch.tensor([0, 1])) ; {n}[{n} > 0].sum() ; F.dropout({f}, 0.5) ; F.dropout({f}, 0.25, True) ;
    F.dropout({f}, 0.5, False) ; torch.rand({x}.shape[0], 3) ; torch.rand_like({f}) ; torch.randn_like({f}) ;
    torch.bernoulli({f}.sigmoid()) ; torch.randint(0, 5, (3,)) ; torch.randperm(4) ; F.feature_dropout({f}, 0.5) ;
    F.alpha_dropout({f}, 0.5)
""")
WRITES = _statements("""
    {x}.add_({y}) ; {x}.mul_(2) ; {x}.sub_({y}, alpha=2) ; {f}.div_(2) ; {n}.floor_divide_(2) ; {n}.bitwise_and_(3) ;
    {n}.remainder_(3) ; {x}.copy_({y}) ; {x}.zero_() ; {x}.fill_(1) ; {x}[0] = {y} ; {x}[..., 0] = 1 ;
    {x}[:, 1:].add_(1) ; {x}[{b}] = 0 ; {x}[torch.tensor([0, 1])] = 2 ; {x}[torch.tensor([0, 0])] += 1 ;
    {x}[..., [0, 1]] *= 2 ; {x}[torch.tensor([0, 1]), torch.tensor([1, 0])] = {y} ; {x} += {y} ; {x} *= 3 ;
    {x}.t().add_(1) ; {x}.view(-1)[0] = 3 ; {x}.masked_fill_({b}, 1) ; {x}.masked_fill_({x} > 0, 0) ;
    {x}.scatter_(0, {n}.long().abs() % 2, 1) ; {x}.scatter_add_(0, {n}.long().abs() % 2, {x}) ;
    {x}.index_add_(0, torch.tensor([0]), {x}[:1]) ; {x}.index_fill_(0, torch.tensor([0]), 1) ;
    {x}.index_copy_(0, torch.tensor([0]), {y}[:1]) ; {x}.index_put_((torch.tensor([0]),), {y}) ;
    {x}.put_(torch.tensor([1]), {x}.reshape(-1)[:1], accumulate=True) ; {x}.clamp_(0, 1) ; {f}.relu_() ;
    {f}.sigmoid_() ; {f}.exp_() ; {f}.sqrt_() ; {x}.neg_() ; {x}.abs_() ; {f}.tanh_() ; {f}.lerp_({g}, 0.5) ;
    {f}.addcmul_({f}, {g}) ; {f}.addcdiv_({f}, {g}.abs() + 1) ; {x}.triu_() ; {x}.tril_(1) ; {x}.fill_diagonal_(2) ;
    {x}.cumsum_(0) ; torch.add({x}, {y}, out={x}) ; torch.mul({f}, 2, out={g}) ; torch.sum({f}, 0, out={g}) ;
    {f}.uniform_() ; {f}.normal_() ; {f}.bernoulli_(0.5) ; F.dropout({f}, 0.5, inplace=True).add_(1) ;
    {x}.as_strided((2,), (1,)).add_(1) ; {x}.diagonal().fill_(1) ; {x}.expand_as({x}).add_(1) ;
    {x}.unsqueeze(0).mul_(2) ; {x}[1:].copy_({x}[:-1].clone()) ; {x}.logical_not_() ; {x}.eq_({y}) ; {x}.gt_(0) ;
    {f}.clamp_(max=0.5) ; {f}.round_() ; {f}.pow_(2) ; {f}.masked_scatter_({b}, {g})
""")
_WIDE = {3: 5, 4: 40, 6: 100}
_KINDS = (ARITHMETIC, ARITHMETIC, SHUFFLES, SUMS, PLACES, WRITES)


def wide_mix(seed: int) -> Program:
    """The program of a seed, of tensors that fill vectors and blocks."""
    return random_mix(seed, _WIDE)


def random_mix(seed: int, longer: Mapping[int, int] | None = None) -> Program:
    """The program of a seed; `longer` says what extents are instead of those of small tensors."""
    rng = random.Random(f"mix {seed}")
    grads = rng.random() < 0.4
    arguments = [_argument(rng, f"f{k}", FLOATS, grads) for k in range(rng.randint(1, 3))]
    arguments += [_argument(rng, f"n{k}", WHOLES, False) for k in range(rng.randint(1, 2))]
    arguments += [_argument(rng, f"b{k}", ("bool",), False) for k in range(1)]
    owned = [replace(_argument(rng, "self.b0", FLOATS, grads), layout="plain")] if rng.random() < 0.3 else []
    if longer is not None:
        arguments, owned = ([_longer(a, longer) for a in some] for some in (arguments, owned))
    builder = MixBuilder(rng, [*arguments, *owned], seed, _KINDS)
    builder.most *= 20 if longer else 1
    for _ in range(rng.randint(2, 7)):
        builder.add()
    used = " ".join(builder.lines)
    kept = tuple(a for a in arguments if a.name in used) or tuple(arguments[:1])
    held = tuple(a for a in owned if a.name in used)
    names = [n for n in builder.values if n.startswith("v_")] or [kept[0].name]
    returned = tuple(rng.choices(names + [kept[0].name] * (rng.random() < 0.2), k=rng.randint(2, 5)))
    program = Program(kept, held, tuple(builder.lines), returned, rng.random() < 0.3, seed)
    return replace(program, sizes=other_sizes(rng, program)) if program.dynamic else program


def _longer(argument: Argument, longer: Mapping[int, int]) -> Argument:
    return replace(argument, extents=tuple(longer.get(n, n) for n in argument.extents))


def _argument(rng: random.Random, name: str, types: tuple[str, ...], grads: bool) -> Argument:
    extents = rng.choice(SHAPES if rng.random() < 0.8 else ODD)
    return Argument(name, rng.choice(types), extents, rng.choice(_LAYOUTS), grads and rng.random() < 0.6)


class MixBuilder(Builder):
    """Statements on values of the element types that an operation is for."""

    prefix = "v_"

    def operands(self) -> dict[str, str]:
        def some(takes: Any, default: str) -> str:
            return self.rng.choice([n for n, v in self.values.items() if takes(v)] or [default])

        def whole(value: Any) -> bool:
            return not value.is_floating_point() and not value.is_complex()

        def floats(value: Any) -> bool:
            return bool(value.is_floating_point())

        def truths(value: Any) -> bool:
            return str(value.dtype) == "torch.bool"

        anything = self.rng.choice(list(self.values)), self.rng.choice(list(self.values))
        return {
            "x": anything[0],
            "y": anything[1] if self.rng.random() < 0.7 else anything[0],
            "f": some(floats, "f0"),
            "g": some(floats, "f0"),
            "n": some(whole, "n0"),
            "m": some(whole, "n0"),
            "b": some(truths, "b0"),
        }
