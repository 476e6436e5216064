"""fuse_opt inside other compilers: the example of docs/embedding.md, and a plain `xdsl-opt` with our dialects and passes."""

from __future__ import annotations

import io
from collections.abc import Sequence
from contextlib import redirect_stdout
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest
from xdsl.context import Context
from xdsl.parser import Parser
from xdsl.xdsl_opt_main import xDSLOptMain

import fuse_opt
from fuse_opt.tools.commands.universe import UNIVERSE
from fuse_opt.tools.compiler.pipeline import UNFUSED_PIPELINE

ROOT = Path(__file__).resolve().parents[2]
PROGRAM = ROOT / "examples" / "ffn.mlir"


def example() -> ModuleType:
    spec = spec_from_file_location("example_compiler", ROOT / "examples" / "compiler.py")
    assert spec is not None and spec.loader is not None
    module = module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def xdsl_opt(*arguments: str) -> str:
    """What `xdsl-opt` prints; its context is that of the environment, found by entry points."""
    with redirect_stdout(io.StringIO()) as output:
        xDSLOptMain(args=list(arguments)).run()
    return output.getvalue()


def evaluate(text: str, inputs: Sequence[object]) -> np.ndarray:
    ctx = Context()
    fuse_opt.register(ctx)
    return fuse_opt.evaluate(Parser(ctx, text).parse_module(), *inputs)


def test_example_compiler() -> None:
    compiler = example()
    module = compiler.read(compiler.PROGRAM)
    assert str(module).count("audio.gain") == 1, "its own pass merges two ops"
    program = fuse_opt.compile(module)
    voice, music = np.random.default_rng(0).standard_normal((2, 2, 4096)).astype(np.float32)
    np.testing.assert_allclose(program(voice, music), np.tanh(voice + 0.4 * music), rtol=1e-5, atol=1e-6)
    assert program.stats.kernels in (0, 1), "all of it is one kernel (none on the reference)"
    np.testing.assert_allclose(fuse_opt.evaluate(module, voice, music), np.tanh(voice + 0.4 * music), rtol=1e-5)


def test_page_shows_the_example() -> None:
    page = (ROOT / "docs" / "embedding.md").read_text()
    source = (ROOT / "examples" / "compiler.py").read_text()
    shown = [line for line in page.split("```text\n")[1].split("```")[0].splitlines() if line]
    assert shown and all(line in source.splitlines() for line in shown)


@pytest.mark.sampled(12)
@pytest.mark.parametrize("name", sorted(UNIVERSE.all_passes))
def test_pass_in_xdsl_opt(name: str) -> None:
    before = [*UNFUSED_PIPELINE] if name.startswith("convert-") else []
    text = xdsl_opt(str(PROGRAM), "-p", ",".join([*before, name]))
    if name.startswith("convert-"):
        assert "memref" in text
        return
    rng = np.random.default_rng(1)
    inputs = [rng.standard_normal(shape).astype(np.float32) for shape in ((8, 256), (256, 1024), (1024,))]
    np.testing.assert_array_equal(evaluate(text, inputs), fuse_opt.evaluate(PROGRAM, *inputs))


def test_upstream_passes_take_our_ops() -> None:
    text = xdsl_opt(str(PROGRAM), "-p", "canonicalize,cse,dce,fuse-elementwise,cse,dce")
    assert text.count("fused.kernel(") == 1
