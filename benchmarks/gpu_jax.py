"""Functions of JAX on the GPU that is there: compiled from the StableHLO that JAX writes, beside XLA's programs for the device.

    python benchmarks/gpu_jax.py [--only softmax,rope] [--seconds 60] [--compile-only] [--texts]

Both are called many times, and waited for at the end; a row has the median, the least and the most of such rounds, in turns, by
the call. Calls move more bytes than the cache holds, and take the device longer than they take the host. Needs jax and its plugin
for CUDA, and PyTorch for arrays. `--texts` prints, without a GPU, how many launches and host ops each program has.
"""

from __future__ import annotations

import argparse
import os
import statistics
import time
from collections.abc import Callable
from dataclasses import dataclass
from importlib import import_module
from typing import Any

import numpy as np

import fuse_opt
from fuse_opt.frontends.stablehlo import load

os.environ.setdefault("XLA_PYTHON_CLIENT_PREALLOCATE", "false")
jax: Any = import_module("jax")
jnp: Any = import_module("jax.numpy")
TOLERANCES = {"float32": 2e-5, "bfloat16": 2e-2, "int32": 0.0}
"""Of the largest element of a result, by its type."""
_CALLS, _ROUNDS = 20, 9


@dataclass(frozen=True)
class Case:
    name: str
    body: Callable[..., Any]
    given: tuple[tuple[tuple[int, ...], str], ...]
    """Shapes and types; `int32` ones are positions below the first extent of the first argument."""


def layer_norm(x: Any, scale: Any, bias: Any) -> Any:
    wide = x.astype(jnp.float32)
    mean = wide.mean(-1, keepdims=True)
    variance = wide.var(-1, keepdims=True)
    return ((wide - mean) * jax.lax.rsqrt(variance + 1e-5) * scale + bias).astype(x.dtype)


def rms_norm(x: Any, scale: Any) -> Any:
    wide = x.astype(jnp.float32)
    return (wide * jax.lax.rsqrt((wide * wide).mean(-1, keepdims=True) + 1e-5) * scale).astype(x.dtype)


def rope(x: Any, cos: Any, sin: Any) -> Any:
    low, high = jnp.split(x, 2, axis=-1)
    return x * cos + jnp.concatenate((-high, low), axis=-1) * sin


def loss(x: Any, at: Any) -> Any:
    """Cross entropy of rows; positions are below the number of rows, which is less than that of columns."""
    return (jax.nn.logsumexp(x, axis=-1) - jnp.take_along_axis(x, at[:, None], axis=-1)[:, 0]).mean()


def batch_norm(x: Any, scale: Any, bias: Any) -> Any:
    mean, variance = x.mean((0, 1, 2)), x.var((0, 1, 2))
    return jax.nn.relu((x - mean) * jax.lax.rsqrt(variance + 1e-5) * scale + bias)


def softmax_gradient(x: Any, g: Any) -> Any:
    return jax.vjp(lambda a: jax.nn.softmax(a, axis=-1), x)[1](g)[0]


def cases() -> list[Case]:
    f, h = "float32", "bfloat16"
    return [
        Case("softmax", lambda x: jax.nn.softmax(x, axis=-1), (((30011, 1021), f),)),
        Case("softmax_bf16", lambda x: jax.nn.softmax(x, axis=-1), (((60011, 1024), h),)),
        Case("softmax_long", lambda x: jax.nn.softmax(x, axis=-1), (((1021, 50257), f),)),
        Case("layer_norm", layer_norm, (((40009, 771), f), ((771,), f), ((771,), f))),
        Case("layer_norm_bf16", layer_norm, (((16381, 4096), h), ((4096,), f), ((4096,), f))),
        Case("rms_norm_bf16", rms_norm, (((16381, 4096), h), ((4096,), f))),
        Case("bias_gelu", lambda x, b: jax.nn.gelu(x + b), (((8191, 4096), f), ((4096,), f))),
        Case("swiglu", lambda x, y: jax.nn.silu(x) * y, (((8191, 4099), f), ((8191, 4099), f))),
        Case("rope", rope, (((4, 32, 1021, 128), f), ((1021, 128), f), ((1021, 128), f))),
        Case("embedding_norm", lambda w, at, s, b: layer_norm(w[at], s, b),
             (((50257, 768), f), ((32, 1021), "int32"), ((768,), f), ((768,), f))),
        Case("cross_entropy", loss, (((2039, 50257), f), ((2039,), "int32"))),
        Case("batch_norm", batch_norm, (((31, 56, 56, 256), f), ((256,), f), ((256,), f))),
        Case("softmax_gradient", softmax_gradient, (((30011, 1021), f), ((30011, 1021), f))),
        Case("transpose_add", lambda x, y: jax.nn.relu(x.T + y), (((4099, 8191), f), ((8191, 4099), f))),
        Case("cumsum", lambda x: jnp.cumsum(x, axis=1), (((8191, 4099), f),)),
        Case("sum_axis0", lambda x: x.sum(0), (((30011, 1021), f),)),
    ]  # fmt: skip


def module_of(case: Case) -> Any:
    """What JAX writes for a case, in our dialects."""
    specs = [jax.ShapeDtypeStruct(shape, dtype) for shape, dtype in case.given]
    return load(jax.jit(case.body).lower(*specs))


def arrays_of(torch: Any, case: Case) -> list[Any]:
    generator = torch.Generator("cuda").manual_seed(0)
    made: list[Any] = []
    for shape, dtype in case.given:
        if dtype == "int32":
            below = case.given[0][0][0]
            made.append(torch.randint(below, shape, dtype=torch.int32, device="cuda", generator=generator))
        else:
            made.append(torch.randn(shape, dtype=getattr(torch, dtype), device="cuda", generator=generator))
    return made


def error(found: Any, wanted: Any) -> tuple[float, bool]:
    a, b = (np.asarray(jnp.asarray(each, jnp.float32), np.float64) for each in (jnp.from_dlpack(found), wanted))
    gap = float(np.abs(a - b).max() / max(np.abs(b).max(), 1e-30))
    return gap, found.shape == wanted.shape and gap <= TOLERANCES[str(wanted.dtype)]


def measure(torch: Any, case: Case) -> str:
    compiled = fuse_opt.compile(module_of(case), target="cuda")
    arrays = arrays_of(torch, case)
    ours: Any = compiled.native
    bound, given, by_xla = ours.bind(*arrays), [jnp.from_dlpack(each) for each in arrays], jax.jit(case.body)
    gap, right = error(compiled(*arrays), by_xla(*given).block_until_ready())

    def our_round() -> None:
        for _ in range(_CALLS):
            bound()
        torch.cuda.synchronize()

    def xla_round() -> None:
        for _ in range(_CALLS):
            found = by_xla(*given)
        found.block_until_ready()

    rounds = {"ours": our_round, "XLA": xla_round}
    times: dict[str, list[float]] = {name: [] for name in rounds}
    for turn in range(_ROUNDS + 1):
        for name, run in rounds.items():
            started = time.perf_counter()
            run()
            if turn:
                times[name].append(1e3 * (time.perf_counter() - started) / _CALLS)
    cells = [f"{statistics.median(each):.4f} ({min(each):.4f}-{max(each):.4f})" for each in times.values()]
    ratio = statistics.median(b / a for a, b in zip(*times.values(), strict=True))
    stats = compiled.stats
    return " | ".join(
        [case.name, *cells, f"{ratio:.2f}", str(stats.launches), str(stats.host_ops), f"{gap:.1e}", str(right)]
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", default="")
    parser.add_argument("--seconds", type=float, default=60)
    parser.add_argument("--texts", action="store_true", help="compile alone, without a GPU")
    parser.add_argument("--compile-only", action="store_true", help="fill the compiler's cache; nothing is timed")
    options = parser.parse_args()
    ends = time.monotonic() + options.seconds
    chosen = [case for case in cases() if not options.only or case.name in options.only.split(",")]
    if options.texts or options.compile_only:
        print("| case | launches | host ops | right |\n|---|---|---|---|")
        for case in chosen:
            stats = fuse_opt.compile(module_of(case), target="cuda").stats
            print(f"| {case.name} | {stats.launches} | {stats.host_ops} | {stats.host_ops == 0} |", flush=True)
        return
    torch: Any = import_module("torch")
    torch.cuda.init()  # its context is everybody's
    print("| case | ours, ms | XLA, ms | XLA over ours | launches | host ops | error | right |\n" + "|---" * 8 + "|")
    for case in chosen:
        if time.monotonic() > ends:
            print(f"no time for {case.name} and what follows")
            break
        try:
            print(f"| {measure(torch, case)} |", flush=True)
        except Exception as failure:
            print(
                f"| {case.name} | failed: {type(failure).__name__}: {str(failure).splitlines()[0][:200]} |", flush=True
            )


if __name__ == "__main__":
    main()
