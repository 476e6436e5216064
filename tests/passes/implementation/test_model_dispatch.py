"""What runs the transformer block, ResNet-50 and a quantised network: the compiled text says so, and says it again."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from ir_testing import apply, parse
from model_texts import quantized_convolutions, quantized_mlp, resnet50
from onednn_testing import FakeOneDnn

import fuse_opt
from fuse_opt.dialects.analysis.kernel_access import dispatched_ops
from fuse_opt.dialects.fused import KernelOp
from fuse_opt.dialects.graph.materialize import conversion_counts
from fuse_opt.dialects.implementation.offers import Offer
from fuse_opt.dialects.implementation.queries import implementation_counts
from fuse_opt.dialects.implementation.selection import Candidate, best
from fuse_opt.dialects.interfaces.opaque_op import OpaqueOp
from fuse_opt.lowering.reference.interpreter import entry_function
from fuse_opt.tools.compiler.backend_switch import with_host_device
from fuse_opt.tools.compiler.pipeline import make_passes

BLOCK = Path(__file__).resolve().parents[3] / "examples" / "transformer_block.mlir"
MODELS: dict[str, tuple[Callable[[], str], int]] = {
    "transformer_block": (lambda: BLOCK.read_text(encoding="utf-8"), 5),
    "resnet50": (resnet50, 54),
    "quantized_mlp": (quantized_mlp, 2),
    "quantized_convolutions": (quantized_convolutions, 2),
}
"""By name: the text, and how many kernels something has to run at least."""


@pytest.mark.parametrize("name", MODELS)
def test_the_text_says_what_runs(name: str) -> None:
    make, kernels = MODELS[name]
    texts: dict[str, str] = {}
    for backend in ("", "-fuse"):
        passes = [f'attach-backends{{backends="{backend}"}}'] if backend else []
        module = fuse_opt.optimize(make(), [*passes, "default"])
        opaque = [op for op in module.walk() if isinstance(op, OpaqueOp)]
        holders = [op.parent_op() for op in opaque]
        assert all(isinstance(kernel, KernelOp) and kernel.implementation is not None for kernel in holders)
        called = [op for op in module.walk() if isinstance(op, KernelOp) and dispatched_ops(op)]
        counts = implementation_counts(module)
        assert sum(counts.values()) == len(called) >= (0 if backend else kernels)
        assert any(word.startswith("fuse.") for word in counts) != bool(backend), counts
        assert conversion_counts([entry_function(module)])[0] <= 2  # of a call: weights are converted once
        texts[backend] = str(module)
        again = fuse_opt.optimize(texts[backend], "default")
        assert implementation_counts(again) == counts
        assert backend or str(again) == texts[""]
    assert texts[""] != texts["-fuse"]


def test_compiled_code_calls_where_python_could() -> None:
    """Of a BLAS that runs a product, which has threads of its own where Python calls it, and asks for memory in a run."""
    module = apply(parse(MODELS["transformer_block"][0]()), with_host_device(make_passes(None), "avx2"))
    counts = implementation_counts(module)
    assert counts.get("blas.matmul", 0) and not any(name.startswith("numpy.") for name in counts), counts


@pytest.mark.parametrize(
    ("seconds", "chosen", "second"),
    [
        ((1.0, 1.02, 1.04), "library.f", "python.f"),
        ((1.0, 1.2, 1.04), "python.f", "other.f"),
        ((1.2, 1.2, 1.0), "other.f", "library.f"),
        ((1.04, 1.2, 1.0), "python.f", "other.f"),
    ],
)
def test_near_costs(seconds: tuple[float, ...], chosen: str, second: str) -> None:
    offers = (
        Offer("graph.f", "python.f"),
        Offer("graph.f", "library.f", native=True, like="python.f"),
        Offer("graph.f", "other.f", native=True),
    )
    found = best([Candidate(offer, "", spent) for offer, spent in zip(offers, seconds, strict=True)])
    assert [None if one is None else one.offer.name for one in found] == [chosen, second]


@pytest.mark.parametrize("name", MODELS)
def test_runs_choose_the_same(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """From the text, and from what was printed, also where another backend was asked between them."""
    FakeOneDnn(tmp_path, monkeypatch).say(panel=16, scratch=8)
    make, pipeline = MODELS[name][0], ['attach-backends{backends="none","onednn","numpy"}', "default"]
    chosen = implementation_counts(module := fuse_opt.optimize(make(), pipeline))
    first = str(module)
    assert any(word.startswith("onednn.") for word in chosen), chosen
    fuse_opt.optimize(make(), "default")
    assert str(fuse_opt.optimize(make(), pipeline)) == first
    assert implementation_counts(fuse_opt.optimize(first, "default")) == chosen
