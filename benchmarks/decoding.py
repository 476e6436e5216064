"""Decoding with caches that grow: time per token of a GPT-2-like model beside eager PyTorch, Inductor and ONNX Runtime.

    FUSE_OPT_NUM_THREADS=1 python benchmarks/decoding.py [--layers 12] [--tokens 256] [--only ours,concat,eager,inductor,ort]

Each system begins with caches of `--past` tokens and appends one token a step to those of the step before: `ours` in buffers with
room, which are doubled where there is none left, the others (`concat` is ours, too) by concatenation. The systems take turns step
by step, after `--warm` steps of each. Times are of the processor with one thread; of each step's the least of
`--rounds` rounds counts. `compiles` are those after the first step. Weights are random: what is computed is compared, not spoken.
"""

from __future__ import annotations

import argparse
import io
import os
import time
from collections.abc import Callable, Sequence
from importlib import import_module
from typing import Any

import numpy as np
from memory_graphs import Net
from numpy.typing import NDArray
from xdsl.dialects.builtin import ArrayAttr, DictionaryAttr, IntegerAttr, ModuleOp, StringAttr, UnitAttr, i64
from xdsl.dialects.func import FuncOp
from xdsl.ir import Attribute, SSAValue

import fuse_opt
from fuse_opt.dialects.analysis.storage import DONATED
from fuse_opt.dialects.interfaces.properties import int_value
from fuse_opt.dialects.interfaces.shapes import sizes_asked_for, tensor_type
from fuse_opt.dialects.interfaces.symbols import SIZE, SYMBOLS
from fuse_opt.dialects.types.size import symbol
from fuse_opt.dialects.types.symbolic_shape import SizeAttr
from fuse_opt.tools.compiler.specialization import SpecializedPrograms

Array = NDArray[np.float32]
WIDTH, HEADS, WORDS = 768, 12, 50257
HEAD = WIDTH // HEADS
Step = Callable[[Array, Sequence[Any]], tuple[Any, Sequence[Any]]]
"""Of the embedding of a token and caches: logits, and the caches with that token."""


def program(layers: int, most: int, in_place: bool = False) -> ModuleOp:
    """
    A step; arguments are the embedded token, with `in_place` how many tokens there are, for each layer keys and values of those
    before, or buffers with room that have them, then weights.
    """
    with sizes_asked_for():
        past, room = symbol("past", 1, most), symbol("room", 1, most)
        net = Net()
        x = net.argument(1, WIDTH)
        marks: list[dict[str, Attribute]] = [{SIZE: StringAttr("past")}] if in_place else []
        for _ in marks:
            net.block.insert_arg(tensor_type(i64, ()), 1)
        caches = [net.argument(HEADS, room if in_place else past, HEAD) for _ in range(2 * layers)]
        given_up: dict[str, Attribute] = {DONATED: UnitAttr()} if in_place else {}
        marks += [given_up] * len(caches)

        def appended(cache: SSAValue, new: SSAValue) -> tuple[SSAValue, SSAValue]:
            """The cache with the new token, and what it has then."""
            if not in_place:
                return (whole := net("concat", cache, new, axis=int_value(1))), whole
            whole = net("update_slice", cache, new, axis=int_value(1), start=SizeAttr(past))
            return whole, net("leading", whole, axis=int_value(1), count=SizeAttr(past + 1))

        kept: list[Any] = []
        for layer in range(layers):
            normal = net("layer_norm", x, net.argument(WIDTH), net.argument(WIDTH))
            q, k, v = net.all("split", net.linear(normal, 3 * WIDTH), axis=int_value(1), parts=int_value(3))
            q, k, v = (net.flattened(one, HEADS, 1, HEAD) for one in (q, k, v))
            (kept_keys, keys), (kept_values, values) = (
                appended(caches[2 * layer], k),
                appended(caches[2 * layer + 1], v),
            )
            kept += [kept_keys, kept_values]
            mixed = net.flattened(net("scaled_dot_product_attention", q, keys, values), 1, WIDTH)
            x = net("add", x, net.linear(mixed, WIDTH))
            normal = net("layer_norm", x, net.argument(WIDTH), net.argument(WIDTH))
            x = net("add", x, net.linear(net("gelu", net.linear(normal, 4 * WIDTH)), WIDTH))
        normal = net("layer_norm", x, net.argument(WIDTH), net.argument(WIDTH))
        module = net.finish(net("matmul", normal, net.argument(WIDTH, WORDS)), *kept)
        function = module.body.block.first_op
        assert isinstance(function, FuncOp)
        rest = len(net.block.args) - 1 - len(marks)
        function.arg_attrs = ArrayAttr([DictionaryAttr(mark) for mark in ({}, *marks, *[{}] * rest)])
        function.attributes[SYMBOLS] = DictionaryAttr(
            {name: DictionaryAttr({"most": IntegerAttr(most, i64)}) for name in ["past"] + ["room"] * in_place}
        )
        return module


def weights(layers: int) -> list[Array]:
    """In the order of the program's arguments."""
    rng = np.random.default_rng(5)

    def matrix(rows: int, columns: int) -> Array:
        return rng.standard_normal((rows, columns), np.float32) * np.float32(rows**-0.5)

    found: list[Array] = []
    one, zero = np.ones(WIDTH, np.float32), np.zeros(WIDTH, np.float32)
    for _ in range(layers):
        found += [one, zero]
        for rows, columns in ((WIDTH, 3 * WIDTH), (WIDTH, WIDTH)):
            found += [matrix(rows, columns), np.zeros(columns, np.float32)]
        found += [one, zero]
        for rows, columns in ((WIDTH, 4 * WIDTH), (4 * WIDTH, WIDTH)):
            found += [matrix(rows, columns), np.zeros(columns, np.float32)]
    return [*found, one, zero, matrix(WIDTH, WORDS)]


def ours(
    layers: int, given: Sequence[Array], most: int, in_place: bool, past: int = 0
) -> tuple[Step, Callable[[], str]]:
    compiled = fuse_opt.compile(program(layers, most, in_place))
    count = np.array(past)

    def step(x: Array, caches: Sequence[Any]) -> tuple[Any, Sequence[Any]]:
        logits, *kept = compiled(x, *caches, *given)
        return logits, kept

    def step_in_place(x: Array, caches: Sequence[Any]) -> tuple[Any, Sequence[Any]]:
        if caches[0].shape[1] == past:
            count[()] = past
        if caches[0].shape[1] == count:
            caches = [np.concatenate((one, np.zeros_like(one)), 1) for one in caches]
        logits, *kept = compiled(x, count, *caches, *given)
        count[()] += 1
        return logits, kept

    def report() -> str:
        native, stats = compiled.native, compiled.stats
        assert isinstance(native, SpecializedPrograms)
        return f"{native.made} programs of their own, {stats.bytes_written / 1e6:.2f} MB written in the last step"

    return step_in_place if in_place else step, report


def model(layers: int, given: Sequence[Array]) -> Any:
    """The same step in PyTorch."""
    torch: Any = import_module("torch")
    functional = torch.nn.functional

    class Model(torch.nn.Module):
        def __init__(self) -> None:
            torch.nn.Module.__init__(self)
            for number, array in enumerate(given):
                self.register_buffer(f"w{number}", torch.from_numpy(array))

        def forward(self, x: Any, *caches: Any) -> Any:
            taken = iter([getattr(self, f"w{number}") for number in range(len(given))])
            kept: list[Any] = []

            def norm(x: Any) -> Any:
                return functional.layer_norm(x, (WIDTH,), next(taken), next(taken))

            def linear(x: Any) -> Any:
                return x @ next(taken) + next(taken)

            for layer in range(layers):
                q, k, v = (one.reshape(HEADS, 1, HEAD) for one in linear(norm(x)).split(WIDTH, 1))
                keys = torch.cat((caches[2 * layer], k), 1)
                values = torch.cat((caches[2 * layer + 1], v), 1)
                kept += [keys, values]
                mixed = functional.scaled_dot_product_attention(q[None], keys[None], values[None])
                x = x + linear(mixed.reshape(1, WIDTH))
                x = x + linear(functional.gelu(linear(norm(x))))
            return norm(x) @ next(taken), *kept

    return Model().eval()


def in_torch(found: Any) -> Step:
    torch: Any = import_module("torch")

    def step(x: Array, caches: Sequence[Any]) -> tuple[Any, Sequence[Any]]:
        with torch.no_grad():
            logits, *kept = found(torch.from_numpy(x), *caches)
        return logits, kept

    return step


def ort(found: Any, layers: int, past: int, threads: int) -> Step:
    torch, onnxruntime = import_module("torch"), import_module("onnxruntime")
    caches = [torch.zeros(HEADS, past, HEAD) for _ in range(2 * layers)]
    names = [f"past{number}" for number in range(2 * layers)]
    stream = io.BytesIO()
    dims = {"x": None, "caches": tuple({1: torch.export.Dim("past", min=2, max=4096)} for _ in caches)}
    exported = torch.export.export(found, (torch.zeros(1, WIDTH), *caches), dynamic_shapes=dims, strict=False)
    torch.onnx.export(exported, (), stream, dynamo=True, input_names=["x", *names], verbose=False)
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = threads
    session = onnxruntime.InferenceSession(stream.getvalue(), options, providers=["CPUExecutionProvider"])
    inputs = [one.name for one in session.get_inputs()]

    def step(x: Array, caches: Sequence[Any]) -> tuple[Any, Sequence[Any]]:
        logits, *kept = session.run(None, dict(zip(inputs, (x, *caches), strict=True)))
        return logits, kept

    return step


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--layers", type=int, default=12)
    parser.add_argument("--past", type=int, default=64)
    parser.add_argument("--tokens", type=int, default=256)
    parser.add_argument("--warm", type=int, default=2)
    parser.add_argument("--rounds", type=int, default=1)
    parser.add_argument("--only", default="ours,concat,eager,inductor,ort")
    asked = parser.parse_args()
    threads = int(os.environ.get("FUSE_OPT_NUM_THREADS", "1"))
    print(
        {
            name: value
            for name, value in os.environ.items()
            if name.startswith(("OMP_", "MKL_", "OPENBLAS_", "FUSE_OPT_"))
        }
    )
    given, chosen = weights(asked.layers), asked.only.split(",")
    steps: dict[str, Step] = {}
    reports: dict[str, Callable[[], str]] = {}
    for name in [name for name in ("ours", "concat") if name in chosen]:
        steps[name], reports[name] = ours(asked.layers, given, 4096, name == "ours", asked.past)
    if set(chosen) - {"ours", "concat"}:
        import_module("torch").set_num_threads(threads)
        eager = model(asked.layers, given)
        if "eager" in chosen:
            steps["eager"] = in_torch(eager)
        if "inductor" in chosen:
            dynamo: Any = import_module("torch._dynamo")
            steps["inductor"] = in_torch(import_module("torch").compile(eager, dynamic=True))
            reports["inductor"] = lambda: f"{sum(dynamo.utils.counters['stats'].values())} in dynamo's statistics"
        if "ort" in chosen:
            steps["ort"] = ort(eager, asked.layers, asked.past, threads)
    times = {name: np.full((asked.rounds, asked.tokens), np.inf) for name in steps}
    rng, logits = np.random.default_rng(6), dict[str, Any]()
    for number in range(asked.rounds):
        first = [rng.standard_normal((HEADS, asked.past, HEAD), np.float32) for _ in range(2 * asked.layers)]
        caches: dict[str, Sequence[Any]] = {name: list(first) for name in steps}
        for name in set(steps) & {"eager", "inductor"}:
            caches[name] = [import_module("torch").from_numpy(one.copy()) for one in first]
        inputs = rng.standard_normal((asked.tokens, 1, WIDTH), np.float32)
        for token in range(asked.tokens):
            order = [*steps][token % len(steps) :] + [*steps][: token % len(steps)]
            for name in order:
                start = time.process_time()
                logits[name], caches[name] = steps[name](inputs[token], caches[name])
                times[name][number, token] = time.process_time() - start
            if token + 1 in (asked.warm, asked.tokens):
                found = [np.asarray(one) for one in logits.values()]
                worst = max(float(np.abs(one - found[0]).max()) for one in found)
                print(f"token {token + 1}: logits differ by {worst:.1e} at most", flush=True)
    kept = {name: found.min(0)[asked.warm :] * 1e3 for name, found in times.items()}
    print(f"{'system':10} {'first s':>8} {'ms a token':>10} {'least':>7} {'most':>7} {'/ ours':>7}")
    for name, found in kept.items():
        ratio = np.median(found / kept[next(iter(kept))])
        first_s = times[name][0, : asked.warm].sum()
        print(
            f"{name:10} {first_s:8.1f} {np.median(found):10.2f} {found.min():7.2f} {found.max():7.2f} {ratio:7.2f}  "
            f"{reports[name]() if name in reports else ''}"
        )


if __name__ == "__main__":
    main()
