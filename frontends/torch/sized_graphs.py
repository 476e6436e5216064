"""Graphs with symbols for extents as one program for all of them, on the processor and on devices."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from functools import cache
from importlib import import_module
from pathlib import Path
from typing import Any

from fuse_opt.dialects.interfaces.shapes import sizes_asked_for
from fuse_opt.dialects.types.size import SizeRefusal
from fuse_opt.frontends.torch.codegen.attempts import Attempted, Attempts, Failed
from fuse_opt.frontends.torch.codegen.sized_call import SizedText
from fuse_opt.frontends.torch.codegen.sized_device_call import SizedDeviceCall
from fuse_opt.frontends.torch.codegen.stated_symbols import state_symbols
from fuse_opt.frontends.torch.codegen.steps import call_site
from fuse_opt.frontends.torch.devices import check_device
from fuse_opt.frontends.torch.dumps import dump
from fuse_opt.frontends.torch.dynamic_shapes import sized_metas_of
from fuse_opt.frontends.torch.fx.api import torch
from fuse_opt.frontends.torch.importer.imported import Imported
from fuse_opt.frontends.torch.importer.importer import Importer
from fuse_opt.frontends.torch.options import Options, mark, precision_of, target_of
from fuse_opt.frontends.torch.report import GraphReport, report
from fuse_opt.tools.compiler import api
from fuse_opt.tools.compiler.device_sizes import BoundPrograms, LongRows, compile_sized_on_device
from fuse_opt.tools.compiler.sized import CallerSizes

_log = logging.getLogger("fuse_opt.torch")


def compile_sized_graph(
    graph_module: Any,
    kind: str,
    options: Options,
    parameters: frozenset[int],
    regenerated: frozenset[int],
    otherwise: Callable[[list[Any]], Any],
    failed: Failed,
) -> Callable[[list[Any]], Any] | None:
    """
    One program for all extents of a graph with symbols; None, with a remark, where it needs numbers. `otherwise` runs calls with
    extents that are 0, and what has `failed` those that the program fails in. Raises whatever goes wrong before.
    """
    started = time.perf_counter()
    api.use_openmp_threads()
    modes: Any = import_module("torch.utils._python_dispatch")
    emulated = options.target == "emulated"
    frozen = parameters if kind == "inference" and options.freezing else frozenset[int]()
    try:
        with sizes_asked_for(), torch.no_grad(), modes._disable_current_modes():
            known = sized_metas_of(graph_module)
            if known is None or options.budget is not None:
                raise SizeRefusal("an argument is no number and no tensor of known layout, or options ask for numbers")
            metas, sources = known
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
                if options.cuda_graphs:
                    raise SizeRefusal("graphs that are recorded are for extents that are numbers")
            imported = importer.run()
            state_symbols(imported, sources)

        texts: dict[str, object] = {".mlir": imported.module}

        def text(long_rows: bool, otherwise: Callable[[], Any]) -> SizedText | SizedDeviceCall:
            with torch.no_grad(), modes._disable_current_modes():
                program = _sized_program(imported, kind, options, long_rows, device if on_device else None, texts)
                if isinstance(program, CallerSizes):
                    return SizedText(imported, program, sources, otherwise, Attempts(imported, failed))
                return SizedDeviceCall(imported, program, sources, device, kind == "backward", otherwise)

        @cache
        def beyond() -> Callable[[list[Any]], Any]:
            try:
                return text(True, lambda: otherwise).call
            except SizeRefusal as error:
                _log.info("remark: [torch] specialised: longer rows are compiled for each set of extents: %s", error)
                return otherwise

        try:
            found = text(False, beyond)
        except LongRows:  # of the usual extents
            found = text(True, lambda: otherwise)
    except SizeRefusal as error:
        _log.info("remark: [torch] specialised: a %s graph is compiled for each set of extents: %s", kind, error)
        return None
    stats, seconds = found.stats, time.perf_counter() - started
    report(said := GraphReport(kind, imported.counts, stats, seconds, symbols=tuple(found.symbols)))
    if options.dump is not None:
        dump(Path(options.dump), kind, {**texts, "_call.py": found.text, "_report.txt": said})
    if isinstance(found, SizedText):
        return found.call
    return Attempted(found.call, Attempts(imported, failed, device))


def _sized_program(
    imported: Imported, kind: str, options: Options, long_rows: bool, device: Any, texts: dict[str, object]
) -> CallerSizes | BoundPrograms:
    """For a CUDA device, or the processor (None), or for what emulates one there; with the `texts` of what it is."""
    if not imported.has_results:
        raise SizeRefusal("nothing is left that a program computes")
    module = imported.module.clone()
    mark(module, kind, options)
    with api.steered(options.decisions) as decisions, api.collection_paused():
        if device is None:
            program = api.compile_sized(
                module, long_rows, options.pipeline, backend=options.backend, tuned=options.tuned
            )
            end, source = ".c", program.usual.source
        else:
            program = compile_sized_on_device(
                module,
                long_rows,
                lambda step: call_site(step) is not None,
                options.pipeline,
                target=target_of(device),
                backend=options.backend,
                tuned=options.tuned,
                emulated=options.target == "emulated",
            )
            end, source = ".cu", program.source
        texts |= {"_optimized.mlir": module, end: source, "_decisions.txt": decisions()}
    return program
