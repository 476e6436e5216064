"""Attention and transformer blocks beside ONNX Runtime, XLA, Inductor and eager PyTorch, in one rotation.

    FUSE_OPT_NUM_THREADS=1 python benchmarks/transformer.py [--only attention|inference|training] [--threads 1]

`native` is the exported program, compiled by us alone; `torch.compile` the same model through the backend. With one thread,
times are of the processor; with several, time that passes, and each peer is a process of its own (apart.py). Figures are lower
quartiles in milliseconds, and min, median, max of ratios to the first line's turn. Peers that are not installed are left out
and named. Settings of BLAS and OpenMP libraries are used, and printed.
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
from apart import FLAG, Apart, serve
from rotation import Timer, timed, turns

Call = Callable[[], object]
Makers = dict[str, Callable[[], Call]]
"""By name, what makes a call: models are exported and compiled there."""
NAMES = {
    "attention": ("native", "torch.compile", "Inductor", "eager", "XLA", "ORT"),
    "inference": ("native", "torch.compile", "Inductor", "eager", "XLA", "ORT"),
    "training": ("torch.compile", "Inductor", "eager", "XLA"),
}
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


def inference(model: Any, x: Any, peer: Callable[[Any], Any], threads: int) -> Makers:
    """Makers of calls that compute the model; `peer` is it as a function of jax arrays."""
    torch: Any = import_module("torch")

    def native() -> Call:
        import fuse_opt
        from fuse_opt.frontends.torch import export

        (text,) = export(model, [x])
        program = fuse_opt.compile(text)
        order = arguments_of(program, model, x)
        return lambda: program(*order)

    def compiled(backend: str) -> Call:
        call = torch.compile(model, backend=backend)
        return lambda: call(x)

    def xla() -> Call:
        jax: Any = import_module("jax")

        jitted, argument = jax.jit(peer), jax.numpy.asarray(x.numpy())
        return lambda: jitted(argument).block_until_ready()

    return {
        "native": native,
        "torch.compile": lambda: compiled("fuse_opt"),
        "Inductor": lambda: compiled("inductor"),
        "eager": lambda: lambda: model(x),
        "XLA": xla,
        "ORT": lambda: ort_session(onnx_model(model, x), x, threads),
    }


def checked(name: str, call: Call, model: Any, x: Any) -> Call:
    """The call, of which the values are those of the model."""
    expected, found = model(x).numpy(), np.asarray(call())
    error = float(np.abs(np.reshape(found, expected.shape) - expected).max())  # views are the caller's
    assert error < 1e-4 * max(1.0, float(np.abs(expected).max())), (name, error)
    return call


def arguments_of(program: Any, model: Any, x: Any) -> Sequence[Any]:
    """The arrays of a call, in the order of the exported program, which has parameters in the order of their use."""
    waiting: list[Any] = [x.numpy(), *(p.detach().numpy() for p in model.parameters())]
    given: list[Any] = []
    for argument in program.signature.arguments:
        place = next(n for n, array in enumerate(waiting) if array.shape == tuple(argument.shape))
        given.append(waiting.pop(place))
    return given


def training(model: Any, x: Any, heads: int) -> Makers:
    """Forward, and backward to all parameters, of the mean of squares."""
    torch: Any = import_module("torch")

    def step(call: Callable[[Any], Any]) -> Call:
        def run() -> None:
            call(x).square().mean().backward()
            for parameter in model.parameters():
                parameter.grad = None

        return run

    def xla() -> Call:
        jax: Any = import_module("jax")

        weights = jax_weights(model)

        def loss(weights: dict[str, Any], x: Any) -> Any:
            return (xla_block(weights, heads, x) ** 2).mean()

        gradient = jax.jit(jax.grad(loss))
        argument = jax.numpy.asarray(x.numpy())
        return lambda: jax.block_until_ready(gradient(weights, argument))

    return {
        "torch.compile": lambda: step(torch.compile(model, backend="fuse_opt")),
        "Inductor": lambda: step(torch.compile(model, backend="inductor")),
        "eager": lambda: step(model),
        "XLA": xla,
    }


def jax_weights(model: Any) -> dict[str, Any]:
    jax: Any = import_module("jax")
    return {name: jax.numpy.asarray(value.detach().numpy()) for name, value in model.state_dict().items()}


def installed(makers: Makers) -> dict[str, Call]:
    """The calls, but for those that want packages which are not there."""
    found: dict[str, Call] = {}
    for name, make in makers.items():
        try:
            found[name] = make()
        except ImportError as missing:
            print(f"  {name}: {missing}")
    return found


def timers_here(makers: Makers) -> dict[str, Timer]:
    """Of processor time, in this process."""
    return {name: timed(call, time.process_time) for name, call in installed(makers).items()}


def settings() -> str:
    """What is set for libraries of products and threads."""
    names = ("OPENBLAS_", "MKL_", "OMP_", "DNNL_", "ONEDNN_", "FUSE_", "XLA_")
    found = sorted((name, value) for name, value in os.environ.items() if name.startswith(names))
    return " ".join(f"{name}={value}" for name, value in found) or "nothing set"


def report(title: str, timers: dict[str, Timer]) -> dict[str, float]:
    """Measures in turns, and prints a line for each; the median of ratios to the first, by name."""
    repeats = [max(1, int(SLOT_SECONDS / max(timer(1), 1e-6))) for timer in timers.values()]
    times = turns(list(timers.values()), repeats, SLOTS)
    ratios, medians = times / times[:, :1], dict[str, float]()
    for number, name in enumerate(timers):
        low, middle, high = ratios[:, number].min(), np.median(ratios[:, number]), ratios[:, number].max()
        quartile = np.quantile(times[:, number], 0.25) * 1e3
        print(f"{title:32} {name:14} {quartile:8.2f} ms  x {low:.2f} {middle:.2f} {high:.2f}", flush=True)
        medians[name] = float(middle)
    return medians


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", choices=("attention", "inference", "training"))
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument(FLAG, help=argparse.SUPPRESS)
    options = parser.parse_args()
    one_thread(options.threads)
    if options.serve is not None:
        serve(lambda key: made(key, options.threads)[options.serve](), time.perf_counter)
        return
    print("threads:", options.threads, "environment:", settings())
    for kind, shapes in (("attention", ATTENTION), ("inference", BLOCKS), ("training", BLOCKS)):
        if options.only not in (None, kind):
            continue
        peers = None if options.threads == 1 else Apart(NAMES[kind])
        for shape in shapes:
            key = f"{kind} {'x'.join(map(str, shape[:3]))}, {shape[3]} heads"
            report(key, timers_here(made(key, 1)) if peers is None else peers.load(key))
        if peers is not None:
            peers.close()


def one_thread(threads: int) -> None:
    """What has to be said before libraries are loaded, and to PyTorch: how many threads there are."""
    if threads == 1:
        os.environ["XLA_FLAGS"] = "--xla_cpu_multi_thread_eigen=false intra_op_parallelism_threads=1"
        os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})  # XLA has no other limit
    warnings.simplefilter("ignore")
    import_module("torch").set_num_threads(threads)


def made(key: str, threads: int) -> Makers:
    """The makers of calls of what a line is about."""
    torch: Any = import_module("torch")

    kind, extents, heads = key.split()[:3]
    (batch, tokens, width), heads = map(int, extents.rstrip(",").split("x")), int(heads)
    torch._dynamo.reset()
    torch.manual_seed(0)
    if kind == "attention":
        model: Any = torch.nn.Module()
        model.forward, x = attention(heads), torch.randn(batch, tokens, 3 * width)
    else:
        model, x = block(width, heads).train(kind == "training"), torch.randn(batch, tokens, width)
    if kind == "training":
        return training(model, x, heads)

    def peer(x: Any) -> Any:
        return xla_attention(x, heads) if kind == "attention" else xla_block(jax_weights(model), heads, x)

    def without_gradients(name: str, make: Callable[[], Call]) -> Callable[[], Call]:
        def run() -> Call:
            with torch.no_grad():
                call = checked(name, make(), model, x)
            return torch.no_grad()(call)

        return run

    return {name: without_gradients(name, make) for name, make in inference(model, x, peer, threads).items()}


if __name__ == "__main__":
    main()
