"""Random functions of positions: indices, order, searches, running totals, rolls, windows; any axis, number and layout.

As in torch_programs.py, statements are tried at once, and what PyTorch refuses is left out. Extents are odd, prime, single and
none, and such that fill vectors and blocks; every second program is for all sizes.
"""

from __future__ import annotations

import random
from dataclasses import replace

from torch_mixes import MixBuilder
from torch_programs import Argument, Program, other_sizes

FLOATS = ("float32",) * 5 + ("float64", "float16", "bfloat16")
WHOLES = ("int64", "int64", "int32", "uint8", "int8", "int16")
SIZES = (1, 2, 3, 5, 7, 8, 13, 16, 17, 31, 33, 40, 64, 67, 101, 130)
NUMBERS = (0, 1, 1, 2, 3, 5, 7, 9, 16, 17, 31, 33, 64, 65, 101, 129, 257, 1031)
MOST = 40_000
"""Elements of an argument, and of a value."""
_LAYOUTS = ("plain", "plain", "transposed", "steps", "shifted", "repeated", "last", "windows")


def _statements(text: str) -> tuple[str, ...]:
    """
    Operands as in torch_mixes.py; {a} and {c} are axes, {w} is a window's extent, {s} a step, {h} any number, {t} a truth value,
    {at} positions along the axis {a} of {x}, {at0} along the first.
    """
    named = text.replace("{at0}", "({n}.long() % max({x}.shape[0], 1))").replace(
        "{at}", "({n}.long() % max({x}.shape[{a}], 1))"
    )
    return tuple(each.strip().replace("F.", "torch.nn.functional.") for each in named.split(" ;"))


READS = _statements("""
    {x}.gather({a}, {at}) ; {x}.gather({a}, {at}.narrow({c}, 0, 1).expand_as({x})) ; {x}.gather({a}, {x}.argsort({a})) ;
    torch.take_along_dim({x}, {at}, {a}) ; torch.take_along_dim({x}, {at}.narrow({c}, 0, 1), {a}) ;
    torch.take_along_dim({x}, {x}.argmax({a}, keepdim=True), {a}) ; {x}.index_select({a}, {at}.reshape(-1)) ;
    {x}.index_select({a}, {at}.reshape(-1)[:{w}].flip(0)) ; {x}[{at0}] ; {x}[{at0} - {x}.shape[0]] ;
    {x}[{at0}, {at0} % {x}.shape[1]] ; {x}[..., {at0} % {x}.shape[-1]] ; {x}[{at0}[..., None], {at0} % {x}.shape[1]] ;
    {x}[:, {at0} % {x}.shape[1], ..., ::{s}] ; {x}.take({n}.long() % {x}.numel()) ; {x}[{x} > 0].sum() ;
    {x}[{b}] ; {x}.nonzero() ; {x}[{x}.nonzero(as_tuple=True)] ; {x}.unique() ; torch.unique_consecutive({x}) ;
    F.embedding({at0}, {f}) ; F.one_hot({at0}, 140).sum(0) ; torch.bincount({at0}.reshape(-1), minlength=140) ;
    {x}.select({a}, {h} % {x}.shape[{a}]) ; {x}.masked_select({b}) ; {x}.diagonal({h}, {a}, {c})
""")
WRITES = _statements("""
    {x}.scatter({a}, {at}, {y}) ; {x}.scatter({a}, {at}, {h}) ; {x}.scatter_add({a}, {at}, {y}) ;
    {x}.scatter_add({a}, {at}.narrow({c}, 0, 1).expand_as({x}), {x}) ; {x}.scatter_reduce({a}, {at}, {y}, 'amax') ;
    {x}.scatter_reduce({a}, {at}, {x}, 'amin', include_self=False) ;
    {x}.scatter_reduce({a}, {at}, {y}, 'sum', include_self=False) ;
    {f}.scatter_reduce({a}, {at} % max({f}.shape[{a}], 1), {f}, 'mean') ;
    {x}.index_add({a}, {at}.reshape(-1)[:{x}.shape[{a}]], {x}) ;
    {x}.index_copy({a}, torch.arange({x}.shape[{a}]).flip(0), {x}) ; {x}.index_fill({a}, {at}.reshape(-1), {h}) ;
    {x}.index_put(({at0},), {x}[0], accumulate=True) ; {x}.index_put(({at0}, {at0} % {x}.shape[1]), {y}.reshape(-1)[0], {t}) ;
    {x}.index_put((torch.arange({x}.shape[0]).flip(0),), {x}) ; {x}.masked_scatter({b}, {y}) ; {x}.masked_fill({b}, {h}) ;
    {x}.slice_scatter({x}.narrow({a}, 0, 1), {a}, 0, 1) ; {x}.select_scatter({x}.select({a}, -1), {a}, 0) ;
    {x}.diagonal_scatter({x}.diagonal({h}) * 2, {h}) ; {x}.put({n}.long() % {x}.numel(), {x}.new_ones(()).expand({n}.shape), True)
""")
ORDER = _statements("""
    {x}.sort({a})[0] ; {x}.sort({a}, {t}, stable=True)[1] ; {x}.sort({a}, stable=True)[0] ; {x}.argsort({a}, {t}, stable=True) ;
    {x}.topk({w}, {a})[0] ; {x}.topk({w}, {a}, {t})[0] ; {x}.topk({w}, {a}, {t}, False)[0].sort({a})[0] ;
    {x}.gather({a}, {x}.topk({w}, {a})[1]) ; {x}.kthvalue({w}, {a})[0] ; {x}.median({a})[0] ; {x}.argmax({a}) ;
    {x}.argmin({a}, keepdim=True) ; {x}.max({a})[1] ; {x}.mode({a})[0] ; {f}.quantile(0.3, {a}) ; {f}.nanmedian({a})[0] ;
    torch.searchsorted({x}.sort(-1)[0], {x}) ; torch.searchsorted({x}.sort(-1)[0], {x}, right={t}, out_int32={t}) ;
    torch.searchsorted({x}.reshape(-1).sort()[0], {y}, right={t}) ; {x}.bucketize({y}.reshape(-1).sort()[0], right={t}) ;
    torch.searchsorted({x}, {x}, sorter={x}.argsort(-1)) ; torch.bucketize({x}, torch.tensor([-1.0, 0.0, 0.5, 1.0])) ;
    torch.searchsorted({x}.reshape(-1).sort()[0], {h}) ; torch.isin({x}, {y}.reshape(-1)[:{w}]) ; {x}.msort()
""")
TOTALS = _statements("""
    {x}.cumsum({a}) ; {x}.cumsum({a}, dtype=torch.float64) ; {x}.sign().cumprod({a}) ; {x}.cummax({a})[0] ; {x}.cummax({a})[1] ;
    {x}.cummin({a})[0] ; {x}.cummin({a})[1] ; {f}.logcumsumexp({a}) ; {x}.flip({a}).cumsum({a}).flip({a}) ; {x}.diff({s}, {a}) ;
    {x}.cumsum({a}).roll(1, {a}) ; ({x} > 0).cumsum({a}) ; {x}.cumsum({a}) - {x} ; {f}.cumsum({a}) / {f}.shape[{a}] ;
    torch.cumulative_trapezoid({f}, dim={a}) ; {x}.cumsum({a}).cumsum({c})
""")
MOVES = _statements("""
    {x}.roll({h}) ; {x}.roll({h}, {a}) ; {x}.roll(({h}, 1), ({a}, {c})) ; {x}.roll({h}, {a}) + {x} ; {x}.flip({a}) ;
    {x}.flip({a}, {c}) ; {x}.flip({a}).roll({h}, {c}) * 2 ; {x}.rot90({h}, ({a}, {c})) ; {x}.repeat_interleave({w}, {a}) ;
    {x}.repeat_interleave({n}.reshape(-1)[:{x}.shape[{a}]].abs().long() % 3, {a}) ; {x}.unfold({a}, {w}, {s}) ;
    {x}.unfold({a}, {w}, {s}).sum(-1) ; {x}.unfold({a}, {w}, {s}).amax(-1) ; torch.cat([{x}, {y}], {a}) ;
    {x}.narrow({a}, {x}.shape[{a}] // 2, 1) ; {x}.transpose({a}, {c}) ; {x}.movedim({a}, {c}).contiguous() ;
    {x}[..., ::{s}] ; {x}.tensor_split({w}, {a})[-1] ; {x}.chunk({w}, {a})[0] ; {x}.tril({h}) ; {x}.triu({h}) ;
    F.pad({x}, ({s}, {w}), 'circular') ; F.pad({f}, ({s}, {w}), 'reflect') ; F.pad({f}, ({s}, {w}), 'replicate') ;
    F.pad({x}, ({s}, -1, 0, {w}), value={h}) ; {x}.expand({w}, *{x}.shape) ; {x}.as_strided(({w}, 2), (1, {s}))
""")
WINDOWS = _statements("""
    F.max_pool1d({f}, {w}, {s}, {w} // 2) ; F.max_pool1d({f}, {w}, {s}, 0, {s}) ; F.max_pool2d({f}, {w}, {s}) ;
    F.max_pool2d({f}, ({w}, 2), {s}, ({w} // 2, 1), 1, {t}) ; F.max_pool2d({f}, {w}, {s}, {w} // 2, return_indices=True)[1] ;
    F.max_pool2d({f}[None], ({w}, {s}), (1, {s})) ; F.max_pool3d({f}[None], {w}, {s}, {w} // 2) ;
    F.avg_pool1d({f}, {w}, {s}, {w} // 2, {t}) ; F.avg_pool2d({f}, {w}, {s}, {w} // 2, {t}, False) ;
    F.avg_pool2d({f}[None], ({w}, 1), ({s}, 1), 0, {t}) ; F.avg_pool3d({f}[None], {w}, {s}) ; F.lp_pool1d({f}, 2, {w}, {s}) ;
    F.adaptive_avg_pool1d({f}, {w}) ; F.adaptive_max_pool1d({f}, {w}) ; F.adaptive_avg_pool2d({f}, ({w}, {s})) ;
    F.unfold({f}[None], {w}, 1, {s}, {s}) ; F.interpolate({f}, scale_factor={w}) ;
    F.interpolate({f}[None], size=({w}, 9), mode='bilinear', align_corners={t}) ;
    F.max_unpool1d(*F.max_pool1d({f}, 2, 2, return_indices=True), 2) ; F.max_pool1d(-{f}, {w}, 1).neg()
""")
IN_PLACE = _statements("""
    {x}.index_put_(({at0},), {y}, accumulate={t}) ; {x}.scatter_({a}, {at}, {y}) ; {x}.scatter_add_({a}, {at}, {x}.clone()) ;
    {x}.index_add_({a}, {at}.reshape(-1)[:1], {x}.narrow({a}, 0, 1).clone()) ; {x}.cumsum_({a}) ; {x}.copy_({x}.roll({h}, {a})) ;
    {x}.copy_({x}.flip({a})) ; {x}.narrow({a}, 0, 1).fill_({h}) ; {x}[{at0}] = {h} ; {x}[{b}] = {h} ; {x}.triu_({h}) ;
    {x}.transpose({a}, {c}).copy_({x}.clone()) ; {x}.index_fill_({a}, {at}.reshape(-1), {h}) ; {x}[..., ::{s}] += 1 ;
    torch.cumsum({x}, {a}, out={y}) ; torch.gather({x}, {a}, {at}, out={y}) ;
    {x}.put_({n}.long() % {x}.numel(), {n}.to({x}.dtype)) ;
    {x}.masked_fill_({b}, {h}) ; {x}.masked_scatter_({b}, {y}) ; {x}.select({a}, 0).copy_({x}.select({a}, -1).clone()) ;
    {x}.flip({a}).add_(1) ; {x}.diagonal(0, {a}, {c}).mul_(2) ; {x}[{at0}] += {y}
""")
BETWEEN = _statements("""
    {x} + 1 ; {x} * {y} ; -{x} ; {f}.tanh() ; {x}.abs() ; {x} > {y} ; torch.where({b}, {x}, {y}) ; {x}.sum({a}, keepdim=True) ;
    {x}.amax({a}) ; {f}.softmax({a}) ; {x}.float() ; {x}.long() ; {f}.mean({a}, keepdim=True) - {f} ; {x}.contiguous() ;
    {x}.clone() ; {x}.reshape(-1) ; {x}.unsqueeze({a}) ; {x}.t()
""")
_KINDS = (READS, WRITES, ORDER, TOTALS, MOVES, WINDOWS, IN_PLACE, BETWEEN, BETWEEN)


def random_positions(seed: int) -> Program:
    """The program of a seed."""
    rng = random.Random(f"positions {seed}")
    grads, rank = rng.random() < 0.4, rng.choice([1, 2, 2, 2, 3, 3])
    extents = tuple(rng.choice(SIZES if rank < 3 else SIZES[:12]) for _ in range(rank))
    given = [_argument(rng, f"f{k}", FLOATS, extents, grads) for k in range(rng.randint(1, 2))]
    given += [_argument(rng, f"n{k}", WHOLES, extents, False) for k in range(rng.randint(1, 2))]
    given.append(_argument(rng, "b0", ("bool",), extents, False))
    builder = PositionBuilder(rng, given, seed, _KINDS)
    builder.most = MOST
    for _ in range(rng.randint(1, 5)):
        builder.add()
    used = " ".join(builder.lines)
    kept = tuple(a for a in given if a.name in used) or tuple(given[:1])
    names = [n for n in builder.values if n.startswith("v_")] or [kept[0].name]
    returned = tuple(rng.choices(names, k=rng.randint(1, 4)))
    program = Program(kept, (), tuple(builder.lines), returned, rng.random() < 0.5, seed)
    return replace(program, sizes=other_sizes(rng, program, NUMBERS, MOST)) if program.dynamic else program


def _argument(rng: random.Random, name: str, types: tuple[str, ...], extents: tuple[int, ...], grads: bool) -> Argument:
    drawn = tuple(1 if rng.random() < 0.1 else n for n in extents)
    if rng.random() < 0.1:
        drawn = tuple(rng.choice([0, 1, n]) for n in extents)
    return Argument(name, rng.choice(types), drawn, rng.choice(_LAYOUTS), grads and rng.random() < 0.6)


class PositionBuilder(MixBuilder):
    """Statements with numbers of their own."""

    def operands(self) -> dict[str, str]:
        rng = self.rng
        numbers = {
            "a": rng.choice([0, 0, 1, -1, -1, -2, 2]),
            "c": rng.choice([0, 1, -1, -2]),
            "w": rng.choice([1, 2, 2, 3, 4, 5, 7, 8, 9, 16, 33]),
            "s": rng.choice([1, 1, 2, 3, 4]),
            "h": rng.choice([0, 1, -1, 2, 3, -5, 7, 8, 13, 40, 129, -64]),
            "t": rng.random() < 0.5,
        }
        return {**super().operands(), **{key: str(value) for key, value in numbers.items()}}
