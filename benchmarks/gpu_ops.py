"""Single ops and short functions at sizes nobody tuned for, on the GPU that is there, beside torch: values, then times.

    python benchmarks/gpu_ops.py [--only sort,cumsum] [--seconds 100] [--peers eager,compile] [--out FILE] [--texts]

Each case is one function of torch; its program is what the frontend exports from it, compiled with target="cuda". `--texts`
prints, without a GPU, how many launches and host ops each program has. Times are as gpu_measure.py takes them.
"""

from __future__ import annotations

import argparse
import json
import math
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from importlib import import_module
from pathlib import Path
from typing import Any

import fuse_opt
from fuse_opt.frontends.torch.export import export

torch: Any = import_module("torch")
nn, F, aten = torch.nn, torch.nn.functional, torch.ops.aten
f16, f32, bf16, i64 = torch.float16, torch.float32, torch.bfloat16, torch.int64
TOLERANCES = {f32: 1e-4, f16: 1e-2, bf16: 5e-2}
"""Relative to the largest element of a result; sums of thousands of terms come in other orders."""


@dataclass(frozen=True)
class Given:
    """An argument: a tensor of normal numbers, or of integers below `below`, which begins `behind` so many elements."""

    shape: tuple[int, ...]
    dtype: Any = f32
    below: int = 0
    behind: int = 0

    def tensor(self, device: str, generator: Any = None) -> Any:
        if self.below:
            return torch.randint(self.below, self.shape, dtype=self.dtype, device=device, generator=generator)
        made = torch.randn((math.prod(self.shape) + self.behind,), dtype=self.dtype, device=device, generator=generator)
        return made[self.behind :].view(self.shape)


@dataclass(frozen=True)
class Case:
    name: str
    body: Callable[..., Any]
    given: tuple[Given, ...]


def _x(*shape: int, dtype: Any = f32, behind: int = 0) -> Given:
    return Given(shape, dtype, behind=behind)


def _at(below: int, *shape: int) -> Given:
    return Given(shape, i64, below)


def rope(x: Any, cos: Any, sin: Any) -> Any:
    half = x.shape[-1] // 2
    turned = torch.cat((-x[..., half:], x[..., :half]), -1)
    return x * cos + turned * sin


def loss(x: Any, at: Any) -> Any:
    return F.cross_entropy(x, at)


def loss_gradient(x: Any, at: Any) -> Any:
    """
    One where the index is by comparisons: `one_hot` asserts what indices are by calls of PyTorch, which a program of ours would
    run on the host.
    """
    is_there = at[:, None] == torch.arange(x.shape[-1], device=at.device)
    return (torch.softmax(x, -1) - is_there.to(x.dtype)) / x.shape[0]


def conv_block(x: Any, first: Any, second: Any) -> Any:
    """Of a residual network, scaled to keep numbers small."""
    inner = F.conv2d(x, first * 0.05, padding=1).relu()
    return (F.conv2d(inner, second * 0.05, padding=1) + x).relu()


def norm_gradient(g: Any, x: Any, scale: Any) -> Any:
    mean = x.mean(-1, keepdim=True)
    rstd = (x.var(-1, correction=0, keepdim=True) + 1e-5).rsqrt()
    return aten.native_layer_norm_backward(g, x, [x.shape[-1]], mean, rstd, scale, None, [True, True, False])


def cases_of_ops() -> list[Case]:
    layer = partial(F.layer_norm, eps=1e-5)
    cases: list[Case] = [
        Case("cumsum_rows", lambda x: x.cumsum(1), (_x(8191, 4099),)),
        Case("cumsum_axis0", lambda x: x.cumsum(0), (_x(8191, 4099),)),
        Case("cumsum_one", lambda x: x.cumsum(0), (_x(20_000_003),)),
        Case("sort_rows", lambda x: torch.sort(x, 1)[0], (_x(8191, 1021),)),
        Case("sort_long", lambda x: torch.sort(x, 1)[0], (_x(61, 65537),)),
        Case("argmax_rows", lambda x: x.argmax(1), (_x(8191, 4099),)),
        Case("sum_all", lambda x: x.sum(), (_x(60_000_011),)),
        Case("sum_rows", lambda x: x.sum(1), (_x(30011, 1021),)),
        Case("sum_axis0", lambda x: x.sum(0), (_x(30011, 1021),)),
        Case("sum_axis0_tall", lambda x: x.sum(0), (_x(3_000_017, 7),)),
        Case("mean_middle", lambda x: x.mean(1), (_x(61, 1021, 517),)),
        Case("max_all", lambda x: x.amax(), (_x(60_000_011),)),
        Case("softmax_axis0", lambda x: x.softmax(0), (_x(1021, 30011),)),
        Case("softmax_middle", lambda x: x.softmax(1), (_x(61, 1021, 517),)),
        Case("log_softmax", lambda x: x.log_softmax(-1), (_x(8191, 4099),)),
        Case("softmax_bf16", lambda x: x.softmax(-1), (_x(30011, 1021, dtype=bf16),)),
        Case("gelu_unaligned", lambda x, b: F.gelu(x + b), (_x(8191, 4096, behind=1), _x(4096, behind=3))),
        Case("softmax_unaligned", lambda x: x.softmax(-1), (_x(8191, 4096, behind=1),)),
        Case("rms_norm_unaligned", lambda x, s: F.rms_norm(x, (4096,), s, 1e-5),
             (_x(16381, 4096, dtype=bf16, behind=5), _x(4096, dtype=bf16))),
        Case("embedding", lambda w, at: F.embedding(at, w), (_x(50257, 768), _at(50257, 32, 1021))),
        Case("embedding_norm", lambda w, at, s, b: layer(F.embedding(at, w), (768,), s, b),
             (_x(50257, 768), _at(50257, 32, 1021), _x(768), _x(768))),
        Case("embedding_backward", lambda g, at: aten.embedding_dense_backward(g, at, 50257, -1, False),
             (_x(32, 1021, 768), _at(50257, 32, 1021))),
        Case("take_along", lambda x, at: x.gather(1, at), (_x(8191, 4099), _at(4099, 8191, 1021))),
        Case("index_select", lambda x, at: x.index_select(0, at), (_x(30011, 517), _at(30011, 20011))),
        Case("scatter_add", lambda x, at, y: x.scatter_add(1, at, y), (_x(8191, 517), _at(517, 8191, 1021), _x(8191, 1021))),
        Case("cross_entropy", loss, (_x(4093, 50257), _at(50257, 4093))),
        Case("cross_entropy_gradient", loss_gradient, (_x(4093, 30011), _at(30011, 4093))),
        Case("rope", rope, (_x(4, 32, 1021, 128), _x(1021, 128), _x(1021, 128))),
        Case("rope_bf16", rope, (_x(4, 32, 1021, 128, dtype=bf16), _x(1021, 128, dtype=bf16), _x(1021, 128, dtype=bf16))),
        Case("softmax_gradient", lambda g, y: aten._softmax_backward_data(g, y, -1, f32), (_x(30011, 1021), _x(30011, 1021))),
        Case("norm_gradient", norm_gradient, (_x(30011, 771), _x(30011, 771), _x(771))),
        Case("gelu_gradient", lambda g, x: aten.gelu_backward(g, x), (_x(30011, 1021), _x(30011, 1021))),
        Case("layer_norm_f16", lambda x, s, b: layer(x, (1021,), s, b),
             (_x(30011, 1021, dtype=f16), _x(1021, dtype=f16), _x(1021, dtype=f16))),
        Case("rms_norm_add", lambda x, r, s: F.rms_norm(x + r, (4096,), s, 1e-5),
             (_x(8191, 4096, dtype=bf16), _x(8191, 4096, dtype=bf16), _x(4096, dtype=bf16))),
        Case("group_norm", lambda x, s, b: F.group_norm(x, 32, s, b), (_x(31, 256, 56, 56), _x(256), _x(256))),
        Case("batch_norm_train", lambda x, s, b: F.batch_norm(x, None, None, s, b, True),
             (_x(31, 256, 56, 56), _x(256), _x(256))),
        Case("permute", lambda x: x.permute(0, 2, 1).contiguous() + 1.0, (_x(61, 1021, 517),)),
        Case("permute_heads", lambda x: x.permute(0, 2, 1, 3).contiguous(), (_x(31, 1021, 16, 64, dtype=bf16),)),
        Case("concat", lambda x, y: torch.cat((x, y), 1).relu(), (_x(30011, 517), _x(30011, 771))),
        Case("pad", lambda x: F.pad(x, (1, 1, 1, 1)).relu(), (_x(31, 64, 111, 113),)),
        Case("max_pool", lambda x: F.max_pool2d(x, 3, 2, 1), (_x(31, 64, 112, 112),)),
        Case("avg_pool", lambda x: F.avg_pool2d(x, 2), (_x(31, 64, 112, 112),)),
        Case("upsample", lambda x: F.interpolate(x, scale_factor=2, mode="nearest").relu(), (_x(31, 64, 56, 56),)),
        Case("conv3x3", lambda x, w, b: F.conv2d(x, w, b, padding=1).relu(), (_x(32, 64, 56, 56), _x(64, 64, 3, 3), _x(64))),
        Case("conv3x3_f16", lambda x, w, b: F.conv2d(x, w, b, padding=1).relu(),
             (_x(32, 64, 56, 56, dtype=f16), _x(64, 64, 3, 3, dtype=f16), _x(64, dtype=f16))),
        Case("conv_block_f16", conv_block, (_x(32, 64, 56, 56, dtype=f16), *(_x(64, 64, 3, 3, dtype=f16),) * 2)),
        Case("conv_block_bf16", conv_block, (_x(17, 128, 28, 28, dtype=bf16), *(_x(128, 128, 3, 3, dtype=bf16),) * 2)),
        Case("conv_depthwise", lambda x, w: F.conv2d(x, w, padding=1, groups=96).relu(), (_x(32, 96, 56, 56), _x(96, 1, 3, 3))),
        Case("linear_gelu", lambda x, w, b: F.gelu(F.linear(x, w, b)), (_x(4096, 1024), _x(4096, 1024), _x(4096))),
        Case("linear_gelu_bf16", lambda x, w, b: F.gelu(F.linear(x, w, b)),
             (_x(4096, 1024, dtype=bf16), _x(4096, 1024, dtype=bf16), _x(4096, dtype=bf16))),
        Case("linear_odd_bf16", lambda x, w, b: F.linear(x, w, b).relu(),
             (_x(1021, 771, dtype=bf16), _x(517, 771, dtype=bf16), _x(517, dtype=bf16))),
        Case("bmm_f16", lambda x, y: x @ y, (_x(64, 517, 64, dtype=f16), _x(64, 64, 517, dtype=f16))),
        *(Case(f"attention_{name}", partial(F.scaled_dot_product_attention, is_causal=causal), (_x(*shape, dtype=dtype),) * 3)
          for name, shape, dtype, causal in (
              ("f32", (4, 8, 256, 64), f32, False), ("f32_long", (4, 8, 2048, 64), f32, True),
              ("bf16", (8, 16, 1024, 64), bf16, False), ("bf16_causal", (4, 16, 2048, 128), bf16, True),
              ("f16_odd", (8, 16, 517, 64), f16, False))),
    ]  # fmt: skip
    return cases


class _Module(nn.Module):
    """A function as the frontend takes it."""

    def __init__(self, body: Callable[..., Any]) -> None:
        super().__init__()
        self.body = body

    def forward(self, *arguments: Any) -> Any:
        return self.body(*arguments)


def text_of(case: Case) -> str:
    """The program of a case; nothing of it is computed."""
    fakes = torch._subclasses.FakeTensorMode(allow_non_fake_inputs=True)
    with fakes:
        arguments = [each.tensor("cpu") for each in case.given]
        return export(_Module(case.body), arguments)[0]


def _listed(values: Any) -> list[Any]:
    return [*values] if isinstance(values, (tuple, list)) else [values]  # pyright: ignore[reportUnknownVariableType]


def _without_none(values: Any) -> list[Any]:
    return [value for value in _listed(values) if value is not None]


def error(found: Sequence[Any], expected: Sequence[Any]) -> tuple[float, bool]:
    """The largest distance relative to the largest element of a result, and whether all are near enough."""
    worst, right = 0.0, True
    for a, b in zip(found, expected, strict=True):
        if tuple(a.shape) != tuple(b.shape) or a.dtype != b.dtype:
            return math.inf, False
        if not b.is_floating_point():
            same = bool((a == b).all())
            worst, right = max(worst, 0.0 if same else math.inf), right and same
            continue
        gap = torch.nan_to_num((a.float() - b.float()).abs(), math.inf, math.inf).max()
        share = float(gap / b.abs().max().float().clamp_min(1e-30))
        worst, right = max(worst, share), right and share <= TOLERANCES[b.dtype]
    return worst, right


def measure(bench: Any, case: Case) -> dict[str, Any]:
    from gpu_measure import forget_compiled

    row: dict[str, Any] = {"name": case.name}
    compiled = fuse_opt.compile(text_of(case), target="cuda")
    row |= {"launches": compiled.stats.launches, "host_ops": compiled.stats.host_ops}
    generator = torch.Generator("cuda").manual_seed(0)
    arrays = [each.tensor("cuda", generator) for each in case.given]
    moved = sum(array.nbytes for array in arrays)
    sets = [
        arrays,
        *([each.tensor("cuda", generator) for each in case.given] for _ in range(2 if moved < 1 << 29 else 0)),
    ]
    expected = _without_none(case.body(*arrays))
    moved += sum(each.nbytes for each in expected)
    worst, row["right"] = error(_listed(compiled(*arrays)), expected)
    row["error"] = f"{worst:.1e}"
    del expected
    together = 100 if moved < 1 << 24 else 5
    row["copy_ms"] = round(bench.copy_milliseconds(moved, together), 4)
    native: Any = compiled.native
    row["ms"] = round(bench.milliseconds([native.bind(*each) for each in sets], together), 4)
    ways: dict[str, Callable[..., Any]] = {"eager": case.body}
    if "compile" in bench.peers:
        forget_compiled(torch)
        ways["compile"] = torch.compile(case.body, dynamic=False)
    for name, call in ways.items():
        try:
            row[f"{name}_ms"] = round(bench.milliseconds([partial(call, *each) for each in sets], together), 4)
        except Exception as failure:
            row[f"{name}_failed"] = str(failure).partition("\n")[0][:200]
    times = [row[f"{name}_ms"] for name in ways if f"{name}_ms" in row]
    row["speedup"] = round(min(times) / row["ms"], 2) if times else None
    return row


def compile_only(bench: Any, case: Case) -> None:
    arrays = [each.tensor("cuda") for each in case.given]
    fuse_opt.compile(text_of(case), target="cuda")(*arrays)
    if "compile" in bench.peers:
        torch.compile(case.body, dynamic=False)(*arrays)


def profile(case: Case) -> None:
    """Prints what kernels a call of ours, of eager and of Inductor takes, by microseconds."""
    arrays = [each.tensor("cuda") for each in case.given]
    native: Any = fuse_opt.compile(text_of(case), target="cuda").native
    ways = {"ours": native.bind(*arrays), "eager": partial(case.body, *arrays)}
    print_kernels(case.name, ways)


def _device_time(event: Any) -> float:
    return -event.device_time_total


def print_kernels(name: str, ways: dict[str, Callable[[], Any]], turns: int = 10) -> None:
    for way, call in ways.items():
        for _ in range(3):
            call()
        torch.cuda.synchronize()
        with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CUDA]) as seen:
            for _ in range(turns):
                call()
            torch.cuda.synchronize()
        for event in sorted(seen.key_averages(), key=_device_time)[:12]:
            each = event.device_time_total / turns
            print(f"{name} {way}: {each:8.1f} us, {event.count / turns:g} x {event.key[:90]}", flush=True)


COLUMNS = ("ms", "copy_ms", "eager_ms", "compile_ms", "speedup", "launches", "host_ops", "error", "right")


def line(row: dict[str, Any]) -> str:
    return f"| {row['name']} | " + " | ".join(str(row.get(name, row.get("failed", "-"))) for name in COLUMNS) + " |"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", default="")
    parser.add_argument("--part", default="0/1", help="K/N: every Nth case from the Kth on")
    parser.add_argument("--seconds", type=float, default=500)
    parser.add_argument("--peers", default="eager,compile")
    parser.add_argument("--out", type=Path)
    parser.add_argument("--texts", action="store_true", help="compile alone, without a GPU")
    parser.add_argument("--compile-only", action="store_true", help="fill the compilers' caches; nothing is timed")
    parser.add_argument(
        "--profile", action="store_true", help="in place of times: the kernels of a call, ours and eager's"
    )
    options = parser.parse_args()
    ends = time.monotonic() + options.seconds
    first, step = map(int, options.part.split("/"))
    chosen = [case for case in cases_of_ops() if not options.only or case.name in options.only.split(",")][first::step]
    rows: list[dict[str, Any]] = []
    if options.texts:
        print("| case | launches | host ops | right |\n|---|---|---|---|")
        for case in chosen:
            stats = fuse_opt.compile(text_of(case), target="cuda").stats
            print(f"| {case.name} | {stats.launches} | {stats.host_ops} | {stats.host_ops == 0} |", flush=True)
        return
    from gpu_measure import Bench

    bench = Bench(False, options.peers.split(","))
    print("| case | " + " | ".join(COLUMNS) + " |\n" + "|---" * (len(COLUMNS) + 1) + "|")
    torch.backends.cudnn.allow_tf32 = False  # as our convolutions of f32 are made; products are so by default
    with bench.device.active():
        for case in chosen:
            if time.monotonic() > ends:
                print(f"no time for {case.name} and what follows")
                break
            try:
                if options.compile_only:
                    compile_only(bench, case)
                    continue
                if options.profile:
                    profile(case)
                    continue
                rows.append(measure(bench, case))
            except Exception as failure:
                rows.append(
                    {"name": case.name, "failed": f"{type(failure).__name__}: {str(failure)[:300]}", "right": False}
                )
            print(line(rows[-1]), flush=True)
            if options.out:
                options.out.write_text(json.dumps(rows, indent=1))


if __name__ == "__main__":
    main()
