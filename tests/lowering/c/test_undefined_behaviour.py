"""What C leaves undefined, in whole programs; `test_graph_ops.py` looks for it in every op."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest
from ir_testing import parse, random_arguments, text_of
from lowered_programs import needs_compiler
from program_generator import random_program
from sanitizer import sanitize

import fuse_opt
from fuse_opt.runtime.disk_cache import DiskCache
from fuse_opt.runtime.host.c_compiler import CCompiler


@pytest.mark.sampled(4)
@needs_compiler
@pytest.mark.parametrize("seed", range(20))
def test_fused_programs_are_defined(
    seed: int, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    """Fused kernels, in place and in an arena: addresses, too, are such as C allows."""
    sanitize(monkeypatch)
    text = text_of(random_program(seed))
    with np.errstate(all="ignore"):
        fuse_opt.compile(text, "cpu")(*random_arguments(parse(text), seed, specials=True))
    assert "runtime error" not in capfd.readouterr().err


@needs_compiler
def test_what_is_undefined_is_reported(monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]) -> None:
    """The sanitizer is there: a cast of what no integer holds, left in the C text on purpose, is seen."""
    sanitize(monkeypatch)
    compile_shared = CCompiler.compile_shared

    def spoilt(
        self: CCompiler, source: str, cache: DiskCache, extra: Sequence[str] = (), timeout: float | None = None
    ) -> Path:
        spoilt_source = source + "\n__attribute__((constructor)) static void bad(void) {\n"
        spoilt_source += "  volatile double x = 1e30; volatile int y = (int)x; (void)y;\n}\n"
        return compile_shared(self, spoilt_source, cache, extra, timeout)

    monkeypatch.setattr(CCompiler, "compile_shared", spoilt)
    text = "func.func @main(%x: tensor<3xf32>) -> tensor<3xf32> {\n  %0 = graph.exp %x : (tensor<3xf32>) -> tensor<3xf32>\n"
    fuse_opt.compile(text + "  func.return %0 : tensor<3xf32>\n}", "cpu")(np.zeros(3, np.float32))
    assert "runtime error" in capfd.readouterr().err
