"""Whole models, with random weights, beside ONNX Runtime, Inductor and eager PyTorch: inference, and steps of training.

    FUSE_OPT_NUM_THREADS=1 python benchmarks/models.py [--models resnet50,bert] [--threads 1] [--batch 1] [--without inductor]
        [--backend onednn]

    FUSE_OPT_NUM_THREADS=1 python benchmarks/models.py --training [--models resnet18,bert,gpt2]

Figures are as in transformer.py; `ONNX` is the exported model that ONNX Runtime has, by us, `ONNX, onednn` with a backend. The
last lines are the geometric means of our time over that of each model's best peer: through torch.compile, and of the better
one of both.
With --training a turn is a step: forward, backward of the mean of squares, and the optimiser, whose step is compiled, too
(SGD with momentum for resnet18, Adam for others), of smaller models, without dropout. Losses of all must agree.
Models are made by transformers from configurations. XLA is not among the peers: nothing here brings these models to it.
"""

from __future__ import annotations

import argparse
import os
import warnings
from collections.abc import Callable
from copy import deepcopy
from importlib import import_module
from typing import Any

import numpy as np
from transformer import Call, onnx_model, ort_session, report, settings

Make = Callable[[int], tuple[Any, Any]]


def _of_transformers(model: str, config: str, **options: Any) -> Any:
    torch: Any = import_module("torch")
    library: Any = import_module("transformers")
    made = getattr(library, model)(getattr(library, config)(**options)).eval()

    class First(torch.nn.Module):
        """The first result, without what a model would keep for a next call."""

        def __init__(self) -> None:
            torch.nn.Module.__init__(self)
            self.inner = made

        def forward(self, x: Any) -> Any:
            return self.inner(x, return_dict=False)[0]

    return First().eval()


def _images(batch: int) -> Any:
    torch: Any = import_module("torch")
    return torch.randn(batch, 3, 224, 224)


def _tokens(batch: int) -> Any:
    torch: Any = import_module("torch")
    return torch.randint(0, 30000, (batch, 128))


OURS = ("torch.compile", "ONNX")

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
"""How names of our own calls begin."""

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


def calls_of(model: Any, x: Any, threads: int, without: list[str], backend: str) -> dict[str, Call]:
    torch: Any = import_module("torch")
    ours = torch.compile(model, backend="fuse_opt")
    calls: dict[str, Call] = {"torch.compile": lambda: ours(x)}
    if "eager" not in without:
        calls["eager"] = lambda: model(x)
    if "inductor" not in without:
        inductor = torch.compile(model, backend="inductor")
        calls["Inductor"] = lambda: inductor(x)
    if "ort" not in without:
        try:
            exported = onnx_model(model, x)
            calls["ORT"] = ort_session(exported, x, threads)
            calls["ONNX"] = onnx_program(exported, x)
            if backend:
                calls[f"ONNX, {backend}"] = onnx_program(exported, x, backend)
        except ImportError:
            print("  not installed: onnxruntime")
    expected = model(x).numpy()
    scale = float(np.abs(expected).max())
    for name, call in calls.items():
        found: Any = call()
        error = float(np.abs(np.asarray(found) - expected).max()) / scale
        assert error < 1e-3, (name, error)
    return calls


def steps_of(model: Any, x: Any, momentum: bool, without: list[str]) -> dict[str, Any]:
    """A step of training, of a copy of the model each."""
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

    calls: dict[str, Any] = {"torch.compile": step_of("fuse_opt"), "eager": step_of(None)}
    if "inductor" not in without:
        calls["Inductor"] = step_of("inductor")
    losses = {name: [call() for _ in range(4)] for name, call in calls.items()}
    for name, found in losses.items():
        assert np.allclose(found, losses["eager"], rtol=1e-2), (name, found, losses["eager"])
    return calls


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--models")
    parser.add_argument("--training", action="store_true")
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--batch", type=int, default=1)
    parser.add_argument("--without", default="", help="peers to leave out: inductor, ort, eager")
    parser.add_argument(
        "--backend", default="", help="the exported model by this backend, too, as fuse-opt's --backend"
    )
    options = parser.parse_args()
    if options.threads == 1:
        os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})
    torch: Any = import_module("torch")
    warnings.simplefilter("ignore")
    torch.set_num_threads(options.threads)
    print("threads:", options.threads, "batch:", options.batch, "environment:", settings())
    ratios: list[float] = []
    better: list[float] = []
    known = STEPS if options.training else MODELS
    for name in options.models.split(",") if options.models else known:
        torch._dynamo.reset()
        torch.manual_seed(0)
        model, x = known[name](options.batch)
        without = options.without.split(",")
        if options.training:
            calls = steps_of(model, x, name == "resnet18", without)
            found = report(f"{name}, a step", calls, options.threads)
        else:
            with torch.no_grad():
                calls = calls_of(model, x, options.threads, without, options.backend)
                found = report(name, calls, options.threads)
        ratios.append(1.0 / min(ratio for other, ratio in found.items() if not other.startswith(OURS)))
        better.append(ratios[-1] * min(1.0, found.get("ONNX", 1.0)))
        print(f"{name:32} ours over the best peer: {ratios[-1]:.2f}, or {better[-1]:.2f}", flush=True)
    means = [np.exp(np.mean(np.log(each))) for each in (ratios, better)]
    print(
        f"geometric means of ours over the best peer: torch.compile {means[0]:.3f}, the better of ours {means[1]:.3f}"
    )


if __name__ == "__main__":
    main()
