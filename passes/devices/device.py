"""Devices as data: what the cost model of fusion knows of one, from a file `device_NAME.toml` here or one of the user's."""

from __future__ import annotations

import json
import os
import re
import tomllib
from collections.abc import Mapping
from dataclasses import MISSING, dataclass, fields
from functools import cache
from math import log
from pathlib import Path
from typing import Literal, cast

from fuse_opt.dialects.types.dtypes import DTYPES
from fuse_opt.passes.deprecated_spellings import current_spelling

_FOLDER = Path(__file__).parent
_PREFIX = "device_"
HOST = "cpu"
VARIABLE = "FUSE_OPT_DEVICE"
"""Names a file that stands in for the figures of "cpu", such as `fuse-tune calibrate` writes."""
NARROW_HOST = "avx2"
"""What HOST is where the processor has vectors of 256 bits alone."""

FACTORS = (
    "depthwise", "depthwise_to_lanes", "depthwise_lanes", "turned", "panels", "single", "single_of_128", "single_of_512",
    "winograd_tile", "winograd_filters", "onednn_slow", "copied_rows",
)  # fmt: skip
"""What a file may say in its table `factors`: how convolutions compare with products, by code of ours and by
oneDNN, and products with others."""

GPU_ENTRIES = (
    "processors", "max_threads", "processor_threads", "static_shared", "shared_memory", "bytes_in_flight", "capability",
)  # fmt: skip
"""What a file says in its table `gpu`, or nothing of it."""


@dataclass(frozen=True, slots=True)
class Device:
    """What fusion gains and costs on a machine; units in the names of the files' comments."""

    name: str
    bandwidth: float
    """Bytes a second, from and to memory."""
    cache_bytes: int
    """Bytes that stay in caches between kernels."""
    cache_bandwidth: float
    """Bytes a second of data in caches."""
    rate: float
    """Simple operations a second."""
    launch: float
    """Seconds that a further kernel costs."""
    processors: int
    """Independent tasks that keep it busy."""
    strided: float
    """Cost of an element read alone, in elements read with their neighbours."""
    hoists: bool
    """Whether values that do not change in the innermost loop are computed once for it."""
    recompute_limit: int
    """Simple operations above which a value is never recomputed past a broadcast."""
    live_values: int
    """Scalars of an element alive at once."""
    parameter_bytes: int
    """Bytes of a kernel's arguments; each operand and each result is an address of 8."""
    last_level_cache_bytes: int = 0
    """Bytes of the largest cache; 0 where it does not matter to how kernels store."""
    first_cache_bytes: int = 48 << 10
    """Bytes of a core's first level cache for data."""
    vector_bytes: int = 64
    """Bytes of the widest vectors that it multiplies: of 64 there are 32 registers, of 32 sixteen."""
    window: int = 150
    """Instructions that a core looks ahead."""
    across: float = 2.0
    """What a pass over memory costs that reads along one axis and writes along another, next to one in order."""
    products: tuple[tuple[str, float], ...] = ()
    """Operations a second of matrix products, all processors together, by element type; see `product_rate`."""
    rates: tuple[tuple[str, tuple[tuple[str, float], ...]], ...] = ()
    """The same of implementations, by their names, or of backends, by theirs; see `implementation_rate`."""
    factors: tuple[tuple[str, float], ...] = ()
    """How many times as long as a product of as many operations something takes, by the names of FACTORS; see `factor`."""
    features: tuple[str, ...] = ()
    """What implementations may ask for, such as avx512_bf16 or sm_90: all that it has, each by its name."""
    gpu: tuple[tuple[str, int], ...] = ()
    """What kernels of a GPU may use, by the names of GPU_ENTRIES; nothing for other devices."""

    @property
    def platform(self) -> Literal["cpu", "cuda"]:
        """What programs for it run on."""
        return "cuda" if self.gpu else "cpu"

    def product_rate(self, dtype: str) -> float:
        """Operations a second of products of an element type; of one that is not in the file, four for each simple one."""
        return next((rate for name, rate in self.products if name == dtype), 4 * self.rate)

    def implementation_rate(self, name: str, dtype: str) -> float:
        """Operations a second of an implementation, by its name or its backend's; else what products of code of ours reach."""
        for wanted in (name, name.partition(".")[0]):
            table = next((table for known, table in self.rates if known == wanted), ())
            if (found := next((rate for element, rate in table if element == dtype), None)) is not None:
                return found
        return self.product_rate(dtype)

    def factor(self, name: str) -> float:
        """That of the name; 1.0 where the file has none."""
        return next((value for known, value in self.factors if known == name), 1.0)

    def move_seconds(self, nbytes: float) -> float:
        """Seconds to read or write so many bytes, which come from the caches when they are few."""
        return nbytes / (self.cache_bandwidth if nbytes <= self.cache_bytes else self.bandwidth)

    def work_seconds(self, operations: float, tasks: int | None = None) -> float:
        """Seconds of so many simple operations in so many independent tasks, or in as many as there are processors."""
        share = 1.0 if tasks is None else min(max(tasks, 1) / self.processors, 1.0)
        return operations / self.rate / share


@cache
def device_names() -> tuple[str, ...]:
    """The devices that are described here, sorted."""
    return tuple(sorted(path.stem.removeprefix(_PREFIX) for path in _FOLDER.glob(f"{_PREFIX}*.toml")))


def find_device(name: str) -> Device:
    """
    The device of that name, or the one that the file of that path describes; for "cpu" the file of `$FUSE_OPT_DEVICE` where
    that is set, read once in a process. Raises ValueError: no such device or file, or an entry that is missing, unknown or
    no number.
    """
    if name == HOST and (path := os.environ.get(VARIABLE)):
        return _named_host(path)
    return _known_device(name) if name in device_names() else _read_device(name)


def is_host_named() -> bool:
    """Whether a file stands in for the figures of "cpu"."""
    return bool(os.environ.get(VARIABLE))


@cache
def _named_host(path: str) -> Device:
    try:
        device = _read_device(path)
    except ValueError as error:
        raise ValueError(str(error).replace("option 'device'", f"${VARIABLE}", 1)) from None
    if device.platform != "cpu":
        raise ValueError(f"${VARIABLE}: {path}: expected the figures of a CPU, got a table 'gpu'")
    return device


@cache
def _known_device(name: str) -> Device:
    return _read_device(name)


def device_text(device: Device, comment: str) -> str:
    """The file of a CPU's record, which `find_device` reads; with four digits of each figure. `comment` stands above."""
    lines = [f"# {line}" for line in comment.splitlines()]
    for field in fields(Device):
        if field.name not in _TABLES:
            lines.append(f"{field.name} = {_toml(getattr(device, field.name))}")
    lines.append(f"products = {_toml_table(device.products)}")
    lines.append(f"factors = {_toml_table(device.factors)}")
    rates = ", ".join(f"{json.dumps(name)} = {_toml_table(table)}" for name, table in device.rates)
    return "\n".join((*lines, f"rates = {{ {rates} }}", ""))


def _toml(value: str | bool | float | tuple[str, ...]) -> str:
    return f"{value:.4g}" if isinstance(value, float) else json.dumps(value)


def _toml_table(rates: tuple[tuple[str, float], ...]) -> str:
    return f"{{ {', '.join(f'{name} = {rate:.4g}' for name, rate in rates)} }}"


def nearest_gpu(title: str, figures: Mapping[str, int]) -> Device:
    """
    The GPU that is described here whose name is a word of `title`, else the one whose bandwidth and number of processors are
    the fewest times larger or smaller, as far as `figures` has them.
    """
    words = set(re.split(r"[^a-z0-9]+", title.lower()))
    known = [device for device in map(find_device, device_names()) if device.gpu]
    named = [device for device in known if device.name in words]

    def distance(device: Device) -> float:
        pairs = ((figures.get("bandwidth", 0), device.bandwidth), (figures.get("processors", 0), device.processors))
        return sum(abs(log(mine / theirs)) for mine, theirs in pairs if mine > 0)

    return named[0] if named else min(known, key=distance)


def generations(capability: int) -> tuple[str, ...]:
    """The features of a GPU by ten times its compute capability: its own one, and the earlier ones that any file here names."""
    named = {feature for device in map(find_device, device_names()) if device.gpu for feature in device.features}
    numbers = {int(name.removeprefix("sm_")) for name in named if name.startswith("sm_")} | {capability}
    return tuple(f"sm_{number}" for number in sorted(numbers) if number <= capability)


def _read_device(name: str) -> Device:
    path = _FOLDER / f"{_PREFIX}{name}.toml" if name in device_names() else Path(name)
    if path.suffix != ".toml":
        raise ValueError(
            f"option 'device': unknown '{name}'; expected one of {', '.join(device_names())} or a .toml file"
        )
    return _described(_entries(path), path)


def _entries(path: Path) -> dict[str, object]:
    """Those of a file, and of the device that it is `like` those that it does not have."""
    try:
        entries = tomllib.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise ValueError(f"option 'device': {path}: {error.strerror}") from None
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise ValueError(f"option 'device': {path}: {error}") from None
    if (like := entries.pop("like", None)) is None:
        return entries
    if like not in device_names():
        raise ValueError(f"option 'device': {path}: like: expected one of {', '.join(device_names())}, got {like!r}")
    found = _entries(_FOLDER / f"{_PREFIX}{like}.toml")
    if isinstance(factors := entries.get("factors"), dict):
        entries["factors"] = {**cast("dict[str, object]", found.get("factors", {})), **factors}
    return {**found, **entries}


def _described(entries: dict[str, object], path: Path) -> Device:
    names = [field.name for field in fields(Device) if field.name not in _TABLES]
    required = [field.name for field in fields(Device) if field.default is MISSING]
    entries = {current_spelling("device", name): value for name, value in entries.items()}
    table, products, rates, factors = (entries.pop(name, {}) for name in _TABLES)
    for name in (*required, *entries):
        if name not in entries or name not in names:
            problem = "has no entry" if name in names else "has the unknown entry"
            raise ValueError(f"option 'device': {path} {problem} '{name}'; expected {', '.join(names)}")
    for name, value in entries.items():
        if (wanted := _misfit(name, value)) is not None:
            raise ValueError(f"option 'device': {path}: {name}: expected {wanted}, got {value!r}")
    if isinstance(names_of := entries.get("features"), list):
        entries["features"] = tuple(cast("list[str]", names_of))
    found = {
        "gpu": _described_gpu(table, path),
        "products": _described_products(products, path),
        "rates": _described_rates(rates, path),
        "factors": _described_factors(factors, path),
    }
    return Device(**entries, **found)  # pyright: ignore[reportArgumentType]


_TABLES = ("gpu", "products", "rates", "factors")


def _described_factors(table: object, path: Path) -> tuple[tuple[str, float], ...]:
    found: dict[str, object] = table if isinstance(table, dict) else {"": table}  # pyright: ignore[reportUnknownVariableType]
    for name, value in found.items():
        if name not in FACTORS or _misfit(name, value) is not None:
            known = ", ".join(FACTORS)
            raise ValueError(f"option 'device': {path}: factors.{name}: expected a positive number of one of {known}")
    return tuple((name, float(cast("float", value))) for name, value in found.items())


def _described_rates(table: object, path: Path) -> tuple[tuple[str, tuple[tuple[str, float], ...]], ...]:
    if not isinstance(table, dict):
        raise ValueError(f"option 'device': {path}: rates: expected tables by names of implementations, got {table!r}")
    entries: dict[str, object] = table  # pyright: ignore[reportUnknownVariableType]
    return tuple((name, _described_products(rates, path, f'rates."{name}"')) for name, rates in entries.items())


def _described_products(table: object, path: Path, entry: str = "products") -> tuple[tuple[str, float], ...]:
    found: dict[str, object] = table if isinstance(table, dict) else {"": table}  # pyright: ignore[reportUnknownVariableType]
    rates: list[tuple[str, float]] = []
    for name, value in found.items():
        if name not in [dtype.name for dtype in DTYPES] or not isinstance(value, int | float) or not value > 0:
            raise ValueError(f"option 'device': {path}: {entry}.{name}: expected an element type = a positive number")
        rates.append((name, float(value)))
    return tuple(rates)


def _described_gpu(table: object, path: Path) -> tuple[tuple[str, int], ...]:
    found: dict[str, object] = {} if not isinstance(table, dict) else table  # pyright: ignore[reportUnknownVariableType]
    if table != {} and sorted(found) != sorted(GPU_ENTRIES):
        raise ValueError(f"option 'device': {path}: table 'gpu': expected {', '.join(GPU_ENTRIES)}, got {table}")
    for name, value in found.items():
        if not isinstance(value, int) or isinstance(value, bool) or value < 1:
            raise ValueError(f"option 'device': {path}: gpu.{name}: expected a positive integer, got {value!r}")
    return tuple((name, value) for name, value in found.items() if isinstance(value, int))


def _misfit(name: str, value: object) -> str | None:
    """What the entry should be, when it is not."""
    match name:
        case "name":
            return None if isinstance(value, str) else "a text"
        case "features":
            names = cast("list[object]", value) if isinstance(value, list) else [None]
            return None if all(isinstance(each, str) and each for each in names) else "a list of texts"
        case "hoists":
            return None if isinstance(value, bool) else "true or false"
        case _:
            number = isinstance(value, int | float) and not isinstance(value, bool) and value > 0
            return None if number else "a positive number"
