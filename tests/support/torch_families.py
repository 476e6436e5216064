"""Families of models through torch.compile(backend="fuse_opt"), evaluation and training, against eager PyTorch.

    python tests/support/torch_families.py [--families bert,resnet] [--compile-step]

Small ones with random weights; those of transformers are skipped where that package is missing. A result, and the gradient of
each parameter, is right when it is within the tolerance of eager's, or no farther than twice eager's distance from the same in
f64. With `--compile-step` the optimizer's step is compiled, too, and parameters are compared after three steps of each of
several optimizers. Prints a line for each family; exit status 1 when something is wrong.
"""

from __future__ import annotations

import argparse
import copy
import sys
import time
import warnings
from collections.abc import Callable
from importlib import import_module
from typing import Any, cast

from fuse_opt.frontends.torch import last_coverage
from fuse_opt.frontends.torch.fx.api import torch
from fuse_opt.frontends.torch.models import MODELS

nn: Any = torch.nn
Family = Callable[[], tuple[Any, tuple[Any, ...]]]


class First(nn.Module):
    """The first tensor of what a model gives."""

    def __init__(self, model: Any, **options: Any) -> None:
        nn.Module.__init__(self)
        self.model, self.options = model, options

    def forward(self, *arguments: Any) -> Any:
        found = self.model(*arguments, **self.options)
        while not isinstance(found, torch.Tensor):
            found = next(iter(found.values())) if hasattr(found, "values") else found[0]
        return found


def transformer(model: str, config: str, sizes: dict[str, Any], *arguments: Any, **call: Any) -> Family:
    def make() -> tuple[Any, tuple[Any, ...]]:
        library = import_module("transformers")
        made = getattr(library, model)(getattr(library, config)(**sizes))
        return First(made.float(), **call), arguments

    return make


def _seeded(seed: int) -> Any:
    return torch.Generator().manual_seed(seed)


IDS = torch.randint(3, 90, (2, 12), generator=_seeded(1))
SMALL = {"hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4, "intermediate_size": 48, "vocab_size": 99}
IMAGE = torch.randn(2, 3, 32, 32, generator=_seeded(2))


class Rope(nn.Module):
    """Rotary embeddings as products of complex numbers."""

    def __init__(self) -> None:
        nn.Module.__init__(self)
        self.into = nn.Linear(16, 16)

    def forward(self, x: Any) -> Any:
        z = torch.view_as_complex(self.into(x).reshape(2, 5, 8, 2))
        angles = torch.outer(torch.arange(5.0, device=x.device), torch.arange(8.0, device=x.device)).to(x.dtype)
        transposed = torch.view_as_real(z * torch.polar(torch.ones_like(angles), angles))
        return transposed.reshape(2, 5, 16)


class Dlrm(nn.Module):
    """Embeddings of categories, a dense part, and the products of all pairs (Naumov et al. 2019)."""

    def __init__(self) -> None:
        nn.Module.__init__(self)
        self.tables = nn.ModuleList([nn.EmbeddingBag(20, 8, mode="sum") for _ in range(3)])
        self.dense = nn.Sequential(nn.Linear(6, 8), nn.ReLU())
        self.top = nn.Sequential(nn.Linear(14, 8), nn.ReLU(), nn.Linear(8, 1), nn.Sigmoid())

    def forward(self, x: Any, ids: Any) -> Any:
        parts = [self.dense(x), *(table(ids[:, k]) for k, table in enumerate(self.tables))]
        stacked = torch.stack(parts, 1)
        rows, columns = torch.tril_indices(4, 4, -1)
        return self.top(torch.cat([parts[0], (stacked @ stacked.transpose(1, 2))[:, rows, columns]], 1))


class Gcn(nn.Module):
    """Two layers of messages along the edges of a graph (Kipf and Welling 2017)."""

    def __init__(self) -> None:
        nn.Module.__init__(self)
        self.layers = nn.ModuleList([nn.Linear(6, 8), nn.Linear(8, 3)])

    def forward(self, x: Any, edges: Any) -> Any:
        source, target = edges
        degree = torch.zeros(x.shape[0], dtype=x.dtype).scatter_add(0, target, torch.ones(target.shape, dtype=x.dtype))
        for layer in self.layers:
            h = layer(x)
            x = torch.zeros_like(h).index_add(0, target, h[source]) / degree.clamp(min=1).unsqueeze(1)
            x = torch.relu(x)
        return x


class Looped(nn.Module):
    """An LSTM's cell, step by step."""

    def __init__(self) -> None:
        nn.Module.__init__(self)
        self.cell = nn.LSTMCell(8, 12)

    def forward(self, x: Any) -> Any:
        state = None
        found: list[Any] = []
        for step in x.unbind(1):
            state = self.cell(step, state)
            found.append(state[0])
        return torch.stack(found, 1)


class Experts(nn.Module):
    """A gated mixture of experts whose choice is dense."""

    def __init__(self) -> None:
        nn.Module.__init__(self)
        self.gate = nn.Linear(8, 4)
        self.experts = nn.ModuleList([nn.Sequential(nn.Linear(8, 16), nn.GELU(), nn.Linear(16, 8)) for _ in range(4)])

    def forward(self, x: Any) -> Any:
        weights, chosen = torch.softmax(self.gate(x), -1).topk(2, -1)
        all_of_them = torch.stack([expert(x) for expert in self.experts], -2)
        picked = torch.gather(all_of_them, -2, chosen.unsqueeze(-1).expand(*chosen.shape, 8))
        return (picked * weights.unsqueeze(-1)).sum(-2)


def _sample(name: str) -> Family:
    return lambda: (lambda sample: (sample.model, sample.arguments))(MODELS[name](2))


def _module(make: Callable[[], Any], *arguments: Any) -> Family:
    return lambda: (make(), arguments)


def _autoencoder() -> Any:
    return nn.Sequential(
        nn.Conv2d(3, 8, 3, 2, 1), nn.InstanceNorm2d(8, affine=True), nn.LeakyReLU(), nn.Conv2d(8, 16, 3, 2, 1), nn.ELU(),
        nn.ConvTranspose2d(16, 8, 4, 2, 1), nn.PReLU(), nn.ConvTranspose2d(8, 3, 4, 2, 1), nn.Hardtanh(),
    )  # fmt: skip


FAMILIES: dict[str, Family] = {
    **{name: _sample(name) for name in ("mlp", "resnet", "mobilenet", "unet", "lstm", "mamba")},
    "bert": transformer("BertModel", "BertConfig", SMALL, IDS),
    "distilbert": transformer(
        "DistilBertModel",
        "DistilBertConfig",
        {"dim": 32, "n_layers": 2, "n_heads": 4, "hidden_dim": 48, "vocab_size": 99},
        IDS,
    ),
    "gpt2": transformer(
        "GPT2LMHeadModel",
        "GPT2Config",
        {"n_embd": 32, "n_layer": 2, "n_head": 4, "n_positions": 16, "vocab_size": 99},
        IDS,
        use_cache=False,
    ),
    "llama": transformer("LlamaModel", "LlamaConfig", {**SMALL, "num_key_value_heads": 2}, IDS, use_cache=False),
    "qwen2": transformer("Qwen2Model", "Qwen2Config", {**SMALL, "num_key_value_heads": 2}, IDS, use_cache=False),
    "t5": transformer(
        "T5EncoderModel",
        "T5Config",
        {"d_model": 32, "d_ff": 48, "num_layers": 2, "num_heads": 4, "d_kv": 8, "vocab_size": 99},
        IDS,
    ),
    "vit": transformer(
        "ViTModel",
        "ViTConfig",
        {**{k: v for k, v in SMALL.items() if k != "vocab_size"}, "image_size": 32, "patch_size": 8},
        IMAGE,
    ),
    "whisper encoder": transformer(
        "WhisperModel",
        "WhisperConfig",
        {
            "d_model": 32,
            "encoder_layers": 2,
            "encoder_attention_heads": 4,
            "decoder_layers": 1,
            "decoder_attention_heads": 4,
            "encoder_ffn_dim": 48,
            "decoder_ffn_dim": 48,
            "max_source_positions": 12,
            "num_mel_bins": 16,
            "vocab_size": 99,
            "pad_token_id": 0,
            "bos_token_id": 1,
            "eos_token_id": 2,
            "decoder_start_token_id": 1,
        },
        torch.randn(2, 16, 24, generator=_seeded(3)),
        decoder_input_ids=IDS[:, :6],
        use_cache=False,
    ),
    "clip text": transformer(
        "CLIPTextModel",
        "CLIPTextConfig",
        {**SMALL, "max_position_embeddings": 16, "bos_token_id": 1, "eos_token_id": 2, "pad_token_id": 0},
        IDS,
    ),
    "electra": transformer("ElectraModel", "ElectraConfig", {**SMALL, "embedding_size": 32}, IDS),
    "opt": transformer(
        "OPTModel",
        "OPTConfig",
        {
            "hidden_size": 32,
            "word_embed_proj_dim": 32,
            "num_hidden_layers": 2,
            "num_attention_heads": 4,
            "ffn_dim": 48,
            "vocab_size": 99,
            "max_position_embeddings": 16,
            "pad_token_id": 1,
        },
        IDS,
        use_cache=False,
    ),
    "complex rope": _module(Rope, torch.randn(2, 5, 16, generator=_seeded(4))),
    "dlrm": _module(
        Dlrm, torch.randn(5, 6, generator=_seeded(5)), torch.randint(0, 20, (5, 3, 2), generator=_seeded(6))
    ),
    "gcn": _module(Gcn, torch.randn(9, 6, generator=_seeded(7)), torch.randint(0, 9, (2, 30), generator=_seeded(8))),
    "lstm loop": _module(Looped, torch.randn(3, 4, 8, generator=_seeded(9))),
    "experts": _module(Experts, torch.randn(3, 4, 8, generator=_seeded(10))),
    "autoencoder": _module(_autoencoder, IMAGE),
}
OPTIMIZERS: dict[str, dict[str, Any]] = {
    "SGD": {"lr": 0.05, "momentum": 0.9, "nesterov": True},
    "Adam": {"lr": 0.01},
    "AdamW": {"lr": 0.01, "amsgrad": True},
    "RMSprop": {"lr": 0.01, "momentum": 0.5},
    "Adagrad": {"lr": 0.05},
}


def without_dropout(model: Any) -> Any:
    for module in model.modules():
        for name, value in list(cast("dict[str, object]", vars(module)).items()):
            if "drop" in name and isinstance(value, float):
                setattr(module, name, 0.0)
        if isinstance(module, torch.nn.Dropout):
            module.p = 0.0
    return model


def run(model: Any, arguments: tuple[Any, ...], call: Any, training: bool) -> list[Any]:
    """The result, and in training the gradients of all parameters and the buffers as they are then."""
    arguments = tuple(a.clone() for a in arguments)
    if not training:
        with torch.no_grad():
            return [call(*arguments)]
    model.zero_grad(set_to_none=True)
    y = call(*arguments)
    weights = torch.linspace(-1, 1, y.numel(), dtype=y.dtype).reshape(y.shape).sin()
    (y * weights).sum().backward()
    return [y.detach(), *(p.grad for p in model.parameters() if p.grad is not None), *model.buffers()]


def worst(given: list[Any], wanted: list[Any], exact: list[Any]) -> str:
    """What is wrong; empty when nothing is."""
    if len(given) != len(wanted):
        return f"{len(given)} tensors, expected {len(wanted)}"
    scale = max([float(e.abs().max()) for e in exact if e.is_floating_point() and e.numel()], default=1.0)
    for number, (a, b, e) in enumerate(zip(given, wanted, exact, strict=True)):
        if a.dtype != b.dtype or a.shape != b.shape or a.stride() != b.stride():
            return f"tensor {number} is {a.dtype} {tuple(a.shape)} {a.stride()}, not {b.dtype} {tuple(b.shape)} {b.stride()}"
        if not a.is_floating_point():
            if not torch.equal(a, b):
                return f"tensor {number} differs"
            continue
        size = max(float(e.abs().max()), 1e-3 * scale) if e.numel() else 1.0
        off, own, eager = (
            float((x.double() - y.double()).abs().max()) / size if x.numel() else 0.0
            for x, y in ((a, b), (a, e), (b, e))
        )
        if not (off <= 1e-4 or own <= 2 * eager + 1e-6):
            return f"tensor {number} is off by {off:.2g} from eager, {own:.2g} from f64 (eager {eager:.2g})"
    return ""


def check(make: Family, training: bool) -> str:
    torch.manual_seed(0)
    model, arguments = make()
    model = without_dropout(model).train(training)
    copies = copy.deepcopy(model), copy.deepcopy(model).double()
    torch._dynamo.reset()
    compiled = torch.compile(model, backend="fuse_opt", dynamic=False)
    given = run(model, arguments, compiled, training)
    wanted = run(copies[0], arguments, copies[0], training)
    doubled = tuple(a.double() if a.is_floating_point() else a for a in arguments)
    exact = run(copies[1], doubled, copies[1], training)
    return worst(given, wanted, exact)


def check_steps(name: str) -> str:
    """Parameters after three steps, with step and model compiled."""
    found: list[list[Any]] = []
    for fast in (True, False):
        torch.manual_seed(0)
        torch._dynamo.reset()
        model = nn.Sequential(nn.Linear(6, 9), nn.Tanh(), nn.LayerNorm(9), nn.Linear(9, 5))
        optimizer = getattr(torch.optim, name)(model.parameters(), **OPTIMIZERS[name])
        call = torch.compile(model, backend="fuse_opt") if fast else model
        step = torch.compile(optimizer.step, backend="fuse_opt") if fast else optimizer.step
        for turn in range(4):
            optimizer.zero_grad()
            call(torch.full((4, 6), 0.1 * turn + 0.2)).square().sum().backward()
            step()
        states = [v for s in optimizer.state.values() for v in s.values() if isinstance(v, torch.Tensor)]
        found.append([p.detach() for p in model.parameters()] + states)
    exact: list[Any] = [t.double() for t in found[1]]
    return worst(found[0], found[1], exact)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--families", default=",".join(FAMILIES), help="names separated by commas")
    parser.add_argument("--compile-step", action="store_true", help="compile the steps of optimizers, too")
    given = parser.parse_args()
    warnings.filterwarnings("ignore")
    failures = count = 0
    for name in filter(None, given.families.split(",")):
        for training in (False, True):
            started = time.perf_counter()
            last_coverage()
            try:
                problem = check(FAMILIES[name], training)
            except ImportError as error:
                print(f"{name}: skipped, {error}")
                break
            native, left = last_coverage()
            count, failures = count + 1, failures + bool(problem)
            mode = "training" if training else "evaluation"
            seconds = time.perf_counter() - started
            print(
                f"{name:16} {mode:10} {problem or 'right':60} {native} native, {left} left, {seconds:.1f} s", flush=True
            )
    for name in OPTIMIZERS if given.compile_step else ():
        problem = check_steps(name)
        count, failures = count + 1, failures + bool(problem)
        print(f"{name:16} {'steps':10} {problem or 'right'}", flush=True)
    print(f"{count} checks, {failures} wrong")
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
