"""Arguments and results in `.npz` files: arrays by name, and sparse matrices as `scipy.sparse.save_npz` lays them out.

SciPy is not needed for either. A row-sparse tensor is laid out likewise, with the format `row_sparse` and no `indptr`.
"""

from __future__ import annotations

import argparse
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

import numpy as np

from fuse_opt.tools.compiler.signature import Array, Signature, Value

_PARTS = {"csr": ("indptr", "indices", "data"), "row_sparse": ("indices", "data")}
"""The arrays of a file, by what it says its format is, in the order of the tuple that a program takes."""


def read_arrays(file: str) -> dict[str, Array]:
    """The arrays of a file. Raises OSError where there is none, and ValueError for one that holds anything else."""
    from zipfile import BadZipFile, ZipFile
    from zlib import error as ZlibError

    try:
        with ZipFile(file) as archive, np.load(file, allow_pickle=False) as saved:
            names = [name.removesuffix(".npy") for name in archive.namelist()]
            return {name: saved[name] for name in names}
    except (BadZipFile, EOFError, KeyError, NotImplementedError, ValueError, ZlibError) as error:
        reason = str(error).partition("\n")[0]
        raise ValueError(f"'{file}': expected arrays as numpy.savez writes them; {reason}") from None


def read_arguments(
    signature: Signature, file: str | None, files: Mapping[str, str], given: Sequence[Any], weights: Mapping[str, Array]
) -> list[Any]:
    """
    The arguments: those with a file of their own from there, others from the arrays of `file`, by name, or arg0, arg1 ...,
    or in numpy.savez's own order; those that are in none are `given`, or were there no other. Raises OSError, TypeError and
    ValueError.
    """
    own = {signature.position(int(name) if name.isdecimal() else name): path for name, path in files.items()}
    saved = {**weights, **({} if file is None else read_arrays(file))}
    found: list[Any] = []
    for number, value in enumerate(signature.arguments):
        names = (value.name, f"arg{number}", f"arr_{number}")
        name = next((name for name in names if name in saved), None)
        if number in own:
            found.append(_from_file(value, own[number]))
        elif name is not None and value.stored is None:
            found.append(value.convert(saved[name]))
        elif file is None:
            found.append(given[number])
        elif value.stored is not None:
            raise ValueError(
                f"{file} has no {value.label}, {value}; give it a file: --inputs {names[0] or number}=FILE.npz"
            )
        else:
            raise ValueError(f"{file} has no array for {value.label}; expected one called {' or '.join(names)}")
    return found


def _from_file(value: Value, file: str) -> Any:
    """An argument from a file of its own."""
    saved = read_arrays(file)
    if value.stored is None:
        if len(saved) != 1:
            raise ValueError(f"'{file}': expected one array for {value.label}, got {', '.join(saved) or 'none'}")
        return value.convert(*saved.values())
    kind, given = value.stored.kind, str(saved["format"].astype(str)) if "format" in saved else "none"
    wanted = ("format", "shape", *_PARTS[kind])
    if given != kind or any(name not in saved for name in wanted):
        raise ValueError(
            f"'{file}': expected arrays {', '.join(wanted)} for {value.label}, with the format {kind}, got "
            f"{', '.join(saved) or 'none'}, with the format {given}"
        )
    if tuple(saved["shape"].tolist()) != value.shape:
        raise ValueError(f"'{file}': expected {value} for {value.label}, got shape {saved['shape'].tolist()}")
    found = tuple(saved[name] for name in _PARTS[kind])
    value.stored.parts(found)  # or an error, before anything runs
    return found


def write_results(file: str, signature: Signature, results: Sequence[Any]) -> list[str]:
    """
    Writes results, one to the file, several to FILE.0.npz, FILE.1.npz ...; gives the files' names. A dense one is the array
    `arr_0`. Raises OSError.
    """
    names = [file]
    if len(results) != 1:
        names = [str(Path(file).with_suffix(f".{number}.npz")) for number in range(len(results))]
    for name, value, result in zip(names, signature.results, results, strict=True):
        np.savez(name, **_contents(value, result))
    return names


def _contents(value: Value, result: Any) -> dict[str, Any]:
    if value.stored is None:
        return {"arr_0": result}
    kind = value.stored.kind
    parts = dict(zip(_PARTS[kind], cast("tuple[Array, ...]", result), strict=True))
    return {**parts, "format": kind.encode(), "shape": np.array(value.shape), "_is_array": True}


@dataclass(frozen=True)
class InputWords:
    """Where arguments come from: a seed or a file for all, and files for some."""

    seed: int
    file: str | None
    own: Mapping[str, str]


def input_words(parser: argparse.ArgumentParser, words: Sequence[str]) -> InputWords:
    """What words of the option --inputs say; ends with one line for others."""
    seed, file, own = 0, None, dict[str, str]()
    for word in words:
        kind, _, rest = word.partition(":")
        if kind == "random":
            if not rest.isdecimal():
                parser.error(f"argument --inputs: expected random:SEED with a whole number, got '{word}'")
            seed = int(rest)
        elif not word.endswith(".npz"):
            parser.error(f"argument --inputs: expected random:SEED, FILE.npz or NAME=FILE.npz, got '{word}'")
        elif "=" in word and not Path(word).exists():
            name, _, path = word.partition("=")
            own[name.removeprefix("%")] = path
        else:
            file = word
    return InputWords(seed, file, own)
