"""Whole models, with random weights, beside ONNX Runtime, Inductor, XLA and eager PyTorch: inference, and steps of training.

    FUSE_OPT_NUM_THREADS=1 python benchmarks/models.py [--models resnet50,bert] [--threads 1] [--batch 1] [--without inductor]
        [--backend onednn]

    FUSE_OPT_NUM_THREADS=1 python benchmarks/models.py --training [--models resnet18,bert,gpt2]

Figures are as in transformer.py; `ONNX` is the exported model that ONNX Runtime has, by us, `ONNX, onednn` with a backend. XLA
has what PyTorch exports, as jax.numpy. The last lines are the geometric means of our time over that of each model's best peer:
through torch.compile, and of the better one of both.
With --training a turn is a step: forward, backward of the mean of squares, and the optimiser, whose step is compiled, too
(SGD with momentum for resnet18, Adam for others), of smaller models, without dropout. Losses of all must agree.
Models are made by transformers from configurations, with random numbers in all of their parameters.
"""

from __future__ import annotations

import argparse
import os
import time
from collections.abc import Callable
from copy import deepcopy
from functools import partial
from importlib import import_module
from typing import Any

import numpy as np
from apart import FLAG, Apart, serve
from transformer import Call, Makers, one_thread, onnx_model, ort_session, report, settings, timers_here

Make = Callable[[int], tuple[Any, Any]]


def _of_transformers(model: str, config: str, **options: Any) -> Any:
    torch: Any = import_module("torch")
    library: Any = import_module("transformers")
    made = getattr(library, model)(getattr(library, config)(**options)).eval()
    _vary(made)

    class First(torch.nn.Module):
        """The first result, without what a model would keep for a next call."""

        def __init__(self) -> None:
            torch.nn.Module.__init__(self)
            self.inner = made

        def forward(self, x: Any) -> Any:
            return self.inner(x, return_dict=False)[0]

    return First().eval()


def _vary(model: Any) -> None:
    """No biases of zeros and scales of ones, as models begin with: exporters drop those, compilers of functions cannot."""
    torch: Any = import_module("torch")
    with torch.no_grad():
        for value in (*model.parameters(), *model.buffers()):
            if value.is_floating_point() and value.numel() > 1 and value.min() == value.max():
                value.add_(torch.randn(value.shape) * 0.02)


def _images(batch: int) -> Any:
    torch: Any = import_module("torch")
    return torch.randn(batch, 3, 224, 224)


def _tokens(batch: int) -> Any:
    torch: Any = import_module("torch")
    return torch.randint(0, 30000, (batch, 128))


OURS = ("torch.compile", "ONNX")
"""How names of our own calls begin."""

_SMALL = {"num_hidden_layers": 4, "hidden_size": 256, "num_attention_heads": 4, "intermediate_size": 1024}
_NO_DROPOUT = {"hidden_dropout_prob": 0.0, "attention_probs_dropout_prob": 0.0}
_GPT = {"n_layer": 4, "n_embd": 256, "n_head": 4, "resid_pdrop": 0.0, "embd_pdrop": 0.0, "attn_pdrop": 0.0}
_BASIC = {"depths": [2, 2, 2, 2], "hidden_sizes": [64, 128, 256, 512], "layer_type": "basic"}
STEPS: dict[str, Make] = {
    "resnet18": lambda batch: (_of_transformers("ResNetModel", "ResNetConfig", **_BASIC), _images(batch)),
    "mobilenet": lambda batch: (_of_transformers("MobileNetV2Model", "MobileNetV2Config"), _images(batch)),
    "bert": lambda batch: (_of_transformers("BertModel", "BertConfig", **_SMALL, **_NO_DROPOUT), _tokens(batch)),
    "gpt2": lambda batch: (_of_transformers("GPT2Model", "GPT2Config", use_cache=False, **_GPT), _tokens(batch)),
}
"""What is trained."""

MODELS: dict[str, Make] = {
    "resnet50": lambda batch: (_of_transformers("ResNetModel", "ResNetConfig"), _images(batch)),
    "mobilenet": lambda batch: (_of_transformers("MobileNetV2Model", "MobileNetV2Config"), _images(batch)),
    "bert": lambda batch: (_of_transformers("BertModel", "BertConfig"), _tokens(batch)),
    "gpt2": lambda batch: (_of_transformers("GPT2Model", "GPT2Config", use_cache=False), _tokens(batch)),
    "vit": lambda batch: (_of_transformers("ViTModel", "ViTConfig"), _images(batch)),
}


def onnx_program(exported: bytes, x: Any, backend: str = "") -> Call:
    """
    The exported model, which ONNX Runtime runs, by us, with the backend: without PyTorch's call and its guards around it. It is
    compiled here.
    """
    from fuse_opt.frontends import onnx

    program, array = onnx.load(exported), x.numpy()
    before = os.environ.get("FUSE_OPT_BACKEND", "")
    os.environ["FUSE_OPT_BACKEND"] = backend or before
    try:
        program(array)
    finally:
        os.environ["FUSE_OPT_BACKEND"] = before
    return lambda: program(array)[0]


def inference(model: Any, x: Any, threads: int, backend: str) -> Makers:
    """Makers of calls that give the model's result."""
    torch: Any = import_module("torch")

    def compiled(backend: str) -> Call:
        call = torch.compile(model, backend=backend)
        return lambda: call(x)

    def xla() -> Call:
        jax: Any = import_module("jax")
        from xla_models import exported

        function, weights = exported(model, x)
        jitted, array = jax.jit(partial(function, weights)), jax.numpy.asarray(x.numpy())
        return lambda: jitted(array).block_until_ready()

    makers: Makers = {
        "torch.compile": lambda: compiled("fuse_opt"),
        "eager": lambda: lambda: model(x),
        "Inductor": lambda: compiled("inductor"),
        "XLA": xla,
        "ORT": lambda: ort_session(onnx_model(model, x), x, threads),
        "ONNX": lambda: onnx_program(onnx_model(model, x), x),
    }
    if backend:
        makers[f"ONNX, {backend}"] = lambda: onnx_program(onnx_model(model, x), x, backend)

    def without_gradients(name: str) -> Callable[[], Call]:
        def run() -> Call:
            with torch.no_grad():
                call, expected = makers[name](), model(x).numpy()
                error = float(np.abs(np.asarray(call()) - expected).max() / np.abs(expected).max())
            assert error < 1e-3, (name, error)
            return torch.no_grad()(call)

        return run

    return {name: without_gradients(name) for name in makers}


LOSSES = 4
"""Steps whose losses are compared before any is measured."""


def steps(model: Any, x: Any, momentum: bool) -> Makers:
    """Makers of calls that are a step of training, each of a copy of the model."""
    torch: Any = import_module("torch")

    def step_of(compiler: str | None) -> Callable[[], float]:
        copy = deepcopy(model).train()
        parameters = [parameter for parameter in copy.parameters() if parameter.requires_grad]
        optimizer = torch.optim.SGD(parameters, 1e-3, momentum=0.9) if momentum else torch.optim.Adam(parameters, 1e-4)

        def backward(call: Callable[[Any], Any]) -> float:
            optimizer.zero_grad()
            loss = call(x).square().mean()
            loss.backward()
            return loss

        backward(copy)
        optimizer.step()  # as eager: then all of its state is there
        call, update = copy, optimizer.step
        if compiler is not None:
            call, update = torch.compile(copy, backend=compiler), torch.compile(optimizer.step, backend=compiler)

        def run() -> float:
            loss = backward(call)
            update()
            return float(loss)

        return run

    def xla() -> Callable[[], float]:
        from xla_models import training_step

        step = training_step(deepcopy(model).train(), x, momentum)
        step()
        return step

    makers: dict[str, Callable[[], Callable[[], float]]] = {
        "torch.compile": lambda: step_of("fuse_opt"),
        "eager": lambda: step_of(None),
        "Inductor": lambda: step_of("inductor"),
        "XLA": xla,
    }

    def checked(name: str) -> Callable[[], Call]:
        def run() -> Call:
            call, eager = makers[name](), makers["eager"]()
            found, wanted = ([step() for _ in range(LOSSES)] for step in (call, eager))
            assert np.allclose(found, wanted, rtol=1e-2), (name, found, wanted)
            return call

        return run

    return {name: checked(name) for name in makers}


def made(name: str, options: argparse.Namespace) -> Makers:
    """The makers of calls of a model."""
    torch: Any = import_module("torch")

    torch._dynamo.reset()
    torch.manual_seed(0)
    model, x = (STEPS if options.training else MODELS)[name](options.batch)
    if options.training:
        return steps(model, x, name in ("resnet18", "mobilenet"))
    return inference(model, x, options.threads, options.backend)


def names_of(options: argparse.Namespace) -> list[str]:
    names = ["torch.compile", "eager", "Inductor", "XLA"]
    if not options.training:
        names += ["ORT", "ONNX", *([f"ONNX, {options.backend}"] if options.backend else [])]
    return [name for name in names if name.lower() not in options.without.split(",")]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--models")
    parser.add_argument("--training", action="store_true")
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--batch", type=int, default=1)
    parser.add_argument("--without", default="", help="peers to leave out: inductor, ort, xla, eager")
    parser.add_argument(
        "--backend", default="", help="the exported model by this backend, too, as fuse-opt's --backend"
    )
    parser.add_argument(FLAG, help=argparse.SUPPRESS)
    options = parser.parse_args()
    one_thread(options.threads)
    if options.serve is not None:
        serve(lambda key: made(key, options)[options.serve](), time.perf_counter)
        return
    print("threads:", options.threads, "batch:", options.batch, "environment:", settings())
    names = names_of(options)
    peers = Apart(names) if options.threads > 1 else None
    ratios: list[float] = []
    better: list[float] = []
    for name in options.models.split(",") if options.models else STEPS if options.training else MODELS:
        if peers is not None:
            timers = peers.load(name)
        else:
            makers = made(name, options)
            timers = timers_here({each: makers[each] for each in names})
        found = report(f"{name}, a step" if options.training else name, timers)
        ratios.append(1.0 / min(ratio for other, ratio in found.items() if not other.startswith(OURS)))
        better.append(ratios[-1] * min(1.0, found.get("ONNX", 1.0)))
        print(f"{name:32} ours over the best peer: {ratios[-1]:.2f}, or {better[-1]:.2f}", flush=True)
    if peers is not None:
        peers.close()
    means = [np.exp(np.mean(np.log(each))) for each in (ratios, better)]
    print(
        f"geometric means of ours over the best peer: torch.compile {means[0]:.3f}, the better of ours {means[1]:.3f}"
    )


if __name__ == "__main__":
    main()
