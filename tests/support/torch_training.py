"""Random training under torch.compile(backend="fuse_opt"): gradients and a step of an optimiser, judged by eager and by f64.

    python tests/support/torch_training.py --cases 100 --seed 0

A net of random blocks, some of them checkpointed or with dropout, is trained by one of several ways to ask for gradients: twice,
of kept graphs, of parameters alone, beside a call without gradients, with the norm of a gradient in the loss. A value may be as
far from that in f64 as eager's is, a few times, beside what its type rounds; with dropout, whose numbers depend on types, from
eager's.
"""

from __future__ import annotations

import argparse
import copy
import random
import sys
import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

from torch_testing import fuse_opt, torch

nn: Any = torch.nn
functional: Any = torch.nn.functional
MODES = ("plain", "twice", "kept", "alone", "beside", "penalty", "without")
KINDS = (
    "dense",
    "attention",
    "convolution",
    "norm",
    "table",
    "cell",
    "pool",
    "written",
    "batch norm",
    "gather",
    "dropout",
)
ACTIVATIONS = (
    functional.gelu,
    functional.relu,
    functional.silu,
    torch.tanh,
    functional.softplus,
    functional.hardswish,
    functional.elu,
)
SLACK = {torch.float32: 2e-4, torch.bfloat16: 3e-2}
"""Of the largest element of a value, beside what eager's error allows."""
FARTHER = 4.0
"""Times as far as eager's value may ours be from that in f64."""


class Block(nn.Module):
    def __init__(self, rng: random.Random, width: int) -> None:
        nn.Module.__init__(self)
        self.kind, self.heads, self.causal = rng.choice(KINDS), rng.choice([1, 2]), rng.random() < 0.5
        self.act, self.again = rng.choice(ACTIVATIONS), rng.random() < 0.25
        self.wide, self.narrow = nn.Linear(width, 2 * width), nn.Linear(2 * width, width)
        self.window = nn.Conv1d(width, width, 3, padding=1, groups=rng.choice([1, width]))
        self.norm, self.batch, self.root = nn.LayerNorm(width), nn.BatchNorm1d(width), nn.RMSNorm(width)
        self.table, self.cell = nn.Embedding(11, width), nn.GRUCell(width, width)

    def forward(self, x: Any) -> Any:
        if self.again and self.training:
            return torch.utils.checkpoint.checkpoint(self.body, x, use_reentrant=False)
        return self.body(x)

    def body(self, x: Any) -> Any:
        match self.kind:
            case "dense":
                return x + self.narrow(self.act(self.wide(x)))
            case "attention":
                q, v = self.wide(x).chunk(2, -1)
                parts = [part.unflatten(-1, (self.heads, -1)).transpose(1, 2) for part in (q, x, v)]
                found = functional.scaled_dot_product_attention(*parts, is_causal=self.causal)
                return x + found.transpose(1, 2).flatten(2)
            case "convolution":
                return self.act(self.window(x.mT)).mT
            case "norm":
                return self.norm(self.act(x)) * self.root(x)
            case "table":
                return x + self.table(torch.arange(x.shape[0] * x.shape[1]).view(x.shape[0], -1) % 11)
            case "cell":
                return self.cell(x.flatten(0, 1), (x * 2).flatten(0, 1)).view_as(x)
            case "pool":
                return x - functional.max_pool1d(x.mT, 3, 1, 1).mT + functional.avg_pool1d(x.mT, 3, 1, 1).mT
            case "written":
                y = self.narrow(self.wide(x)).relu_() + 0
                y[:, 0] = 1
                return y.mul_(2) + x
            case "batch norm":
                return self.batch(x.mT).mT
            case "gather":
                return x.gather(1, x.argsort(1)) * x.cumsum(1) + x.roll(1, 1)
            case _:
                return functional.dropout(self.act(self.wide(x)), 0.3, self.training).chunk(2, -1)[0] + x


class Net(nn.Module):
    def __init__(self, seed: int) -> None:
        nn.Module.__init__(self)
        rng = random.Random(f"net {seed}")
        torch.manual_seed(seed)
        self.width = rng.choice([4, 6, 8, 12])
        self.blocks = nn.ModuleList(Block(rng, self.width) for _ in range(rng.randint(1, 4)))
        self.out, self.loss = nn.Linear(self.width, 3), rng.choice(["classes", "squares", "sum"])
        if rng.random() < 0.3 and len(self.blocks) > 1:
            self.blocks[-1] = self.blocks[0]
        if rng.random() < 0.2:
            self.blocks[0].requires_grad_(False)

    def forward(self, x: Any, labels: Any) -> Any:
        for block in self.blocks:
            x = block(x)
        y = self.out(x)
        if self.loss == "classes":
            return functional.cross_entropy(y.flatten(0, 1), labels.flatten(), label_smoothing=0.1), y
        if self.loss == "squares":
            return functional.mse_loss(y.softmax(-1), functional.one_hot(labels, 3).to(y.dtype)), y
        return (y * y).sum() / y.numel(), y


@dataclass(frozen=True)
class Case:
    seed: int
    narrow: bool
    optimizer: str
    mode: str
    dynamic: bool

    @staticmethod
    def of(seed: int) -> Case:
        rng = random.Random(f"training {seed}")
        optimizer = rng.choice(["SGD", "Adam", "AdamW", "RMSprop", "Adagrad"])
        return Case(seed, rng.random() < 0.3, optimizer, rng.choice(MODES), rng.random() < 0.5)

    def run(self, net: Any, call: Callable[..., Any], exact: bool = False) -> list[tuple[str, Any]]:
        """Losses and gradients at some extents, each from the same parameters, and these after a step."""
        found: list[tuple[str, Any]] = []
        before = copy.deepcopy(net.state_dict())
        for turn, (rows, length) in enumerate([(2, 5), (3, 7) if self.dynamic else (2, 5)]):
            net.load_state_dict(before)
            net.zero_grad()
            drawn = torch.Generator().manual_seed(10 * self.seed + turn)
            x = torch.randn(rows, length, net.width, generator=drawn).to(torch.float64 if exact else torch.float32)
            x.requires_grad_(self.mode != "without")
            labels = torch.randint(0, 3, (rows, length), generator=drawn)
            torch.manual_seed(turn)
            found += [(f"{name} of call {turn}", value) for name, value in self._gradients(net, call, x, labels, exact)]
        step = getattr(torch.optim, self.optimizer)([p for p in net.parameters() if p.requires_grad], lr=1e-2)
        kept = [(name, p.grad.abs()) for name, p in net.named_parameters() if p.grad is not None]
        step.step()
        sure = {name: grad > 1e-2 * grad.max() for name, grad in kept}  # signs of others are open
        found += [
            (f"{n} after a step", torch.where(sure[n], p, torch.nan)) for n, p in net.named_parameters() if n in sure
        ]
        return [(name, value.detach().clone()) for name, value in found]

    def _gradients(self, net: Any, call: Any, x: Any, labels: Any, exact: bool) -> list[tuple[str, Any]]:
        def called(given: Any) -> Any:
            with torch.autocast("cpu", dtype=torch.bfloat16, enabled=self.narrow and not exact):
                return call(given, labels)

        wanted = [p for p in net.parameters() if p.requires_grad]
        loss, y = called(x)
        more: list[tuple[str, Any]] = [("loss", loss), ("result", y)]
        match self.mode:
            case "twice":
                loss.backward()
                (called(x * 0.5)[0] * 2).backward()
            case "kept":
                loss.backward(retain_graph=True)
                (loss * 3 + y.to(x.dtype).sum()).backward()
            case "alone":
                grads = torch.autograd.grad(loss, wanted, allow_unused=True, retain_graph=True)
                for p, grad in zip(wanted, grads, strict=True):
                    p.grad = grad
                more.append(("slope", torch.autograd.grad(y.to(x.dtype).pow(2).sum(), x)[0]))
            case "beside":
                with torch.no_grad():
                    more.append(("loss beside", called(x.detach())[0]))
                loss.backward()
            case "penalty":
                (slope,) = torch.autograd.grad(loss, x, create_graph=True)
                (loss + slope.square().sum()).backward()
            case _:
                (loss + y.to(x.dtype).mean()).backward()
        more += [(f"gradient of {n}", p.grad) for n, p in net.named_parameters() if p.grad is not None]
        return [*more, *([("gradient of x", x.grad)] if x.grad is not None else [])]


def training_fault(case: Case) -> str | None:
    """What is too far from what it should be; None where nothing is, or eager refuses the net."""
    torch._dynamo.reset()
    net = Net(case.seed)
    if case.mode == "penalty" and any(block.kind == "batch norm" for block in net.blocks):
        case = replace(case, mode="plain")  # what writes to arguments has no gradients of gradients
    nets = [net, copy.deepcopy(net), copy.deepcopy(net).double()]
    has_dropout = any(block.kind == "dropout" for block in net.blocks)
    try:
        wanted = case.run(nets[0], nets[0])
        exact = wanted if has_dropout else case.run(nets[2], nets[2], exact=True)
    except RuntimeError:
        return None
    try:
        ours = case.run(nets[1], torch.compile(nets[1], backend=fuse_opt, dynamic=case.dynamic, fullgraph=True))
    except Exception as error:
        again = Net(case.seed)
        try:
            case.run(again, torch.compile(again, backend="aot_eager", dynamic=case.dynamic, fullgraph=True))
        except Exception:
            return None  # PyTorch's own compiler refuses it
        return f"{type(error).__name__}: {error}"
    slack = SLACK[torch.bfloat16 if case.narrow else torch.float32]
    for (name, a), (other, b), (_, c) in zip(ours, wanted, exact, strict=True):
        if name != other or a.dtype != b.dtype or a.shape != b.shape:
            return f"{name}: {a.dtype} {tuple(a.shape)}, expected {other} {b.dtype} {tuple(b.shape)}"
        a, b, c = a.double(), b.double(), c.double()
        allowed = FARTHER * (b - c).nan_to_num().norm() + slack * c.nan_to_num().norm() + 1e-5
        if not name.endswith("step") and not (a.isnan() == b.isnan()).all():
            return f"{name}: NaN where eager has none"
        if (a - c).nan_to_num().norm() > allowed:
            return f"{name}: {(a - c).norm():.3g} from f64, eager {(b - c).norm():.3g}, norm {c.norm():.3g}"
    return None


def check_cases(seeds: Sequence[int]) -> list[str]:
    torch.set_num_threads(1)
    found: list[str] = []
    for seed in seeds:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            fault = training_fault(case := Case.of(seed))
        if fault is not None:
            kinds = [block.kind for block in Net(seed).blocks]
            found.append(f"{case} {kinds}: {fault[:500]}")
            print(found[-1], flush=True)
    return found


def main(given: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description="Random training compiled for PyTorch, judged by eager and by f64.")
    parser.add_argument("--cases", type=int, default=50)
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args(given)
    faults = check_cases(range(options.seed, options.seed + options.cases))
    print(f"torch training: {options.cases} cases, {len(faults)} faults")
    return 1 if faults else 0


if __name__ == "__main__":
    sys.exit(main())
