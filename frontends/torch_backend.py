"""The torch.compile backend: forward and backward graphs of AOTAutograd as programs with calls of PyTorch's kernels."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Generator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field
from functools import cache, partial
from importlib import import_module
from pathlib import Path
from typing import Any

from fuse_opt.frontends.torch_api import torch
from fuse_opt.frontends.torch_code import compile_call
from fuse_opt.frontends.torch_decompositions import decompositions
from fuse_opt.frontends.torch_graph import Counts
from fuse_opt.frontends.torch_import import Importer
from fuse_opt.frontends.torch_products import join_products
from fuse_opt.frontends.torch_rewrites import rewrite
from fuse_opt.frontends.torch_shapes import Specialized, metas_of
from fuse_opt.frontends.torch_slices import join_slices
from fuse_opt.frontends.torch_sums import join_terms
from fuse_opt.tools import api

_log = logging.getLogger("fuse_opt.torch")
_OPTIONS = ("target", "pipeline", "dump", "decisions", "programs")


@dataclass(frozen=True)
class Options:
    """What `torch.compile(..., options={...})` may say."""

    target: str = "cpu"
    pipeline: str | None = None
    dump: str | None = None
    """A directory for the programs as text, before and after the passes, with the generated C and calls."""
    decisions: str | None = None
    """A file of fusion decisions to make, and no other."""
    programs: int = 256
    """The most programs of one graph, where extents vary."""


@dataclass(frozen=True)
class GraphReport:
    """What became of one graph."""

    kind: str
    """"inference", "forward" or "backward"."""
    counts: Counts
    stats: Any
    seconds: float
    """What compiling took."""

    def __str__(self) -> str:
        external = sum(self.counts.external.values())
        lines = [
            f"{self.kind}: {self.counts.nodes} nodes, {self.counts.views} of them views, {external} calls of PyTorch, "
            f"{self.stats.kernels} kernels, arena {self.stats.arena_bytes} bytes (bound {self.stats.lower_bound_bytes}), "
            f"compiled in {self.seconds:.2f} s"
        ]
        for name, count in sorted(self.counts.external.items()):
            lines.append(f"  remark: [torch] external: {count} x {name}: {self.counts.reasons[name]}")
        lines += [f"  remark: [torch] copied: argument {name} is not dense in memory" for name in self.counts.copies]
        return "\n".join(lines)


@dataclass
class Reports:
    """The graphs compiled while it was collected."""

    graphs: list[GraphReport] = field(default_factory=list[GraphReport])


_COLLECTED: ContextVar[Reports | None] = ContextVar("fuse_opt_torch_reports", default=None)


@contextmanager
def collect_reports() -> Generator[Reports]:
    """Gathers a report for each graph that is compiled in its body; they are logged (`fuse_opt.torch`) in any case."""
    reports = Reports()
    token = _COLLECTED.set(reports)
    try:
        yield reports
    finally:
        _COLLECTED.reset(token)


def fuse_opt(
    graph_module: Any, example_inputs: Sequence[Any], *, options: dict[str, Any] | None = None, mode: str | None = None
) -> Callable[..., Any]:
    """The backend: `torch.compile(model, backend="fuse_opt", options={"dump": "directory"})`."""
    return _backend(_checked(options))(rewrite(graph_module), example_inputs)


def _checked(given: dict[str, Any] | None) -> Options:
    options = dict(given or {})
    unknown = sorted(options.keys() - set(_OPTIONS))
    if unknown:
        raise ValueError(f"option '{unknown[0]}': expected one of {', '.join(_OPTIONS)}; remove it")
    if options.get("target", "cpu") != "cpu":
        raise ValueError(f"option 'target': expected 'cpu', got {options['target']!r}; other targets cannot run yet")
    for name in ("pipeline", "dump", "decisions"):
        if not isinstance(text := options.get(name), str | Path | None):
            raise ValueError(f"option '{name}': expected a text, got {text!r}")
    if type(programs := options.get("programs", 1)) is not int or programs < 0:
        raise ValueError(
            f"option 'programs': expected a number of programs, got {programs!r}; 0 leaves graphs to PyTorch"
        )
    return Options(**options)


@cache
def _backend(options: Options) -> Any:
    backends = import_module("torch._dynamo.backends.common")
    partition = import_module("torch._functorch.partitioners").min_cut_rematerialization_partition
    return backends.aot_autograd(
        fw_compiler=partial(compile_graph, kind="forward", options=options),
        bw_compiler=partial(compile_graph, kind="backward", options=options),
        inference_compiler=partial(compile_graph, kind="inference", options=options),
        decompositions=decompositions(),
        partition_fn=partition,
        keep_inference_input_mutations=True,
    )


def compile_graph(
    graph_module: Any, example_inputs: Sequence[Any], *, kind: str = "inference", options: Options = Options()
) -> Callable[[list[Any]], Any]:
    """The function that runs a graph; it takes a list of arguments, which it empties."""
    if metas_of(graph_module) is not None:
        graph_module = join_terms(graph_module, (join_products, join_slices))
    metas, compile_for = metas_of(graph_module), partial(_compile, graph_module, kind, options)
    call = Specialized(graph_module, compile_for, options.programs) if metas is None else compile_for(metas)
    boxed: Any = call
    boxed._boxed_call = True
    return boxed


def _compile(graph_module: Any, kind: str, options: Options, metas: Callable[[Any], Any]) -> Callable[[list[Any]], Any]:
    started = time.perf_counter()
    api.use_openmp_threads()  # those that PyTorch's own kernels run on
    modes: Any = import_module("torch.utils._python_dispatch")
    with torch.no_grad(), modes._disable_current_modes():  # or tensors that are made here would be fake
        imported = Importer(graph_module, metas).run()
        with api.steered(options.decisions) as decisions:
            program = api.compile(imported.module, target=options.target, pipeline=options.pipeline)
        call, text = compile_call(imported, program.native)
    report = GraphReport(kind, imported.counts, program.stats, time.perf_counter() - started)
    _log.info("%s", report)
    if (collected := _COLLECTED.get()) is not None:
        collected.graphs.append(report)
    if options.dump is not None:
        texts = {
            ".mlir": imported.module,
            "_optimized.mlir": program.module,
            ".c": program.source,
            "_call.py": text,
            "_decisions.txt": decisions(),
            "_report.txt": report,
        }
        _dump(Path(options.dump), kind, texts)
    return call


def _dump(directory: Path, kind: str, texts: Mapping[str, object]) -> None:
    directory.mkdir(parents=True, exist_ok=True)
    number = len(list(directory.glob("*_report.txt")))
    for suffix, text in texts.items():
        (directory / f"{number:03}_{kind}{suffix}").write_text(f"{text}\n", encoding="utf-8")
