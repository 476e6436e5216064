"""Small models with random weights, from configurations alone: to export, to measure, to test with."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from importlib import import_module
from typing import Any

from fuse_opt.frontends.torch.fx.api import torch

nn: Any = torch.nn


@dataclass(frozen=True)
class Sample:
    """A model in evaluation mode, and the arguments of a call."""

    model: Any
    arguments: tuple[Any, ...]


Make = Callable[[int], Sample]
"""A sample of a batch size."""


def mlp(batch: int) -> Sample:
    """Two hidden layers with normalisation."""
    layers = [
        nn.Linear(256, 1024),
        nn.GELU(),
        nn.LayerNorm(1024),
        nn.Linear(1024, 1024),
        nn.SiLU(),
        nn.Linear(1024, 256),
    ]
    return Sample(nn.Sequential(*layers).eval(), (torch.randn(batch, 256),))


def _tokens(batch: int, length: int, words: int) -> Any:
    return torch.randint(0, words, (batch, length))


class _First(nn.Module):
    """The first result of a model of transformers, without caches."""

    def __init__(self, model: Any, **options: Any) -> None:
        nn.Module.__init__(self)
        self.model = model
        self.options = options

    def forward(self, *arguments: Any) -> Any:
        return self.model(*arguments, return_dict=False, **self.options)[0]


def _transformer(model: str, config: str, options: dict[str, Any], **call: Any) -> Any:
    library = import_module("transformers")
    made = getattr(library, config)(**options)
    return _First(getattr(library, model)(made), **call).eval()


def bert(batch: int) -> Sample:
    """BERT of 4 layers, 256 wide."""
    sizes = {"hidden_size": 256, "num_hidden_layers": 4, "num_attention_heads": 4, "intermediate_size": 1024}
    model = _transformer("BertModel", "BertConfig", {**sizes, "vocab_size": 1000})
    return Sample(model, (_tokens(batch, 128, 1000),))


def gpt2(batch: int) -> Sample:
    """GPT-2 of 4 layers, 256 wide, with its output layer."""
    sizes = {"n_embd": 256, "n_layer": 4, "n_head": 4, "n_positions": 128, "vocab_size": 1000}
    return Sample(_transformer("GPT2LMHeadModel", "GPT2Config", sizes, use_cache=False), (_tokens(batch, 128, 1000),))


def llama(batch: int) -> Sample:
    """Llama of 4 layers, 256 wide, with grouped heads."""
    sizes = {"hidden_size": 256, "num_hidden_layers": 4, "num_attention_heads": 4, "num_key_value_heads": 2}
    model = _transformer(
        "LlamaModel", "LlamaConfig", {**sizes, "intermediate_size": 688, "vocab_size": 1000}, use_cache=False
    )
    return Sample(model, (_tokens(batch, 128, 1000),))


def vit(batch: int) -> Sample:
    """ViT of 4 layers, 192 wide, on images of 64 by 64."""
    sizes = {"hidden_size": 192, "num_hidden_layers": 4, "num_attention_heads": 3, "intermediate_size": 768}
    model = _transformer("ViTModel", "ViTConfig", {**sizes, "image_size": 64, "patch_size": 8})
    return Sample(model, (torch.randn(batch, 3, 64, 64),))


def t5(batch: int) -> Sample:
    """T5's encoder of 4 layers, 256 wide."""
    sizes = {"d_model": 256, "d_ff": 1024, "num_layers": 4, "num_heads": 4, "d_kv": 64, "vocab_size": 1000}
    return Sample(_transformer("T5EncoderModel", "T5Config", sizes), (_tokens(batch, 128, 1000),))


class _SelectiveScan(nn.Module):
    """A block like Mamba's (Gu and Dao 2023): gated convolution along time and a diagonal recurrence, step by step."""

    def __init__(self, width: int, inner: int, state: int) -> None:
        nn.Module.__init__(self)
        self.norm = nn.RMSNorm(width)
        self.into = nn.Linear(width, 2 * inner, bias=False)
        self.conv = nn.Conv1d(inner, inner, 4, padding=3, groups=inner)
        self.select = nn.Linear(inner, 2 * state + 1, bias=False)
        self.rate = nn.Parameter(torch.log(torch.arange(1.0, state + 1).repeat(inner, 1)))
        self.skip = nn.Parameter(torch.ones(inner))
        self.out = nn.Linear(inner, width, bias=False)
        self.state = state

    def forward(self, x: Any) -> Any:
        length = x.shape[1]
        u, gate = self.into(self.norm(x)).chunk(2, -1)
        u = nn.functional.silu(self.conv(u.transpose(1, 2))[..., :length].transpose(1, 2))
        b, c, step = self.select(u).split([self.state, self.state, 1], -1)
        step = nn.functional.softplus(step)
        decay = torch.exp(step.unsqueeze(-1) * -torch.exp(self.rate))
        drive = (step * u).unsqueeze(-1) * b.unsqueeze(2)
        h = torch.zeros_like(drive[:, 0])
        found: list[Any] = []
        for t in range(length):
            h = decay[:, t] * h + drive[:, t]
            found.append((h * c[:, t].unsqueeze(1)).sum(-1))
        y = torch.stack(found, 1) + u * self.skip
        return x + self.out(y * nn.functional.silu(gate))


def mamba(batch: int) -> Sample:
    """Two selective state space blocks, 128 wide, on 16 positions."""
    model = nn.Sequential(nn.Embedding(1000, 128), _SelectiveScan(128, 256, 8), _SelectiveScan(128, 256, 8))
    return Sample(model.eval(), (_tokens(batch, 16, 1000),))


class _Residual(nn.Module):
    """A basic block (He et al. 2015)."""

    def __init__(self, channels: int, given: int, stride: int = 1) -> None:
        nn.Module.__init__(self)
        self.first = nn.Sequential(
            nn.Conv2d(channels, given, 3, stride, 1, bias=False), nn.BatchNorm2d(given), nn.ReLU()
        )
        self.second = nn.Sequential(nn.Conv2d(given, given, 3, 1, 1, bias=False), nn.BatchNorm2d(given))
        same = channels == given and stride == 1
        self.short = nn.Identity() if same else nn.Conv2d(channels, given, 1, stride, bias=False)

    def forward(self, x: Any) -> Any:
        return torch.relu(self.second(self.first(x)) + self.short(x))


def resnet(batch: int) -> Sample:
    """A residual network of four stages on images of 64 by 64."""
    stem = [nn.Conv2d(3, 32, 7, 2, 3, bias=False), nn.BatchNorm2d(32), nn.ReLU(), nn.MaxPool2d(3, 2, 1)]
    blocks = [_Residual(32, 32), _Residual(32, 64, 2), _Residual(64, 128, 2), _Residual(128, 256, 2)]
    head = [nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(256, 100)]
    return Sample(nn.Sequential(*stem, *blocks, *head).eval(), (torch.randn(batch, 3, 64, 64),))


class _Inverted(nn.Module):
    """An inverted residual block with squeeze and excitation (Howard et al. 2019)."""

    def __init__(self, channels: int, inner: int, given: int, stride: int) -> None:
        nn.Module.__init__(self)
        self.expand = nn.Sequential(nn.Conv2d(channels, inner, 1, bias=False), nn.BatchNorm2d(inner), nn.Hardswish())
        depthwise = nn.Conv2d(inner, inner, 3, stride, 1, groups=inner, bias=False)
        self.depth = nn.Sequential(depthwise, nn.BatchNorm2d(inner), nn.Hardswish())
        squeeze = [nn.AdaptiveAvgPool2d(1), nn.Conv2d(inner, inner // 4, 1), nn.ReLU()]
        self.squeeze = nn.Sequential(*squeeze, nn.Conv2d(inner // 4, inner, 1), nn.Hardsigmoid())
        self.project = nn.Sequential(nn.Conv2d(inner, given, 1, bias=False), nn.BatchNorm2d(given))
        self.same = channels == given and stride == 1

    def forward(self, x: Any) -> Any:
        y = self.depth(self.expand(x))
        y = self.project(y * self.squeeze(y))
        return x + y if self.same else y


def mobilenet(batch: int) -> Sample:
    """Six blocks like MobileNetV3's on images of 64 by 64."""
    sizes = [(16, 32, 16, 1), (16, 64, 24, 2), (24, 72, 24, 1), (24, 96, 40, 2), (40, 160, 40, 1), (40, 160, 80, 2)]
    stem = [nn.Conv2d(3, 16, 3, 2, 1, bias=False), nn.BatchNorm2d(16), nn.Hardswish()]
    head = [nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(80, 100)]
    return Sample(nn.Sequential(*stem, *(_Inverted(*s) for s in sizes), *head).eval(), (torch.randn(batch, 3, 64, 64),))


def _double(channels: int, given: int) -> Any:
    layers: list[Any] = []
    for a, b in ((channels, given), (given, given)):
        layers += [nn.Conv2d(a, b, 3, 1, 1), nn.GroupNorm(8, b), nn.SiLU()]
    return nn.Sequential(*layers)


class _UNet(nn.Module):
    """Three levels down and up (Ronneberger et al. 2015), with group normalisation."""

    def __init__(self, width: int) -> None:
        nn.Module.__init__(self)
        self.down = nn.ModuleList([_double(3, width), _double(width, 2 * width), _double(2 * width, 4 * width)])
        self.up = nn.ModuleList([_double(6 * width, 2 * width), _double(3 * width, width)])
        self.last = nn.Conv2d(width, 3, 1)

    def forward(self, x: Any) -> Any:
        kept: list[Any] = []
        for level, block in enumerate(self.down):
            x = block(nn.functional.max_pool2d(x, 2) if level else x)
            kept.append(x)
        kept.pop()
        for block in self.up:
            x = nn.functional.interpolate(x, scale_factor=2.0, mode="nearest")
            x = block(torch.cat([x, kept.pop()], 1))
        return self.last(x)


def unet(batch: int) -> Sample:
    """A U-Net on images of 32 by 32."""
    return Sample(_UNet(16).eval(), (torch.randn(batch, 3, 32, 32),))


class _Lstm(nn.Module):
    """A long short-term memory (Hochreiter and Schmidhuber 1997) as a loop over its cell."""

    def __init__(self, width: int) -> None:
        nn.Module.__init__(self)
        self.gates = nn.Linear(2 * width, 4 * width)

    def forward(self, x: Any) -> Any:
        h = c = torch.zeros_like(x[:, 0])
        found: list[Any] = []
        for t in range(x.shape[1]):
            i, f, g, o = self.gates(torch.cat([x[:, t], h], 1)).chunk(4, 1)
            c = torch.sigmoid(f) * c + torch.sigmoid(i) * torch.tanh(g)
            h = torch.sigmoid(o) * torch.tanh(c)
            found.append(h)
        return torch.stack(found, 1)


def lstm(batch: int) -> Sample:
    """An LSTM, 128 wide, on 16 positions."""
    return Sample(_Lstm(128).eval(), (torch.randn(batch, 16, 128),))


MODELS: dict[str, Make] = {
    "mlp": mlp,
    "bert": bert,
    "gpt2": gpt2,
    "llama": llama,
    "vit": vit,
    "t5": t5,
    "mamba": mamba,
    "resnet": resnet,
    "mobilenet": mobilenet,
    "unet": unet,
    "lstm": lstm,
}
"""By name. Those of transformers need it installed."""
