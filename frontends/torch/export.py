"""The torch.compile backend `fuse_opt`, and models of PyTorch as text: `python -m fuse_opt.frontends.torch.export --model mlp`.

    model = torch.compile(model, backend="fuse_opt")

The command writes a model's graphs to standard output, separated by `// -----`, for `fuse-opt` and `fuse-run`: products,
convolutions and the like are graph ops there, and what no record covers is a `torch.aten`.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Sequence
from functools import partial
from importlib import import_module
from typing import Any

from fuse_opt.frontends.torch.backend import Options, fuse_opt
from fuse_opt.frontends.torch.dynamic_shapes import metas_of
from fuse_opt.frontends.torch.fx.api import torch
from fuse_opt.frontends.torch.graph_passes.pre_autograd import rewrite
from fuse_opt.frontends.torch.importer.importer import Importer
from fuse_opt.frontends.torch.models import MODELS
from fuse_opt.frontends.torch.operators.decompositions import decompositions
from fuse_opt.frontends.torch.report import GraphReport, collect_reports, last_coverage

__all__ = ["GraphReport", "Options", "collect_reports", "export", "fuse_opt", "last_coverage", "main"]


def export(model: Callable[..., Any], arguments: Sequence[Any], *, training: bool = False) -> list[str]:
    """
    The graphs of a call of the model as text; with `training`, forward and backward of the sum of its result. Raises
    ValueError for a graph whose extents are not known.
    """
    texts: list[str] = []
    backends = import_module("torch._dynamo.backends.common")
    compiler = partial(_export_graph, texts=texts)
    backend = backends.aot_autograd(
        fw_compiler=compiler,
        bw_compiler=compiler,
        inference_compiler=compiler,
        decompositions=decompositions(products=False),
    )

    def rewritten(graph_module: Any, inputs: Sequence[Any]) -> Any:
        return backend(rewrite(graph_module), inputs)

    torch._dynamo.reset()
    compiled = torch.compile(model, backend=rewritten, dynamic=False)
    if training:
        compiled(*arguments).sum().backward()
    else:
        with torch.no_grad():
            compiled(*arguments)
    torch._dynamo.reset()
    return texts


def _export_graph(graph_module: Any, inputs: Sequence[Any], texts: list[str]) -> Callable[[list[Any]], Any]:
    metas = metas_of(graph_module)
    if metas is None:
        raise ValueError("expected a graph of known extents; call it with dynamic=False")
    texts.append(str(Importer(graph_module, metas, library=True).run().module))

    def run(args: list[Any]) -> Any:
        return graph_module(*args)

    run._boxed_call = True  # pyright: ignore[reportFunctionMemberAccess]
    return run


def main(given: Sequence[str] | None = None) -> int:
    """The command; 0 when it wrote the text."""
    parser = argparse.ArgumentParser(
        prog="python -m fuse_opt.frontends.torch.export", description="Write a model as text."
    )
    parser.add_argument("--model", required=True, choices=sorted(MODELS), help="a small model with random weights")
    parser.add_argument("--batch", type=int, default=1)
    parser.add_argument("--training", action="store_true", help="the graphs of a training step, forward and backward")
    options = parser.parse_args(given)
    torch.manual_seed(0)
    try:
        sample = MODELS[options.model](options.batch)
    except ImportError as error:
        print(f"model '{options.model}' needs transformers: {error}; pip install transformers", file=sys.stderr)
        return 1
    model = sample.model.train() if options.training else sample.model
    print("\n// -----\n".join(export(model, sample.arguments, training=options.training)))
    return 0


if __name__ == "__main__":
    sys.exit(main())
