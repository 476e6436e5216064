"""An op of a foreign dialect, run by what a user's file brings: chosen, planned in place and with a workspace, and run."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np
import pytest
from planned_programs import context
from xdsl.dialects.builtin import IntegerAttr, ModuleOp, TensorType
from xdsl.ir import Dialect
from xdsl.irdl import irdl_op_definition, operand_def, prop_def, result_def
from xdsl.parser import Parser

import fuse_opt
from fuse_opt.dialects.fused import KernelOp
from fuse_opt.dialects.implementation.offers import forget_backend
from fuse_opt.dialects.interfaces.opaque_op import OpaqueOp
from fuse_opt.dialects.interfaces.shapes import AnyTensor, tensor
from fuse_opt.tools.compiler import backend_switch


@irdl_op_definition
class EchoOp(OpaqueOp):
    """Each row plus itself, so many places later, going round."""

    name = "audio.echo"
    x = operand_def(TensorType)
    result = result_def(TensorType)
    delay = prop_def(IntegerAttr)

    def infer_types(self) -> Sequence[AnyTensor]:
        return (tensor(self.x),)


AUDIO = Dialect("audio", [EchoOp])
FILE = """
import numpy as np
from fuse_opt.backend import Backend, Cost

backend = Backend("{name}", licence="MIT")


def accepts(site):
    return None if site.dtypes == {{"f32"}} else "dtype"


@backend.implementation("audio.echo", accepts=accepts, cost=lambda site: Cost(nbytes=site.nbytes, call={call}),
                        inplace={pairs}, workspace=lambda site: site.operands[0].nbytes)
def echo(inputs, outputs, config):
    (x,), (out, space) = inputs, outputs
    before = space.view(np.float32).reshape(x.shape)
    before[...] = x  # which may be out
    out[...] = before + np.roll(before, config["delay"], axis=-1)
"""
TEXT = """
func.func @main(%x: tensor<16x64xf32>) -> tensor<16xf32> {
  %0 = graph.negative %x : (tensor<16x64xf32>) -> tensor<16x64xf32>
  %1 = audio.echo %0 {delay = 3 : i64} : (tensor<16x64xf32>) -> tensor<16x64xf32>
  %2 = graph.max %1 {axes = array<i64: 1>} : (tensor<16x64xf32>) -> tensor<16xf32>
  func.return %2 : tensor<16xf32>
}
"""
NBYTES = 16 * 64 * 4


@pytest.fixture(autouse=True)
def registry() -> Iterator[None]:
    yield
    for name in ("over", "apart"):
        forget_backend(name)
    backend_switch.forget_files()


def module(text: str = TEXT) -> ModuleOp:
    ctx = context()
    ctx.load_dialect(AUDIO)
    return Parser(ctx, text).parse_module()


def backend(folder: Path, name: str, pairs: str, call: float = 1e-6) -> str:
    path = folder / f"{name}.py"
    path.write_text(FILE.format(name=name, pairs=pairs, call=call), encoding="utf-8")
    return str(path)


def echo_kernel(program: fuse_opt.CompiledProgram) -> KernelOp:
    (found,) = [k for k in program.module.walk() if isinstance(k, KernelOp) and k.implementation is not None]
    return found


def test_it_is_chosen_planned_and_run(tmp_path: Path) -> None:
    path = backend(tmp_path, "over", "((0, 0),)")
    program = fuse_opt.compile(module(), backend=path)
    kernel = echo_kernel(program)
    assert program.implementations == {"over.echo": 1} and kernel.inplace_pairs() == [(0, 0)]
    assert kernel.workspace_bytes() == NBYTES and kernel.workspace_offset() is not None
    assert program.stats.arena_bytes == program.stats.lower_bound_bytes == 2 * NBYTES
    x = np.random.default_rng(0).standard_normal((16, 64)).astype(np.float32)
    expected = (-x - np.roll(x, 3, axis=-1)).max(axis=1)
    np.testing.assert_array_equal(program(x), expected)
    np.testing.assert_array_equal(fuse_opt.compile(module(), backend=path, poison=True)(x), expected)


def test_the_plan_follows_the_choice(tmp_path: Path) -> None:
    """Two implementations of one op, both there: the cheaper one is chosen, and the arena is that of its pairs."""
    over, apart = (
        fuse_opt.compile(
            module(),
            backend=",".join(
                backend(tmp_path, name, pairs, 1e-6 if name == cheaper else 1e-3)
                for name, pairs in (("over", "((0, 0),)"), ("apart", "()"))
            ),
        )
        for cheaper in ("over", "apart")
    )
    assert [echo_kernel(p).implementation.data for p in (over, apart)] == ["over.echo", "apart.echo"]  # pyright: ignore[reportOptionalMemberAccess]
    assert apart.stats.arena_bytes - over.stats.arena_bytes == NBYTES
    x = np.random.default_rng(1).standard_normal((16, 64)).astype(np.float32)
    np.testing.assert_array_equal(over(x), apart(x))


def test_what_it_refuses_is_an_error_with_its_reason(tmp_path: Path) -> None:
    with pytest.raises(fuse_opt.InputError, match="'audio.echo' .*: no implementation runs it: over.echo:dtype"):
        fuse_opt.compile(module(TEXT.replace("f32", "f64")), backend=backend(tmp_path, "over", "()"))
