"""The torch.compile backend: forward and backward graphs of AOTAutograd as programs with calls of PyTorch's kernels."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from importlib import import_module
from pathlib import Path
from typing import Any

from xdsl.dialects.builtin import UnitAttr

from fuse_opt.dialects.analysis.training import TRAINING
from fuse_opt.frontends.torch.codegen.attempts import Attempted, Attempts, Failed, draws
from fuse_opt.frontends.torch.codegen.device_wrapper import compile_device_call
from fuse_opt.frontends.torch.codegen.steps import NoProgram, NoStats
from fuse_opt.frontends.torch.codegen.wrapper import compile_call
from fuse_opt.frontends.torch.devices import check_device
from fuse_opt.frontends.torch.dumps import dump
from fuse_opt.frontends.torch.dynamic_shapes import Specialized, is_known, metas_of
from fuse_opt.frontends.torch.fallback import (
    Dispatched,
    FailedCallError,
    LeftError,
    Original,
    guarded,
    nothing_to_win,
    unless_bases_differ,
)
from fuse_opt.frontends.torch.fx.api import torch
from fuse_opt.frontends.torch.fx.number_errors import refuse_as_python
from fuse_opt.frontends.torch.graph_passes.channels_last import turn_convolutions
from fuse_opt.frontends.torch.graph_passes.joined_products import join_products
from fuse_opt.frontends.torch.graph_passes.joined_slices import join_slices
from fuse_opt.frontends.torch.graph_passes.pre_autograd import rewrite
from fuse_opt.frontends.torch.graph_passes.sums import join_terms
from fuse_opt.frontends.torch.importer.imported import Imported
from fuse_opt.frontends.torch.importer.importer import Importer
from fuse_opt.frontends.torch.operators.decompositions import decompositions
from fuse_opt.frontends.torch.options import Options, checked_options, mark, precision_of, target_of
from fuse_opt.frontends.torch.partitioning import Partition, WithinBudget, kept_trials, least_cut
from fuse_opt.frontends.torch.recording.recorded import Recorded
from fuse_opt.frontends.torch.report import GraphReport, collect_reports, report
from fuse_opt.frontends.torch.saved_values import saved_bytes
from fuse_opt.frontends.torch.sized_graphs import compile_sized_graph
from fuse_opt.tools.compiler import api
from fuse_opt.tools.compiler.api import parse_budget

_DEFAULT = Options()
_log = logging.getLogger("fuse_opt.torch")

__all__ = ["GraphReport", "Options", "collect_reports", "compile_graph", "fuse_opt"]


def fuse_opt(
    graph_module: Any, example_inputs: Sequence[Any], *, options: dict[str, Any] | None = None, mode: str | None = None
) -> Callable[..., Any]:
    """
    The backend: `torch.compile(model, backend="fuse_opt", options={"dump": "directory"})`. The options are those of
    `Options`; raises ValueError for others, and for values that they cannot have.
    """
    checked = checked_options(options)
    if mode == "reduce-overhead":
        checked = replace(checked, cuda_graphs=True)
    original = Original(graph_module, checked.strict)
    try:
        with api.collection_paused():  # tracing makes millions of objects, too
            compiled = _compiled(rewrite(graph_module), example_inputs, checked, original)
    except (_restart(), LeftError) as error:
        if isinstance(error, LeftError):
            return graph_module
        raise  # Dynamo traces again
    except Exception as error:
        original.leave("tracing it", error)
        return graph_module
    if not all(map(is_known, example_inputs)):
        return refuse_as_python(graph_module, Dispatched(original, compiled, example_inputs, checked.programs))
    return guarded(original, compiled)


def _restart() -> type[Exception]:
    """What Dynamo is told by that it has to trace again."""
    return import_module("torch._dynamo.exc").RestartAnalysis


def _compiled(graph_module: Any, example_inputs: Sequence[Any], options: Options, original: Original) -> Any:
    """The graph as AOTAutograd compiles it, in another layout where there is one and nothing in the graph refuses it."""
    emulated = options.target == "emulated"
    turned = turn_convolutions(graph_module, forced=emulated) if options.channels_last else graph_module
    if turned is not graph_module:
        try:
            return _backend(options, original)(turned, example_inputs)
        except (RuntimeError, ValueError) as error:  # of `view`, say, which another order of axes does not allow
            if isinstance(error, _restart()):
                raise
            _log.info("convolutions keep their layout: %s", error)
    return _backend(options, original)(graph_module, example_inputs)


def _backend(options: Options, original: Original) -> Any:
    backends = import_module("torch._dynamo.backends.common")
    partition: Partition = least_cut
    tried: list[Any] = []
    if options.budget is not None:
        partition = WithinBudget(parse_budget(options.budget), partial(_trials, options=options), tried)
    return backends.aot_autograd(
        fw_compiler=partial(compile_graph, kind="forward", options=options, original=original, tried=tried),
        bw_compiler=partial(compile_graph, kind="backward", options=options, original=original, tried=tried),
        inference_compiler=partial(compile_graph, kind="inference", options=options, original=original),
        decompositions=decompositions(),
        partition_fn=partition,
        keep_inference_input_mutations=True,
    )


def compile_graph(
    graph_module: Any,
    example_inputs: Sequence[Any],
    *,
    kind: str = "inference",
    options: Options = _DEFAULT,
    original: Original | None = None,
    tried: Sequence[Any] = (),
) -> Callable[[list[Any]], Any]:
    """
    The function that runs a graph; it takes a list of arguments, which it empties. What is not taken is left to PyTorch
    where the `original` of the graph is given: raises LeftError, or for a backward graph gives PyTorch's own run of it.
    Trials of graphs that were `tried` for a budget are not made again.
    """

    traced = graph_module
    parameters = _static_inputs() if kind != "backward" else frozenset[int]()
    regenerated = _regenerated_results() if kind != "backward" else frozenset[int]()
    visible = _visible_results() if kind == "forward" else None
    saved = saved_bytes(graph_module) if kind == "forward" else 0
    if kind == "forward" and (metadata := _metadata()) is not None:
        metadata.bw_donated_idxs = []  # what the backward graph is given stays as it is: there may be a second backward
    if original is not None and kind == "forward":
        original.saved_bytes, original.draws = saved, any(draws(node.target) for node in graph_module.graph.nodes)
    elif original is not None and kind == "backward":
        saved = original.saved_bytes

    def failed(error: Exception, args: list[Any]) -> Any:
        if original is None or original.strict or isinstance(error, LeftError | FailedCallError):
            raise error
        what = "its first call" if kind == "inference" else f"the first call of its {kind} graph"
        if kind != "backward":
            raise FailedCallError(what) from error
        found = traced(*args)
        original.leave(what, error)
        return found

    def compile_for(metas: Callable[[], Callable[[Any], Any]]) -> Callable[[list[Any]], Any]:
        try:
            may_leave = original is not None and kind != "backward"
            return _compile(
                graph_module, kind, options, metas(), may_leave, parameters, regenerated, saved, visible, failed, tried
            )
        except Exception as error:
            return _left(graph_module, kind, original, error)

    try:
        if metas_of(graph_module) is not None:
            graph_module = join_terms(graph_module, (join_products, join_slices))
        metas = metas_of(graph_module)
    except Exception as error:
        boxed: Any = _left(graph_module, kind, original, error)
    else:
        if metas is not None:
            boxed = compile_for(lambda: metas)
        else:
            specialised = Specialized(graph_module, compile_for)
            try:
                sized = compile_sized_graph(graph_module, kind, options, parameters, regenerated, specialised, failed)
            except Exception as error:
                boxed = _left(graph_module, kind, original, error)
            else:
                boxed = specialised if sized is None else sized
                if original is not None:
                    original.is_specialised |= sized is None
    if original is not None:
        original.has_backward |= kind == "forward"
    boxed = unless_bases_differ(traced, boxed)
    boxed._boxed_call = True
    return boxed


def _metadata() -> Any:
    """What AOTAutograd knows of the graph that is being compiled, or of the one that it is the backward of; None if unknown."""
    context: Any = import_module("torch._guards").TracingContext.try_get()
    return None if context is None else context.fw_metadata


def _static_inputs() -> frozenset[int]:
    """The numbers of the arguments of the graph that is being compiled that are parameters and buffers."""
    return frozenset(getattr(_metadata(), "static_input_indices", None) or ())


def _regenerated_results() -> frozenset[int]:
    """
    The numbers of the results that AOTAutograd makes as views of arguments. Where extents are symbols it takes shape, strides and
    offset for that from what the graph returns, and else no more than that there is something.
    """
    metadata = _metadata()
    infos = getattr(metadata, "output_info", None) or ()
    first = len(getattr(metadata, "mutated_inp_runtime_indices", ()))  # which come before them
    return frozenset(first + n for n, info in enumerate(infos) if info.output_type.name == "alias_of_input")


def _visible_results() -> int | None:
    """How many results of the forward graph that is being compiled come before those that autograd keeps; None if unknown."""
    return getattr(_metadata(), "num_forward", None)


def _left(graph_module: Any, kind: str, original: Original | None, error: Exception) -> Callable[[list[Any]], Any]:
    """What runs a graph that is not taken."""
    if original is None or isinstance(error, LeftError):
        raise error
    original.leave(f"compiling its {kind} graph" if kind != "inference" else "compiling it", error)
    if kind != "backward":
        raise LeftError(str(error)) from error

    def run(args: list[Any]) -> Any:
        given = list(args)
        args.clear()
        return graph_module(*given)

    return run


def _compile(
    graph_module: Any,
    kind: str,
    options: Options,
    metas: Callable[[Any], Any],
    may_leave: bool,
    parameters: frozenset[int],
    regenerated: frozenset[int],
    saved: int,
    visible: int | None,
    failed: Failed,
    tried: Sequence[Any],
) -> Callable[[list[Any]], Any]:
    started = time.perf_counter()
    api.use_openmp_threads()  # those that PyTorch's own kernels run on
    modes: Any = import_module("torch.utils._python_dispatch")
    with torch.no_grad(), modes._disable_current_modes():  # or tensors that are made here would be fake
        emulated = options.target == "emulated"
        frozen = parameters if kind == "inference" and options.freezing else frozenset[int]()
        importer = Importer(
            graph_module,
            metas,
            frozen=frozen,
            precision=precision_of(options),
            libraries=emulated,
            regenerated=regenerated,
        )
        device = importer.device
        check_device(device, options.target)
        if on_device := emulated or device.type == "cuda":
            importer.frozen = frozenset()
        imported = importer.run()
        if may_leave and not options.strict and (why := nothing_to_win(imported.counts)) is not None:
            report(GraphReport(kind, imported.counts, NoStats(), time.perf_counter() - started, left=why))
            raise LeftError(why)
        with api.steered(options.decisions) as decisions:
            mark(imported.module, kind, options)
            with api.collection_paused():
                program = _program(imported, options, saved, device if on_device else None, tried)
        attempts = Attempts(imported, failed, device)
        if on_device:
            recorded = (
                Recorded(attempts.stored, parameters, visible) if options.cuda_graphs and program.native.steps else None
            )
            launched, text = compile_device_call(imported, program.native, device, recorded, kind == "backward")
            call: Callable[[list[Any]], Any] = Attempted(launched, attempts)
        else:
            call, text = compile_call(imported, program.native, attempts)
    kept = saved if kind == "forward" else 0
    found = GraphReport(kind, imported.counts, program.stats, time.perf_counter() - started, saved=kept)
    report(found)
    if options.dump is not None:
        texts = {
            ".mlir": imported.module,
            "_optimized.mlir": program.module,
            ".cu" if on_device else ".c": program.source,
            "_call.py": text,
            "_decisions.txt": decisions(),
            "_report.txt": found,
        }
        dump(Path(options.dump), kind, texts)
    return call


def _program(imported: Imported, options: Options, saved: int, device: Any, tried: Sequence[Any]) -> Any:
    """For a CUDA device, or the processor (None), or for what emulates one there."""
    if not imported.has_results:
        return NoProgram(imported.module)
    budget = None if options.budget is None else parse_budget(options.budget) - saved
    if budget is not None and budget < 0:
        kept = f"values that are kept from the forward to the backward graph take {saved} bytes"
        raise ValueError(f"option 'budget': {kept} of {options.budget}; give a larger one, or checkpoint the model")
    try:
        return api.compile(
            imported.module,
            target="cpu" if device is None else target_of(device),
            pipeline=options.pipeline,
            backend=options.backend,
            budget=budget,
            tried=tried,
            tuned=options.tuned,
            whole=True,
            emulated=options.target == "emulated",
        )
    except api.InputError as error:
        if not saved or not isinstance(over := error.__cause__, api.OverBudget):
            raise
        kept = f"of {options.budget} values that are kept from the forward to the backward graph take {saved} bytes"
        raise ValueError(f"option 'budget': {kept}; {error.message}; with those {over.least + saved}B") from error


def _trials(graph_module: Any, kind: str, options: Options) -> Any:
    """What passes make of a graph with ever more recomputation; None where extents are unknown."""
    graph_module = join_terms(graph_module, (join_products, join_slices))
    if (metas := metas_of(graph_module)) is None:
        return None
    modes: Any = import_module("torch.utils._python_dispatch")
    with torch.no_grad(), modes._disable_current_modes():
        imported = Importer(graph_module, metas, precision=precision_of(options)).run()
    if kind == "forward":
        imported.module.attributes[TRAINING] = UnitAttr()
    passes = (options.pipeline, options.backend, options.tuned)
    return kept_trials(
        (str(imported.module), passes),
        lambda: api.trials(imported.module, options.pipeline, backend=options.backend, tuned=options.tuned),
    )
