"""Models whose batches, lengths and images are unknown are one program: nothing in them needs numbers."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import memory_graphs as graphs
import pytest
from xdsl.dialects.builtin import ModuleOp

from fuse_opt.dialects.interfaces.shapes import sizes_asked_for
from fuse_opt.dialects.types.size import symbol
from fuse_opt.passes.remarks import collect
from fuse_opt.runtime.cpu import sized_program
from fuse_opt.tools.compiler.pipeline import make_passes
from fuse_opt.tools.compiler.sized import compile_sized

BATCH, TOKENS = symbol("batch", most=256), symbol("tokens", most=512)
MODELS: dict[str, Callable[[], ModuleOp]] = {
    "transformer": lambda: graphs.transformer(1, BATCH, TOKENS, 32, 4),
    "training": lambda: graphs.training_step(2, BATCH, 32),
    "training of convolutions": lambda: graphs.convolution_training(1, BATCH, 8, 8),
    "u-net": lambda: graphs.unet(1, symbol("size", 2, 512, 2), 4),
    "resnet": lambda: graphs.resnet((1, 1), symbol("size", 8, 512, 8), 4),
    "mobilenet": lambda: graphs.mobilenet(symbol("size", 32, 512, 32), 4),
    "lstm": lambda: graphs.lstm(2, BATCH, 16),
    "wide and deep": lambda: graphs.wide_and_deep(BATCH, 3, 16),
}


@pytest.mark.sampled(5)
@pytest.mark.parametrize("name", MODELS)
def test_a_model_of_unknown_extents_is_one_program(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """As far as its text: what it computes is tested op by op."""
    texts: list[str] = []

    def loaded(program: Any, at: Any) -> Any:
        texts.append(program.source)
        return None, None, 0.0

    monkeypatch.setattr(sized_program, "load_object", loaded)
    with sizes_asked_for():
        module = MODELS[name]()
    with collect() as remarks:
        compile_sized(module, None, make_passes("default"), long_rows=False)
    assert not [remark.message for remark in remarks if remark.code == "specialised"]
    assert len(texts) == 1 and "fuse_sizes" in texts[0]
