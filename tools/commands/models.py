"""Model files of other tools as input of the commands: ONNX, StableHLO; with the arrays that belong to them."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from xdsl.dialects.builtin import FileLineColLoc, IntAttr, ModuleOp, StringAttr

from fuse_opt.tools.compiler.signature import Array
from fuse_opt.tools.source.diagnostics import InputError
from fuse_opt.tools.source.parsing import decode

ONNX = (".onnx",)
STABLEHLO = (".stablehlo", ".stablehlo.mlir")


@dataclass(frozen=True)
class Model:
    """A module, and the arrays of some of its arguments by their names."""

    module: ModuleOp
    weights: Mapping[str, Array] = field(default_factory=dict[str, Array])


def is_model(file: str) -> bool:
    """Whether a file is one of another tool, by its name."""
    return file.endswith((*ONNX, *STABLEHLO))


def parse_extents(text: str) -> dict[str, int]:
    """`NAME=N,...` as a dictionary; raises ValueError."""
    pairs = [part.partition("=") for part in text.split(",") if part]
    for name, _, number in pairs:
        if not name or not number.isdecimal():
            raise ValueError(f"--extents: expected NAME=N with a whole number, got '{name}={number}'")
    return {name: int(number) for name, _, number in pairs}


def parse_points(text: str) -> list[dict[str, int]]:
    """`NAME=N,NAME=A..B,...`: one dictionary for each choice from the ranges, the last name's first; raises ValueError."""
    points: list[dict[str, int]] = [{}]
    for part in (part for part in text.split(",") if part):
        name, _, number = part.partition("=")
        first, dots, last = number.partition("..")
        if not dots:
            last = first
        if not name or not first.isdecimal() or not last.isdecimal() or int(first) > int(last):
            raise ValueError(f"--extents: expected NAME=N or NAME=A..B with whole numbers A <= B, got '{part}'")
        points = [point | {name: n} for point in points for n in range(int(first), int(last) + 1)]
    return points


def read_model(
    file: str,
    extents: Mapping[str, int] | None = None,
    arrays: Mapping[str, Array] | None = None,
    unknown_extent: int | None = None,
) -> Model:
    """
    The model in a file. `extents` gives names of extents values, `unknown_extent` the others one; `arrays` are inputs by
    name, for models that need to know some. Raises InputError for what cannot be imported, OSError for files.
    """
    model = Model(_stablehlo(file)) if file.endswith(STABLEHLO) else _onnx(file, extents, arrays, unknown_extent)
    model.module.location = FileLineColLoc(StringAttr(file), IntAttr(1), IntAttr(1))
    return model


def _onnx(
    file: str, extents: Mapping[str, int] | None, arrays: Mapping[str, Array] | None, unknown_extent: int | None
) -> Model:
    from fuse_opt.frontends import onnx

    try:
        model = onnx.load(file, extents)
        if unknown_extent is not None:
            names = {extent for known in model.inputs for extent in known.shape or () if isinstance(extent, str)}
            model = onnx.load(file, {**dict.fromkeys(names, unknown_extent), **(extents or {})})
        known = (
            {value.name: arrays[value.name] for value in model.inputs if value.name in (arrays or {})} if arrays else {}
        )
        imported = model.specialize(known)
    except onnx.OnnxError as error:
        raise InputError(file, 0, 0, str(error)) from error
    return Model(imported.module, imported.weights)


def text_or_path(file: str) -> str | Path:
    """What `load` takes for a file of MLIR text that a person names: `-` is standard input, and any name a path."""
    return decode(sys.stdin.buffer.read(), "<stdin>") + "\n" if file == "-" else Path(file)


def write_weights(model: Model, output: str) -> None:
    """The arrays beside a printed module: `x.mlir` has them in `x.npz`."""
    if model.weights:
        import numpy as np

        np.savez(Path(output).with_suffix(".npz"), **model.weights)  # pyright: ignore[reportArgumentType]


def _stablehlo(file: str) -> ModuleOp:
    from fuse_opt.frontends import stablehlo

    try:
        return stablehlo.load(Path(file))
    except stablehlo.StableHLOError as error:
        raise InputError(file, 0, 0, str(error)) from error
