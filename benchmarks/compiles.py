"""How many programs are compiled for all lengths from 1 to 512, by the library and through torch.compile.

    python benchmarks/compiles.py [--most 512] [--only mlp,block,training,decoding] [--ways library,torch,inductor]

Each length is run once, up and then down, so that all are met twice; results are compared with the reference's, or with eager's,
at every `--check`-th. `compiles` counts texts for the library, graphs for torch.compile, of which PyTorch keeps 1 apart; `made`
those of them that are for one length alone. Decoding appends a token a step to caches that grow, by concatenation.
"""

from __future__ import annotations

import argparse
import os
import tempfile
import time
from collections.abc import Callable, Sequence
from importlib import import_module
from typing import Any

os.environ["FUSE_OPT_CACHE_DIR"] = tempfile.mkdtemp()

import memory_graphs as graphs
import numpy as np
from numpy.typing import NDArray
from xdsl.dialects.builtin import ArrayAttr, DictionaryAttr, ModuleOp, UnitAttr
from xdsl.dialects.func import FuncOp

import fuse_opt
from fuse_opt.dialects.analysis.storage import DONATED
from fuse_opt.dialects.interfaces.properties import int_value
from fuse_opt.dialects.interfaces.shapes import sizes, sizes_asked_for
from fuse_opt.dialects.types.extents import evaluate
from fuse_opt.dialects.types.size import Size, symbol
from fuse_opt.tools.compiler.specialization import SpecializedPrograms

Array = NDArray[Any]
WIDTH, HEADS = 32, 4
Report = tuple[int, int, float, float]
"""Compiles, those for one length alone, seconds, and the largest difference."""


def _mlp(n: Size) -> ModuleOp:
    net = graphs.Net()
    hidden = net("gelu", net.linear(net.argument(n, WIDTH), 4 * WIDTH))
    return net.finish(net.linear(hidden, WIDTH))


def _decoding(n: Size) -> ModuleOp:
    net = graphs.Net()
    x, keys, values = net.argument(1, WIDTH), *(net.argument(HEADS, n, WIDTH // HEADS) for _ in range(2))
    parts = net.all("split", net.linear(x, 3 * WIDTH), axis=int_value(1), parts=int_value(3))
    q, k, v = (net.flattened(one, HEADS, 1, WIDTH // HEADS) for one in parts)
    keys, values = (net("concat", old, new, axis=int_value(1)) for old, new in ((keys, k), (values, v)))
    mixed = net.flattened(net("scaled_dot_product_attention", q, keys, values), 1, WIDTH)
    return net.finish(net.linear(mixed, WIDTH), keys, values)


PROGRAMS: dict[str, Callable[[Any], ModuleOp]] = {
    "mlp": _mlp,
    "block": lambda n: graphs.transformer(1, 1, n, WIDTH, HEADS),
    "training": lambda n: graphs.training_step(2, n, WIDTH),
    "decoding": _decoding,
}


def library(name: str, lengths: Sequence[int], every: int) -> Report:
    """One program by `fuse_opt.compile`; decoding keeps its caches' memory."""
    with sizes_asked_for():
        module = PROGRAMS[name](symbol("n", most=4096))
        function = module.body.block.first_op
        assert isinstance(function, FuncOp)
        shapes = [sizes(value) for value in function.body.block.args]
    growing = name == "decoding"
    if growing:
        given_up = [{DONATED: UnitAttr()} if k in (1, 2) else {} for k in range(len(shapes))]
        function.arg_attrs = ArrayAttr(map(DictionaryAttr, given_up))
    started, rng = time.process_time(), np.random.default_rng(3)
    program = fuse_opt.compile(module, growing=growing)
    given: list[Array] = [
        rng.standard_normal([evaluate(e, {"n": 1}) for e in shape], np.float32) / 8 for shape in shapes
    ]
    varied = [number for number, shape in enumerate(shapes) if any(isinstance(extent, Size) for extent in shape)]
    worst = 0.0
    for step, length in enumerate(lengths):
        for number in [] if growing else varied:
            shape = [evaluate(extent, {"n": length}) for extent in shapes[number]]
            given[number] = rng.standard_normal(shape, np.float32)
        is_checked = step % every == 0
        wanted = fuse_opt.evaluate(module, *(one.copy() for one in given)) if is_checked else ()
        found = program(*given)
        found = found if isinstance(found, tuple) else (found,)
        if is_checked:
            wanted = wanted if isinstance(wanted, tuple) else (wanted,)
            worst = max(worst, *(float(np.abs(a - b).max()) for a, b in zip(found, wanted, strict=True)))
        if growing and found[1].shape[1] <= max(lengths):
            given[1:3] = found[1:3]
    native = program.native
    assert isinstance(native, SpecializedPrograms) and native.sized is not None
    return native.sized.compiled + native.made, native.made, time.process_time() - started, worst


def _torch_models() -> dict[str, tuple[Callable[[], Any], Callable[[int], Sequence[Any]]]]:
    torch: Any = import_module("torch")
    sizes_of = import_module("torch_sizes")
    sizes_of.WIDTH, sizes_of.HEADS = WIDTH, HEADS
    functional = torch.nn.functional

    class Decoder(torch.nn.Module):
        def __init__(self) -> None:
            torch.nn.Module.__init__(self)
            self.qkv, self.out = torch.nn.Linear(WIDTH, 3 * WIDTH), torch.nn.Linear(WIDTH, WIDTH)

        def forward(self, x: Any, keys: Any, values: Any) -> Any:
            q, k, v = (one.reshape(HEADS, 1, -1) for one in self.qkv(x).split(WIDTH, 1))
            keys, values = torch.cat((keys, k), 1), torch.cat((values, v), 1)
            y = functional.scaled_dot_product_attention(q[None], keys[None], values[None])
            return self.out(y.reshape(1, WIDTH)), keys, values

    def block(n: int) -> Sequence[Any]:
        return [torch.randn(1, n, WIDTH)]

    return {
        "mlp": (sizes_of.mlp, lambda n: [torch.randn(n, WIDTH)]),
        "block": (sizes_of.Block, block),
        "training": (sizes_of.Block, block),
        "decoding": (
            Decoder,
            lambda n: [torch.randn(1, WIDTH), *(torch.randn(HEADS, n, WIDTH // HEADS) for _ in "kv")],
        ),
    }


def by_torch(name: str, lengths: Sequence[int], every: int, is_ours: bool) -> Report:
    """Graphs that torch.compile hands to a backend, with automatic symbols: of the first length, of all, and of 1."""
    torch: Any = import_module("torch")
    backend = import_module("fuse_opt.frontends.torch.backend")
    torch._dynamo.reset()
    torch.manual_seed(0)
    make, sample = _torch_models()[name]
    model = make()
    compiled = torch.compile(model, backend=backend.fuse_opt if is_ours else "inductor")
    parameters, worst, started = list(model.parameters()), 0.0, time.process_time()

    def run(called: Any, arguments: Sequence[Any]) -> Sequence[Any]:
        with torch.set_grad_enabled(name == "training"):
            found = called(*arguments)
            found = found if isinstance(found, tuple) else (found,)
            return [*found, *torch.autograd.grad(found[0].sum(), parameters)] if name == "training" else found

    counters = torch._dynamo.utils.counters
    counters.clear()
    with backend.collect_reports() as reports:
        for step, length in enumerate(lengths):
            arguments = sample(length)
            found = run(compiled, arguments)
            if step % every == 0:
                wanted = run(model, arguments)
                worst = max(worst, *((a - b).abs().max().item() for a, b in zip(found, wanted, strict=True)))
    made = sum(not graph.symbols for graph in reports.graphs)
    count = len(reports.graphs) if is_ours else counters["stats"]["unique_graphs"]
    return count, made if is_ours else 0, time.process_time() - started, worst


def main() -> None:
    """Prints a table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--most", type=int, default=512)
    parser.add_argument("--only", default=",".join(PROGRAMS))
    parser.add_argument("--ways", default="library,torch,inductor")
    parser.add_argument("--check", type=int, default=37)
    asked = parser.parse_args()
    lengths = [*range(1, asked.most + 1), *range(asked.most, 0, -1)]
    print(f"{'program':10} {'by':10} {'compiles':>8} {'made':>5} {'s':>7} {'error':>8}")
    for name in asked.only.split(","):
        for way in asked.ways.split(","):
            if way == "library":
                found = library(name, lengths, asked.check)
            else:
                found = by_torch(name, lengths, asked.check, way == "torch")
            count, made, seconds, worst = found
            print(f"{name:10} {way:10} {count:8} {made:5} {seconds:7.1f} {worst:8.1e}", flush=True)


if __name__ == "__main__":
    main()
