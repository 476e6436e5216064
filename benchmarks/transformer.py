"""Attention and transformer blocks beside ONNX Runtime, XLA, Inductor and eager PyTorch, in one rotation.

    FUSE_OPT_NUM_THREADS=1 python benchmarks/transformer.py [--only attention|inference|training] [--threads 1]

`native` is the exported program, compiled by us alone; `torch.compile` the same model through the backend. With one thread,
times are of the processor; figures are lower quartiles in milliseconds, and min, median, max of ratios to the first line's
turn. Peers that are not installed are left out and named. Settings of BLAS and OpenMP libraries are used, and printed.
"""

from __future__ import annotations

import argparse
import io
import os
import time
import warnings
from collections.abc import Callable, Sequence
from importlib import import_module
from typing import Any

import numpy as np

Call = Callable[[], object]
BLOCKS = ((3, 197, 384, 6), (4, 256, 512, 8), (2, 771, 320, 5))
"""Batch, tokens, width, heads."""
ATTENTION = ((3, 197, 384, 6), (4, 256, 512, 8), (1, 1021, 256, 4))
SLOTS = 15
SLOT_SECONDS = 0.03


def block(width: int, heads: int) -> Any:
    """A pre-norm transformer block of PyTorch's layers."""
    torch: Any = import_module("torch")
    attend = attention(heads)

    class Block(torch.nn.Module):
        def __init__(self) -> None:
            torch.nn.Module.__init__(self)
            linear, norm = torch.nn.Linear, torch.nn.LayerNorm
            self.first, self.qkv, self.out = norm(width), linear(width, 3 * width), linear(width, width)
            self.second, self.up, self.down = norm(width), linear(width, 4 * width), linear(4 * width, width)

        def forward(self, x: Any) -> Any:
            x = x + self.out(attend(self.qkv(self.first(x))))
            return x + self.down(torch.nn.functional.gelu(self.up(self.second(x))))

    return Block()


def attention(heads: int) -> Callable[[Any], Any]:
    """Attention of queries, keys and values that are thirds of one tensor; heads lie side by side."""
    attend: Any = import_module("torch").nn.functional.scaled_dot_product_attention

    def forward(x: Any) -> Any:
        batch, tokens, width = x.shape
        q, k, v = x.view(batch, tokens, 3, heads, width // (3 * heads)).permute(2, 0, 3, 1, 4).unbind(0)
        return attend(q, k, v).transpose(1, 2).reshape(batch, tokens, width // 3)

    return forward


def xla_block(weights: dict[str, Any], heads: int, x: Any) -> Any:
    """The same block in jax.numpy."""
    jax: Any = import_module("jax")

    def norm(x: Any, name: str) -> Any:
        centred = x - x.mean(-1, keepdims=True)
        scale = jax.lax.rsqrt((centred**2).mean(-1, keepdims=True) + 1e-5)
        return centred * scale * weights[f"{name}.weight"] + weights[f"{name}.bias"]

    def linear(x: Any, name: str) -> Any:
        return x @ weights[f"{name}.weight"].T + weights[f"{name}.bias"]

    x = x + linear(xla_attention(linear(norm(x, "first"), "qkv"), heads), "out")
    return x + linear(jax.nn.gelu(linear(norm(x, "second"), "up"), approximate=False), "down")


def xla_attention(x: Any, heads: int) -> Any:
    jax: Any = import_module("jax")

    batch, tokens, width = x.shape
    q, k, v = jax.numpy.transpose(x.reshape(batch, tokens, 3, heads, width // (3 * heads)), (2, 0, 3, 1, 4))
    weights = jax.nn.softmax(q @ jax.numpy.swapaxes(k, -1, -2) * (width // (3 * heads)) ** -0.5, -1)
    return jax.numpy.transpose(weights @ v, (0, 2, 1, 3)).reshape(batch, tokens, width // 3)


def onnx_model(model: Any, x: Any) -> bytes:
    """The model as PyTorch exports it."""
    torch: Any = import_module("torch")

    stream = io.BytesIO()
    torch.onnx.export(model, (x,), stream, dynamo=True, input_names=["x"], verbose=False)
    return stream.getvalue()


def ort_session(exported: bytes, x: Any, threads: int) -> Callable[[], Any]:
    onnxruntime: Any = import_module("onnxruntime")

    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = threads
    session = onnxruntime.InferenceSession(exported, options, providers=["CPUExecutionProvider"])
    array = x.numpy()
    return lambda: session.run(None, {"x": array})[0]


def inference(model: Any, x: Any, peer: Callable[[Any], Any], threads: int) -> dict[str, Call]:
    """Calls that compute the model; `peer` is it as a function of jax arrays."""
    jax: Any = import_module("jax")
    torch: Any = import_module("torch")

    import fuse_opt
    from fuse_opt.frontends.torch import export

    ours, inductor = torch.compile(model, backend="fuse_opt"), torch.compile(model, backend="inductor")
    (text,) = export(model, [x])
    program = fuse_opt.compile(text)
    order = arguments_of(program, model, x)
    jitted, argument = jax.jit(peer), jax.numpy.asarray(x.numpy())
    calls: dict[str, Call] = {
        "native": lambda: program(*order),
        "torch.compile": lambda: ours(x),
        "Inductor": lambda: inductor(x),
        "eager": lambda: model(x),
        "XLA": lambda: jitted(argument).block_until_ready(),
    }
    try:
        calls["ORT"] = ort_session(onnx_model(model, x), x, threads)
    except ImportError:
        print("  not installed: onnxruntime")
    expected = model(x).numpy()
    for name, call in calls.items():
        found: Any = call()
        error = float(np.abs(np.reshape(np.asarray(found), expected.shape) - expected).max())  # views are the caller's
        assert error < 1e-4, (name, error)
    return calls


def arguments_of(program: Any, model: Any, x: Any) -> Sequence[Any]:
    """The arrays of a call, in the order of the exported program, which has parameters in the order of their use."""
    waiting: list[Any] = [x.numpy(), *(p.detach().numpy() for p in model.parameters())]
    given: list[Any] = []
    for argument in program.signature.arguments:
        place = next(n for n, array in enumerate(waiting) if array.shape == tuple(argument.shape))
        given.append(waiting.pop(place))
    return given


def training(model: Any, x: Any, heads: int) -> dict[str, Call]:
    """Forward, and backward to all parameters, of the mean of squares."""
    jax: Any = import_module("jax")
    torch: Any = import_module("torch")

    weights = {name: jax.numpy.asarray(value.detach().numpy()) for name, value in model.state_dict().items()}

    def loss(weights: dict[str, Any], x: Any) -> Any:
        return (xla_block(weights, heads, x) ** 2).mean()

    gradient = jax.jit(jax.grad(loss))
    argument = jax.numpy.asarray(x.numpy())

    def step(call: Callable[[Any], Any]) -> Call:
        def run() -> None:
            call(x).square().mean().backward()
            for parameter in model.parameters():
                parameter.grad = None

        return run

    return {
        "torch.compile": step(torch.compile(model, backend="fuse_opt")),
        "Inductor": step(torch.compile(model, backend="inductor")),
        "eager": step(model),
        "XLA": lambda: jax.block_until_ready(gradient(weights, argument)),
    }


def settings() -> str:
    """What is set for libraries of products and threads."""
    names = ("OPENBLAS_", "MKL_", "OMP_", "DNNL_", "ONEDNN_", "FUSE_", "XLA_")
    found = sorted((name, value) for name, value in os.environ.items() if name.startswith(names))
    return " ".join(f"{name}={value}" for name, value in found) or "nothing set"


def report(title: str, calls: dict[str, Call], threads: int) -> dict[str, float]:
    """Measures calls in turns, and prints a line for each; the median of ratios to the first, by name."""
    clock = time.process_time if threads == 1 else time.perf_counter
    for call in calls.values():
        call()
    start = clock()
    next(iter(calls.values()))()
    repeat = max(1, int(SLOT_SECONDS / max(clock() - start, 1e-6)))
    times = np.zeros((SLOTS, len(calls)))
    every = list(calls.values())
    for slot in range(SLOTS):
        for place in range(len(every)):
            number = (place + slot) % len(every)
            every[number]()  # what ran before left other data in the caches
            start = clock()
            for _ in range(repeat):
                every[number]()
            times[slot, number] = (clock() - start) / repeat
    ratios, medians = times / times[:, :1], dict[str, float]()
    for number, name in enumerate(calls):
        low, middle, high = ratios[:, number].min(), np.median(ratios[:, number]), ratios[:, number].max()
        quartile = np.quantile(times[:, number], 0.25) * 1e3
        print(f"{title:32} {name:14} {quartile:8.2f} ms  x {low:.2f} {middle:.2f} {high:.2f}", flush=True)
        medians[name] = float(middle)
    return medians


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", choices=("attention", "inference", "training"))
    parser.add_argument("--threads", type=int, default=1)
    options = parser.parse_args()
    if options.threads == 1:
        os.environ["XLA_FLAGS"] = "--xla_cpu_multi_thread_eigen=false intra_op_parallelism_threads=1"
        os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})  # XLA has no other limit
    torch: Any = import_module("torch")

    warnings.simplefilter("ignore")
    torch.set_num_threads(options.threads)
    print("threads:", options.threads, "environment:", settings())
    torch.manual_seed(0)
    for kind, shapes in (("attention", ATTENTION), ("inference", BLOCKS), ("training", BLOCKS)):
        for batch, tokens, width, heads in shapes if options.only in (None, kind) else ():
            measure(kind, batch, tokens, width, heads, options.threads)


def measure(kind: str, batch: int, tokens: int, width: int, heads: int, threads: int) -> None:
    jax: Any = import_module("jax")
    torch: Any = import_module("torch")

    torch._dynamo.reset()
    title = f"{kind} {batch}x{tokens}x{width}, {heads} heads"
    if kind == "attention":
        model: Any = torch.nn.Module()
        model.forward = attention(heads)
        with torch.no_grad():
            x = torch.randn(batch, tokens, 3 * width)
            report(title, inference(model, x, lambda x: xla_attention(x, heads), threads), threads)
        return
    model, x = block(width, heads), torch.randn(batch, tokens, width)
    if kind == "training":
        report(title, training(model, x, heads), threads)
        return
    weights = {name: jax.numpy.asarray(value.detach().numpy()) for name, value in model.state_dict().items()}
    with torch.no_grad():
        report(title, inference(model.eval(), x, lambda x: xla_block(weights, heads, x), threads), threads)


if __name__ == "__main__":
    main()
