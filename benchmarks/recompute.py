"""What recomputation saves in gradients: `python benchmarks/recompute.py [mlp] [transformer]`, which needs jax.

Bytes of the arena and processor time of one thread, of the default pipeline without `rematerialize` and with it; the two take
turns, and times are ratios to the first: least, median, largest. `bits` says whether both give the same. With `--save FOLDER` the
programs are written there instead, for `fuse-run FOLDER/mlp.mlir --pareto PAGE.html`.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from rotation import measure

import fuse_opt
from fuse_opt.frontends import stablehlo
from fuse_opt.tools.commands.measuring import example_inputs
from fuse_opt.tools.compiler.api import limit_threads
from fuse_opt.tools.compiler.pipeline import DEFAULT_PIPELINE

WITHOUT = [name for name in DEFAULT_PIPELINE if name != "rematerialize"]
SLOT_SECONDS = 0.3


def mlp(jax: Any, layers: int = 8, batch: int = 256, width: int = 1024) -> Any:
    """Value and gradient of a chain of products, biases and GELU."""
    jnp = jax.numpy

    def loss(parameters: Any, x: Any) -> Any:
        for weight, bias in parameters:
            x = jax.nn.gelu(x @ weight + bias)
        return jnp.mean(x**2)

    parameters = [(_shape(jax, width, width), _shape(jax, width)) for _ in range(layers)]
    return jax.jit(jax.value_and_grad(loss)).lower(parameters, _shape(jax, batch, width))


def transformer(jax: Any, layers: int = 3, batch: int = 4, length: int = 128, width: int = 256, heads: int = 8) -> Any:
    """Value and gradient of pre-norm blocks of attention and GELU."""
    jnp = jax.numpy

    def norm(x: Any, scale: Any, bias: Any) -> Any:
        mean = x.mean(-1, keepdims=True)
        variance = ((x - mean) ** 2).mean(-1, keepdims=True)
        return (x - mean) * jax.lax.rsqrt(variance + 1e-5) * scale + bias

    def block(p: dict[str, Any], x: Any) -> Any:
        y = norm(x, p["scale1"], p["bias1"])
        split = (batch, length, heads, width // heads)
        q, k, v = ((y @ p[name]).reshape(split).transpose(0, 2, 1, 3) for name in "qkv")
        weights = jax.nn.softmax(q @ k.transpose(0, 1, 3, 2) / (width // heads) ** 0.5, -1)
        x = x + (weights @ v).transpose(0, 2, 1, 3).reshape(x.shape) @ p["o"]
        y = norm(x, p["scale2"], p["bias2"])
        return x + jax.nn.gelu(y @ p["up"] + p["up_bias"]) @ p["down"] + p["down_bias"]

    def loss(blocks: Any, x: Any) -> Any:
        for p in blocks:
            x = block(p, x)
        return jnp.mean(x**2)

    vectors = {name: _shape(jax, width) for name in ("scale1", "bias1", "scale2", "bias2", "down_bias")}
    squares = {name: _shape(jax, width, width) for name in "qkvo"}
    inner = {
        "up": _shape(jax, width, 4 * width),
        "up_bias": _shape(jax, 4 * width),
        "down": _shape(jax, 4 * width, width),
    }
    parameters = [{**vectors, **squares, **inner}] * layers
    return jax.jit(jax.value_and_grad(loss)).lower(parameters, _shape(jax, batch, length, width))


def _shape(jax: Any, *extents: int) -> Any:
    return jax.ShapeDtypeStruct(extents, np.float32)


PROGRAMS: dict[str, Callable[[Any], Any]] = {"mlp": mlp, "transformer": transformer}


def row(name: str, jax: Any) -> str:
    """What is known of one program."""
    module = stablehlo.load(PROGRAMS[name](jax))
    programs = [fuse_opt.compile(module, pipeline=passes) for passes in (WITHOUT, DEFAULT_PIPELINE)]
    inputs = example_inputs(module)
    results = [program(*inputs) for program in programs]
    equal = all(a.tobytes() == b.tobytes() for a, b in zip(*results, strict=True))
    seconds = measure([lambda program=program: program(*inputs) for program in programs], SLOT_SECONDS)
    ratios = seconds[:, 1] / seconds[:, 0]
    before, after = (program.stats.arena_bytes for program in programs)
    times = f"{ratios.min():.3f} {np.median(ratios):.3f} {ratios.max():.3f}"
    return f"{name:12} {before:10} {after:10} {after / before:.3f}   {times}   {'same' if equal else 'others'}"


def main(argv: Sequence[str] | None = None) -> None:
    """Prints a line for each program."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="*", metavar="PROGRAM", help=f"of {', '.join(PROGRAMS)} (default: all)")
    parser.add_argument("--save", type=Path, metavar="FOLDER", help="write the programs, and measure nothing")
    given = parser.parse_args(argv)
    names = given.names or list(PROGRAMS)
    import jax

    if given.save is not None:
        for name in names:
            (given.save / f"{name}.mlir").write_text(f"{stablehlo.load(PROGRAMS[name](jax))!s}\n", encoding="utf-8")
        return

    limit_threads(1)
    print("program      arena without    with  ratio   time min median max   bits")
    for name in names:
        print(row(name, jax), flush=True)


if __name__ == "__main__":
    main()
