"""Random functions on tensors as text: views, writes through views, element types of any width, results that alias.

Statements are made one by one and tried at once on small tensors: what PyTorch refuses is left out.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from math import prod
from typing import Any

from torch_testing import torch

NAMES = ("float32", "float32", "float64", "float16", "bfloat16", "int64", "int32", "int8", "uint8", "bool", "complex64")
BYTES = 48
"""Most tensors have so many, whatever their element type is."""
_SHAPES: dict[int, tuple[tuple[int, ...], ...]] = {
    48: ((48,), (6, 8), (4, 3, 4)),
    24: ((24,), (4, 6), (2, 3, 4), (1, 2, 3, 4)),
    12: ((12,), (3, 4), (4, 3), (2, 3, 2), (12, 1)),
    6: ((6,), (2, 3), (3, 2), (1, 6)),
}
_ODD: tuple[tuple[int, ...], ...] = ((), (1,), (0, 3), (3, 0), (2, 2), (5, 3), (3, 3), (2, 2, 2, 3))
_LAYOUTS = ("plain", "plain", "plain", "transposed", "steps", "shifted", "repeated", "last", "reversed")

VIEWS = (
    "{x}.t()", "{x}.reshape(-1)", "{x}.flatten()", "{x}.unsqueeze(0)", "{x}.unsqueeze(-1)", "{x}.squeeze()", "{x}[1:]",
    "{x}[..., ::2]", "{x}[-1]", "{x}[:1].expand(3, *{x}.shape[1:])", "{x}.transpose(0, -1)", "{x}.movedim(0, -1)",
    "{x}.as_strided((2, 2), (1, 2))", "{x}.as_strided((2, 3), (3, 1), 1)", "{x}.as_strided((3, 2), (1, 1))",
    "{x}.diagonal()", "{x}.unfold(0, 2, 1)", "{x}.view(torch.int32)", "{x}.view(torch.float32)", "{x}.view(torch.int16)",
    "{x}.view(torch.uint8)", "{x}.detach()", "{x}.view_as({x})", "{x}.chunk(2)[-1]", "{x}.split(2)[-1]",
    "{x}.unbind(0)[0]", "{x}.select(0, -1)", "{x}.select(-1, 0)", "{x}.narrow(0, 0, 1)", "{x}.mT", "{x}.contiguous()",
    "{x}.float()", "{x}.real", "{x}.imag", "{x}.conj()", "torch.view_as_real({x})", "{x}.reshape({x}.shape[::-1])",
    "{x}.resolve_conj()", "{x}.resolve_neg()", "{x}.view({x}.shape)", "{x}.expand(2, *{x}.shape)", "{x}.T",
    "torch.view_as_complex({x}.reshape(-1, 2))", "{x}.adjoint()", "{x}.swapaxes(0, 1)", "{x}.ravel()", "{x}[None]",
)  # fmt: skip
VALUES = (
    "{x} * 2", "{x} + {y}", "{x} - {y}", "{x} * {y}", "{x}.abs()", "torch.where({x} > 0, {x}, {y})", "{x}.sum(0)",
    "{x}.sum()", "{x}.amax(-1)", "torch.cat([{x}, {x}])", "torch.cat([{x}, {y}])", "{x}.clone()", "{x}.to(torch.float32)",
    "{x}.to(torch.float64)", "{x}.to(torch.bfloat16)", "{x}.to(torch.int64)", "{x}.to(torch.int32)", "torch.relu({x})",
    "{x}.cumsum(0)", "{x} @ {y}", "{x}.flip(0)", "torch.zeros_like({x})", "torch.ones_like({x}) + {x}", "{x}.new_ones(3)",
    "torch.sin({x})", "{x}.sort(0)[0]", "torch.stack([{x}, {x} + 1])", "-{x}", "{x} > {y}", "{x} == 1", "{x}.roll(1)",
    "torch.nn.functional.pad({x}, (1, 0))", "{x}.softmax(-1)", "torch.empty_like({x}).fill_(3)", "{x}.t().contiguous()",
    "{x} + 0.5", "{x}.mean()", "{x}.any()", "torch.maximum({x}, {y})", "{x}.clone().reshape(-1)", "torch.fft.fft({x})",
    "{x}.t().clone(memory_format=torch.contiguous_format)", "{x}.clone(memory_format=torch.channels_last)",
    "{x}.repeat(2)", "{x}.half()", "{x} + {x}.t()", "{x}.prod()", "{x}.argmax()", "torch.full((3,), 2.0)", "{x}.tril()",
    "torch.nn.functional.dropout({x}, 0.0)", "torch.arange({x}.shape[0])", "{x}.index_select(0, torch.tensor([0]))",
)  # fmt: skip
WRITES = (
    "{x}.add_(1)", "{x}.mul_({y})", "{x}.copy_({y})", "{x}.copy_({x}.t().clone())", "{x}[:1].fill_(1)", "{x}.zero_()",
    "{x}.t().add_({y})", "{x}.clamp_(0, 2)", "{x}[1:].copy_({x}[:-1].clone())", "{x}.neg_()", "{x}.masked_fill_({x} > 0, 1)",
    "{x}.reshape(-1)[::2].mul_(3)", "{x}.copy_({y}.reshape({x}.shape))", "{x}[0] = {y}", "{x}.relu_()", "{x}.sub_({y}.sum())",
    "{x}.view(torch.int32).add_(0)", "{x}.copy_({y}.view({x}.dtype).reshape({x}.shape))", "torch.add({x}, 1, out={y})",
    "{x}.copy_({x})", "{x}.t().copy_({x}.clone())", "{x}[..., 0].zero_()", "{x}.fill_(2)",
    "{z} = {x}.clone(); {x}.copy_({y}.reshape({x}.shape)); {y}.copy_({z}.reshape({y}.shape))",
)  # fmt: skip

KINDS = (VIEWS, VALUES, VALUES, WRITES)
TIGHT_KINDS = (
    ("{x} * 2", "{x} + 1", "-{x}", "{x}.clone()", "{x} + {y}", "{x}.abs()", "{x}.t() * 2", "{x}.to(torch.float32) * 2",
     "{x}.to(torch.int32)", "{x}.view(torch.int32) + 1", "{x}.view(torch.float32).abs()", "{x}.reshape(-1) * 3",
     "{x} * {y}.reshape({x}.shape)", "{x} == {y}", "{x}.sum() + {y}"),
    ("{x}.add_(1)", "{x}.mul_(2)", "{x}.copy_({y}.reshape({x}.shape))", "{x}.copy_(2 * {y}.reshape({x}.shape))",
     "{x}.neg_()", "{x}.copy_(({x} * 2).reshape({x}.shape))", "{x}.t().mul_(2)", "{x}.view({y}.dtype).copy_({y}.view({x}.shape))",
     "{x}.copy_({x}.t().reshape({x}.shape) + 1)",
     "{z} = {x}.clone(); {x}.copy_({y}.reshape({x}.shape)); {y}.copy_({z}.reshape({y}.shape))"),
    ("{x}.t()", "{x}.reshape(-1)", "{x}.view(torch.int32)", "{x}[:1]", "{x}.t().reshape(3, 4)", "{x}.view({y}.shape)"),
)  # fmt: skip
"""Programs of few kinds of bytes, whose results may all be put in the place of what is overwritten."""


@dataclass(frozen=True)
class Argument:
    """A tensor to make: `extents` and `layout` of it in a storage that may be larger."""

    name: str
    dtype: str
    extents: tuple[int, ...]
    layout: str
    grad: bool

    def make(self, seed: int) -> Any:
        """The tensor; the same for the same seed."""
        dtype = getattr(torch, self.dtype)
        extents, generator = self.extents, torch.Generator().manual_seed(seed)
        whole = {
            "transposed": extents[::-1], "steps": (*extents[:-1], 2 * extents[-1]) if extents else (2,),
            "shifted": (extents[0] + 2, *extents[1:]) if extents else (3,), "repeated": (1, *extents[1:]),
            "last": (extents[0], *extents[2:], extents[1]) if len(extents) > 1 else extents,
        }.get(self.layout, extents)  # fmt: skip
        base = torch.randint(-8, 9, whole, generator=generator).double() / 4
        base = base.abs() if self.dtype in ("uint8", "bool") else base
        if dtype.is_complex:
            base = torch.complex(base, base.flip(0) if base.dim() else base)
        base = base.to(dtype)
        if self.layout == "transposed" and extents:
            base = base.permute(*reversed(range(len(extents))))
        elif self.layout == "steps":
            base = base[..., ::2] if extents else base[1]
        elif self.layout == "shifted":
            base = base[2:] if extents else base[2]
        elif self.layout == "repeated" and extents:
            base = base.expand(extents)
        elif self.layout == "last" and len(extents) > 1:
            base = base.movedim(-1, 1)
        elif self.layout == "windows" and extents and not self.grad:
            base = base.as_strided(extents, (1,) * len(extents))  # every element has neighbours in its place
        elif self.layout == "offset":
            base = torch.cat([base.new_zeros(1), base.reshape(-1)])[1:].view(extents)
        elif self.layout == "reversed" and dtype.is_complex:
            base = base.conj()
        return base.detach().requires_grad_(self.grad)

    def shown(self) -> str:
        return f"{self.name}: {self.dtype}{list(self.extents)} {self.layout}{' grad' if self.grad else ''}"


@dataclass(frozen=True)
class Program:
    """A function of tensors, some of which may be its module's own."""

    arguments: tuple[Argument, ...]
    owned: tuple[Argument, ...]
    lines: tuple[str, ...]
    returned: tuple[str, ...]
    dynamic: bool
    seed: int
    sizes: tuple[tuple[tuple[int, ...], ...], ...] = field(default=())
    """Other extents of the arguments, for calls that follow."""

    def text(self) -> str:
        names = ", ".join(["self", *(argument.name for argument in self.arguments)])
        items = f"{', '.join(self.returned)}{',' if len(self.returned) == 1 else ''}"
        return "\n".join([f"def forward({names}):", *(f"    {line}" for line in (*self.lines, f"return ({items})"))])

    def shown(self) -> str:
        heads = [f"# {a.shown()}" for a in (*self.owned, *self.arguments)]
        return "\n".join([*heads, *([f"# dynamic, then {self.sizes}"] if self.dynamic else []), self.text()])

    def module(self) -> Any:
        """A new module whose `forward` is the function; its own tensors are as in every other one."""
        space: dict[str, Any] = {"torch": torch}
        exec(compile(self.text(), "<random program>", "exec"), space)
        module = type("Module", (torch.nn.Module,), {"forward": space["forward"]})()
        for number, argument in enumerate(self.owned):
            value = argument.make(self.seed + 100 + number)
            name = argument.name.removeprefix("self.")
            if argument.grad:
                module.register_parameter(name, torch.nn.Parameter(value))
            else:
                module.register_buffer(name, value)
        return module

    def inputs(self, call: int = 0) -> list[Any]:
        """Arguments of a call; another call has other values, and other extents where these vary."""
        extents = self.sizes[call - 1] if call and self.sizes else [a.extents for a in self.arguments]
        made = [replace(a, extents=e) for a, e in zip(self.arguments, extents, strict=True)]
        return [argument.make(self.seed + 1000 * call + number) for number, argument in enumerate(made)]

    def smaller(self) -> list[Program]:
        """Programs with one thing less."""
        found: list[Program] = [
            replace(self, lines=(*self.lines[:k], *self.lines[k + 1 :])) for k in range(len(self.lines))
        ]
        count = len(self.returned)
        found += [replace(self, returned=(*self.returned[:k], *self.returned[k + 1 :])) for k in range(count)]
        if self.sizes:
            found.append(replace(self, sizes=()))
        return found


def random_program(seed: int) -> Program:
    """The program of a seed."""
    rng = random.Random(f"torch {seed}")
    tight = seed % 3 == 0
    grads = rng.random() < (0.1 if tight else 0.35)
    arguments = tuple(_argument(rng, f"x{k}", grads, tight) for k in range(rng.randint(2 if tight else 1, 4)))
    owned: tuple[Argument, ...] = ()
    if rng.random() < 0.25:
        made = (_argument(rng, f"self.b{k}", grads, tight) for k in range(rng.randint(1, 2)))
        owned = tuple(replace(argument, layout="plain") for argument in made)
    builder = Builder(rng, [*arguments, *owned], seed, TIGHT_KINDS if tight else KINDS)
    for _ in range(rng.randint(1, 7)):
        builder.add()
    names = list(builder.values)
    computed = [name for name in names if name.startswith("v")]
    chosen = computed if tight and computed and rng.random() < 0.8 else names
    returned = rng.choices(chosen, k=rng.randint(0, 4))
    program = Program(arguments, owned, tuple(builder.lines), tuple(returned), rng.random() < 0.25, seed)
    return replace(program, sizes=other_sizes(rng, program)) if program.dynamic else program


def _argument(rng: random.Random, name: str, grads: bool, tight: bool) -> Argument:
    dtype = rng.choice(("float32", "int32", "float32", "float64", "bfloat16") if tight else NAMES)
    kind = getattr(torch, dtype)
    fitting = _SHAPES.get(BYTES // kind.itemsize, ()) if tight or rng.random() < 0.7 else _ODD
    extents = rng.choice(fitting or _ODD)
    layout = rng.choice(("plain", "plain", "transposed", "shifted") if tight else _LAYOUTS)
    return Argument(name, dtype, extents, layout, grads and kind.is_floating_point and rng.random() < 0.6)


class Builder:
    """Lines that PyTorch takes, and the values that they leave."""

    prefix, most = "v", 2000  # of the names of values; elements of each

    def __init__(
        self, rng: random.Random, arguments: Sequence[Argument], seed: int, kinds: Sequence[Sequence[str]]
    ) -> None:
        self.rng = rng
        self.kinds = kinds
        self.lines: list[str] = []
        self.arguments = arguments
        self.seed = seed
        self.values: dict[str, Any] = self._fresh()

    def _fresh(self, call: int = 0) -> dict[str, Any]:
        """The tensors that a call begins with."""
        made = {a.name: a.make(self.seed + 1000 * call + number) for number, a in enumerate(self.arguments)}
        return {n: torch.nn.Parameter(v) if n.startswith("self.") and v.requires_grad else v for n, v in made.items()}

    def add(self) -> None:
        """One more line; none where PyTorch refuses all that were tried."""
        for _ in range(8):
            kind = self.rng.choice(self.kinds)
            operands, new = self.operands(), f"{self.prefix}{len(self.lines)}"
            text = self.rng.choice(kind).format(z=new, **operands)
            line = text if "_(" in text or " = " in text or "out=" in text else f"{new} = {text}"
            if self._takes(line):
                self.lines.append(line)
                return

    def operands(self) -> dict[str, str]:
        """Names of values, by what statements call them."""
        return {name: self.rng.choice(list(self.values)) for name in ("x", "y")}

    def _takes(self, line: str) -> bool:
        """Whether the program runs with this line, and its numbers have one meaning in all types; keeps them if so."""
        found = [self._values_after(line, call) for call in (2, 1, 0)]
        if any(values is None or not all(_is_plain(v, self.most) for v in values.values()) for values in found):
            return False
        self.values = found[-1] or {}
        return True

    def _values_after(self, line: str, call: int) -> dict[str, Any] | None:
        owner = torch.nn.Module()
        fresh = self._fresh(call)
        space: dict[str, Any] = {"torch": torch, "self": owner}
        for name, value in fresh.items():
            if name.startswith("self."):
                setattr(owner, name.removeprefix("self."), value)
            else:
                space[name] = value
        try:
            for each in (*self.lines, line):
                exec(each, space)
        except Exception:
            return None
        kept = {n: v for n, v in space.items() if isinstance(v, torch.Tensor)}
        kept.update({name: value for name, value in fresh.items() if name.startswith("self.")})
        return kept


def _is_plain(value: Any, most: int) -> bool:
    """Whether a tensor is small, and its numbers neither NaN nor beyond what integers hold, which no cast agrees on."""
    if value.numel() > most:
        return False
    numbers = torch.view_as_real(value.detach().resolve_conj()) if value.is_complex() else value.detach()
    return bool((numbers.double().abs() < 2e9).all()) or not (value.is_floating_point() or value.is_complex())


def other_sizes(
    rng: random.Random, program: Program, numbers_for: Sequence[int] = range(2, 10), most: int = 2000
) -> tuple[tuple[tuple[int, ...], ...], ...]:
    """Extents with which the program runs, too: each number of the first ones is another one everywhere."""
    found: list[tuple[tuple[int, ...], ...]] = []
    numbers = sorted({n for a in program.arguments for n in a.extents if n > 1})
    for _ in range(6):
        other = {n: rng.choice(numbers_for) for n in numbers}
        extents = tuple(tuple(other.get(n, n) for n in a.extents) for a in program.arguments)
        trial = replace(program, sizes=(extents,))
        if len(found) < 2 and all(prod(e) < most for e in extents) and _runs(lambda t=trial: t.module()(*t.inputs(1))):
            found.append(extents)
    return tuple(found)


def _runs(call: Callable[[], object]) -> bool:
    with suppress(Exception):
        call()
        return True
    return False


def parsed_argument(name: str, text: str) -> Argument:
    dtype, extents, *rest = text.split(" ")
    numbers = tuple(int(n) for n in extents.split("x")) if extents != "-" else ()
    return Argument(name, dtype, numbers, next((w for w in rest if w != "grad"), "plain"), "grad" in rest)
