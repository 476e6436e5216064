"""Random functions of jax as text, one statement a line, each of which is tried at once; by a seed.

The makers of jax_makers.py say which statements there are. A function is taken as it is, or as its gradient, or mapped over a
batch, or both.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from importlib import import_module
from typing import Any

import numpy as np
from numpy.typing import NDArray

jax: Any = import_module("jax")
jnp: Any = import_module("jax.numpy")

Array = NDArray[Any]
FLOATS = ("float32", "float32", "float32", "float64", "bfloat16", "float16")
INTEGERS = ("int32", "int64", "int8", "uint8", "uint32")
NUMBERS = (*FLOATS, *INTEGERS)
ANY = (*NUMBERS, "bool")
LARGEST = {"float16": 2e3, "bfloat16": 1e4, "float32": 1e5, "float64": 1e8}
NAMES: dict[str, Any] = {"jax": jax, "jnp": jnp, "lax": jax.lax, "nn": jax.nn, "np": np}


def as_dtype(name: str) -> np.dtype[Any]:
    return np.dtype(getattr(jnp, name if name != "bool" else "bool_"))


def is_float(array: Any) -> bool:
    return bool(jnp.issubdtype(array.dtype, jnp.floating))


@dataclass(frozen=True)
class Variable:
    """A value; one is exact where every implementation has the same bits."""

    name: str
    value: Any
    exact: bool = True

    @property
    def shape(self) -> tuple[int, ...]:
        return tuple(self.value.shape)

    @property
    def rank(self) -> int:
        return len(self.value.shape)

    @property
    def dtype(self) -> str:
        return str(self.value.dtype)

    @property
    def is_float(self) -> bool:
        return is_float(self.value)

    def __str__(self) -> str:
        return self.name


@dataclass(frozen=True)
class Program:
    """A function: `lines` are pairs of a name and what gives it, `how` is how it is called, `values` are those of all names."""

    seed: int
    arguments: Mapping[str, Array]
    lines: tuple[tuple[str, str], ...]
    results: tuple[str, ...]
    values: Mapping[str, Any]
    how: str

    def needed(self) -> list[tuple[str, str]]:
        wanted, kept = set(self.results), list[tuple[str, str]]()
        for name, text in reversed(self.lines):
            if name in wanted:
                kept.append((name, text))
                wanted |= {other for other in self.values if _reads(text, other)}
        return kept[::-1]

    def given(self) -> dict[str, Array]:
        """The arguments that something reads."""
        texts = [text for _, text in self.needed()]
        return {n: a for n, a in self.arguments.items() if n in self.results or any(_reads(t, n) for t in texts)}

    def text(self) -> str:
        body = "".join(f"    {name} = {text}\n" for name, text in self.needed())
        return f"def f({', '.join(self.given())}):\n{body}    return ({', '.join(self.results)},)\n"

    def function(self) -> tuple[Callable[..., Any], list[Any]]:
        """What is compiled, and its arguments."""
        scope = dict(NAMES)
        exec(self.text(), scope)
        found, arguments = scope["f"], list(self.given().values())
        if "grad" in self.how:
            found = _gradient(found, [k for k, array in enumerate(arguments) if is_float(array)])
        if "vmap" in self.how:
            found, arguments = jax.vmap(found), [np.stack([a, a[::-1] if a.ndim else a]) for a in arguments]
        return found, arguments

    def smaller(self) -> Iterable[Program]:
        if self.how != "plain":
            yield replace(self, how="plain")
        if self.how == "grad, vmap":
            yield replace(self, how="grad")
            yield replace(self, how="vmap")
        for name in self.results if len(self.results) > 1 else ():
            yield replace(self, results=(name,))
        for name, _ in reversed(self.needed()):
            if name not in self.results:
                lines = tuple(line for line in self.lines if line[0] != name)
                yield replace(self, lines=lines, arguments={**self.arguments, name: np.asarray(self.values[name])})

    def shown(self) -> str:
        arrays = [
            f"  {n}: {a.dtype}{list(a.shape)} {a.tolist() if a.size <= 24 else '...'}" for n, a in self.given().items()
        ]
        return "\n".join([f"  {self.how}", *arrays, *("  " + line for line in self.text().splitlines())])


def _reads(text: str, name: str) -> bool:
    at = text.find(name)
    while at >= 0:
        around = text[at - 1 : at] + text[at + len(name) : at + len(name) + 1]
        if not any(c.isalnum() or c == "_" for c in around):
            return True
        at = text.find(name, at + 1)
    return False


def _gradient(function: Callable[..., Any], positions: Sequence[int]) -> Callable[..., Any]:
    """Of the sum of squares of all results that are floats."""

    def loss(*arguments: Any) -> Any:
        floats = [r.astype(jnp.float32) for r in function(*arguments) if is_float(r)]
        return sum(((r * r + r) * (k + 1)).sum() for k, r in enumerate(floats))

    return lambda *arguments: jax.grad(loss, argnums=tuple(positions))(*arguments)


class Builder:
    """A function that grows by statements that are tried."""

    def __init__(self, seed: int) -> None:
        self.rng = random.Random(seed)
        self.numbers = np.random.default_rng(seed)
        self.variables: list[Variable] = []
        self.arguments: dict[str, Array] = {}
        self.lines: list[tuple[str, str]] = []
        self.count = 0
        self.large = self.chance(0.2)
        """Whether there is work for several vectors, and threads."""

    def chance(self, share: float) -> bool:
        return self.rng.random() < share

    def extent(self) -> int:
        if self.large and self.chance(0.6):
            return self.rng.choice((17, 24, 31, 33, 48, 64, 100))
        return self.rng.choice((1, 2, 3, 3, 4, 5, 7, 8, 9, 17, 0 if self.chance(0.15) else 6))

    def shape(self, least: int = 0, most: int = 5) -> tuple[int, ...]:
        rank = self.rng.choice([r for r in (0, 1, 1, 2, 2, 2, 3, 3, 4, 5) if least <= r <= most])
        found = tuple(self.extent() for _ in range(rank))
        return found if np.prod(found) <= (12_000 if self.large else 1500) else tuple(min(n, 4) for n in found)

    def array(self, shape: Sequence[int], dtype: str, low: float = -2, high: float = 2) -> Array:
        kind = as_dtype(dtype)
        if dtype == "bool":
            return self.numbers.integers(0, 2, shape).astype(bool)
        if kind.kind in "iu":
            first = int(low if (low, high) != (-2, 2) else 0 if kind.kind == "u" else -5)
            return self.numbers.integers(first, max(int(high), first + 1) + 4, shape).astype(kind)
        return (self.numbers.integers(round(low * 8), round(high * 8) + 1, shape) / 8).astype(kind)

    def argument(self, array: Array) -> Variable:
        self.count += 1
        name = f"x{self.count}"
        self.arguments[name] = array
        self.variables.append(Variable(name, jnp.asarray(array)))
        return self.variables[-1]

    def fresh(self, shape: Sequence[int], dtype: str, low: float = -2, high: float = 2) -> Variable:
        return self.argument(self.array(shape, dtype, low, high))

    def pick(self, dtypes: Sequence[str], least: int = 0, most: int = 5, exact: bool = False) -> Variable:
        found = [
            v for v in self.variables[-6:] if v.dtype in dtypes and least <= v.rank <= most and (v.exact or not exact)
        ]
        if found and self.chance(0.8):
            return self.rng.choice(found)
        return self.fresh(self.shape(least, most), self.rng.choice(list(dtypes)))

    def partner(self, x: Variable, low: float = -2, high: float = 2, same: bool = False) -> Variable:
        """A second operand, whose shape broadcasts unless it is to be the same."""
        found = [v for v in self.variables if v.dtype == x.dtype and v.shape == x.shape]
        if (low, high) == (-2, 2) and found and self.chance(0.5):
            return self.rng.choice(found)
        shape = x.shape if same else tuple(1 if self.chance(0.2) else n for n in x.shape)
        return self.fresh(shape if same else shape[self.rng.choice((0, 0, len(shape) // 2)) :], x.dtype, low, high)

    def axis(self, rank: int) -> int:
        return self.rng.randrange(-rank, rank) if rank else 0

    def add(self, text: str, *operands: Variable, exact: bool = False) -> bool:
        """A statement, or none where jax refuses it, or gives what cannot be compared. Several results are several lines."""
        scope = {**NAMES, **{v.name: v.value for v in self.variables}}
        try:
            found: Any = eval(text, scope)
        except Exception:  # of jax: whatever it refuses
            return False
        several = isinstance(found, tuple | list)
        values: list[Any] = jax.tree.leaves(found) if several else [found]
        if not values or not all(comparable(value) for value in values):
            return False
        certain = exact and all(v.exact for v in operands)
        self.count += 1
        for k, value in enumerate(values):
            name = f"y{self.count}_{k}"
            self.lines.append((name, f"{text}[{k}]" if several else text))
            self.variables.append(Variable(name, value, certain))
        return True

    def program(self, seed: int, makers: Sequence[Callable[[Builder], Any]], length: int) -> Program:
        while len(self.lines) < length:
            self.rng.choice(makers)(self)
        made = [name for name, _ in self.lines]
        unread = [name for name in made if not any(_reads(text, name) for _, text in self.lines)]
        results = tuple([*unread, *(n for n in made if n not in unread and self.chance(0.2))])
        values = {v.name: v.value for v in self.variables}
        how = self.rng.choice(("plain", "plain", "plain", "grad", "vmap", "grad, vmap"))
        program = Program(seed, self.arguments, tuple(self.lines), results, values, how)
        if "grad" in how and not any(is_float(array) for array in program.given().values()):
            program = replace(program, how="plain")
        return program


def comparable(value: Any) -> bool:
    if not hasattr(value, "dtype") or value.size > 1 << 14:
        return False
    if not is_float(value):
        return str(value.dtype) in ANY
    wide = np.asarray(value).astype(np.float64)
    return bool(np.isfinite(wide).all() and (np.abs(wide) <= LARGEST[str(value.dtype)]).all())
