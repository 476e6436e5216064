"""What an implementation says of itself beside cost and pairs: unread operands, features, training; each with who asks."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from ir_testing import kernels, parse
from lowered_programs import needs_compiler
from planned_programs import context
from xdsl.dialects.builtin import TensorType
from xdsl.ir import Dialect
from xdsl.irdl import irdl_op_definition, operand_def, result_def
from xdsl.parser import Parser

import fuse_opt
from fuse_opt.dialects.implementation.offers import find_offer, forget_backend
from fuse_opt.dialects.implementation.site import Site
from fuse_opt.dialects.interfaces.opaque_op import OpaqueOp
from fuse_opt.dialects.interfaces.properties import int_array
from fuse_opt.dialects.interfaces.shapes import tensor
from fuse_opt.dialects.verify.memory_plan import PlanError, verify_plans
from fuse_opt.passes.devices.device import find_device
from fuse_opt.passes.remarks import collect
from fuse_opt.runtime.host.thread_pool import num_threads, set_num_threads
from fuse_opt.tools.compiler import backend_switch

N = 64 * 64 * 4


@irdl_op_definition
class StretchOp(OpaqueOp):
    """The rows of `x`, repeated until there are as many as of `like`."""

    name = "audio.stretch"
    x = operand_def(TensorType)
    like = operand_def(TensorType)
    result = result_def(TensorType)

    def infer_types(self):
        return (tensor(self.like),)


AUDIO = Dialect("audio", [StretchOp])
STRETCH = """
import numpy as np
from fuse_opt.backend import Backend, Cost
backend = Backend("{name}")

@backend.implementation("audio.stretch"{more})
def stretch(inputs, outputs, config):
    x, like = inputs
    outputs[0][...] = np.resize(x, like.shape)
"""
TEXT = """
func.func @main(%x: tensor<64x64xf32>) -> tensor<64xf32> {
  %0 = graph.exp %x : (tensor<64x64xf32>) -> tensor<64x64xf32>
  %s = graph.sort %0 {axis = -1 : i64} : (tensor<64x64xf32>) -> tensor<64x64xf32>
  %1 = graph.sort %x {axis = 0 : i64} : (tensor<64x64xf32>) -> tensor<64x64xf32>
  %2 = audio.stretch %1, %s : (tensor<64x64xf32>, tensor<64x64xf32>) -> tensor<64x64xf32>
  %3 = graph.max %2 {axes = array<i64: 1>} : (tensor<64x64xf32>) -> tensor<64xf32>
  func.return %3 : tensor<64xf32>
}
"""


@pytest.fixture(autouse=True)
def registry() -> Iterator[None]:
    yield
    for name in ("reads", "ignores", "wrong", "sorts", "groups"):
        forget_backend(name)
    backend_switch.forget_files()


def stretched(folder: Path, name: str, more: str) -> fuse_opt.CompiledProgram:
    path = folder / f"{name}.py"
    path.write_text(STRETCH.format(name=name, more=more), encoding="utf-8")
    ctx = context()
    ctx.load_dialect(AUDIO)
    return fuse_opt.compile(Parser(ctx, TEXT).parse_module(), backend=str(path), poison=True)


def test_memory_of_an_unread_operand_is_free(tmp_path: Path) -> None:
    reads, ignores = stretched(tmp_path, "reads", ""), stretched(tmp_path, "ignores", ", ignores=(1,)")
    assert reads.stats.arena_bytes - ignores.stats.arena_bytes == N
    x = np.random.default_rng(0).standard_normal((64, 64)).astype(np.float32)
    for program in (reads, ignores):
        np.testing.assert_array_equal(program(x), np.sort(x, axis=0).max(axis=1))
    (kernel,) = [k for k in kernels(ignores.module) if k.unread is not None]
    assert list(kernel.read_operands()) == [kernel.operands[0]]
    verify_plans(ignores.module)
    kernel.unread = int_array([0, 1])
    with pytest.raises(PlanError, match="operand 0 is read by what runs the kernel; run select-implementation"):
        verify_plans(ignores.module)


@pytest.mark.parametrize("said", ["(2,)", "lambda site: [None]", "lambda site: 1 / 0"])
def test_no_answer_about_operands(tmp_path: Path, said: str) -> None:
    with pytest.raises(fuse_opt.InputError, match="'wrong.stretch'.* ignores"):
        stretched(tmp_path, "wrong", f", ignores={said}")


def without(tmp_path: Path, device: str, feature: str) -> str:
    own = Path(find_device.__code__.co_filename).parent / f"device_{device}.toml"
    path = tmp_path / "other.toml"
    path.write_text(own.read_text(encoding="utf-8").replace(f'"{feature}"', '"sse2"'), encoding="utf-8")
    return str(path)


@pytest.mark.parametrize(
    ("device", "feature", "name", "dtype"),
    [
        ("cpu", "avx512_bf16", "onednn.matmul_fast", "bf16"),
        ("a100", "sm_80", "cudnn.conv", "bf16"),
    ],
)
def test_features_are_those_of_the_device(tmp_path: Path, device: str, feature: str, name: str, dtype: str) -> None:
    op = f"graph.{name.partition('.')[2].partition('_')[0]}"
    t = f"tensor<{'4x4' if op == 'graph.matmul' else '2x4x3x3'}x{dtype}>"
    w = t if op == "graph.matmul" else f"tensor<4x4x1x1x{dtype}>"
    module = parse(f"func.func @main(%x: {t}, %w: {w}) -> {t} {{\n"
                   f"  %0 = {op} %x, %w : ({t}, {w}) -> {t}\n  func.return %0 : {t}\n}}")  # fmt: skip
    found = next(each for each in module.walk() if each.name == op)
    offer = find_offer(op, name)
    assert offer is not None
    here, there = (find_device(d) for d in (device, without(tmp_path, device, feature)))
    assert offer.refusal(Site.of(found, here)) is None  # pyright: ignore[reportArgumentType]
    assert offer.refusal(Site.of(found, there)) == f"needs-{feature}"  # pyright: ignore[reportArgumentType]


def test_features_of_a_file_are_texts(tmp_path: Path) -> None:
    path = Path(without(tmp_path, "cpu", "avx2"))
    path.write_text(path.read_text(encoding="utf-8").replace('"sse2"', "2"), encoding="utf-8")
    with pytest.raises(ValueError, match="features: expected a list of texts"):
        find_device(str(path))


SORTS = """
import numpy as np
from fuse_opt.backend import Backend
backend = Backend("sorts")

@backend.implementation("graph.sort", priority=1, differentiable=False)
def sort(inputs, outputs, config):
    outputs[0][...] = np.sort(inputs[0], axis=config["axis"])
"""
SORT = """builtin.module attributes {graph.training} {
  func.func @main(%x: tensor<4x8xf32>) -> tensor<4x8xf32> {
    %0 = graph.sort %x {axis = 1 : i64} : (tensor<4x8xf32>) -> tensor<4x8xf32>
    func.return %0 : tensor<4x8xf32>
  }
}"""


def test_training_is_refused_at_selection(tmp_path: Path) -> None:
    path = tmp_path / "sorts.py"
    path.write_text(SORTS, encoding="utf-8")
    inference = SORT.replace("attributes {graph.training} ", "")
    with collect() as remarks:
        programs = [fuse_opt.compile(text, backend=str(path)) for text in (inference, SORT)]
    assert [program.implementations for program in programs] == [{"sorts.sort": 1}, {"numpy.sort": 1}]
    assert any("sorts.sort:training" in str(remark.numbers) for remark in remarks)
    with pytest.raises(fuse_opt.InputError, match='"sorts.sort" refuses it: training; remove the directive'):
        fuse_opt.compile(SORT.replace("{axis", '{use_implementation = "sorts.sort", axis'), backend=str(path))


LOOPS = """
import ctypes, threading, time
import numpy as np
from fuse_opt.backend import Backend
from fuse_opt.runtime.host.thread_pool import load_pool
backend = Backend("{threads}_loops")
TASK = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_long, ctypes.c_long)
LOOP = ctypes.CFUNCTYPE(None, TASK, ctypes.c_void_p, ctypes.c_long, ctypes.c_long)

@backend.implementation("graph.sort", threads="{threads}")
def sort(inputs, outputs, config):
    '''How many threads run a loop of the pool's.'''
    found = set()
    def task(argument, begin, end):
        found.add(threading.get_ident())
        time.sleep(0.01)
    LOOP(load_pool())(TASK(task), None, 24, 1)
    outputs[0][...] = len(found)
"""


@needs_compiler
@pytest.mark.parametrize("threads", ["caller", "exclusive"])
def test_the_pool_has_nothing_to_do_beside_threads_of_a_library(tmp_path: Path, threads: str) -> None:
    path = tmp_path / f"{threads}_loops.py"
    path.write_text(LOOPS.replace("{threads}", threads), encoding="utf-8")
    program = fuse_opt.compile(SORT, backend=f"none,{path}")
    before = num_threads()
    try:
        set_num_threads(3)
        for _ in range(2):
            found = int(program(np.zeros((4, 8), np.float32))[0, 0])
            assert found == 1 if threads == "exclusive" else found > 1
    finally:
        set_num_threads(before)  # waits for the pool, which was given back


GROUPS = """
import numpy as np
from fuse_opt.backend import Backend
backend = Backend("groups")

@backend.partition(accepts=lambda site: None if site.name in ("graph.exp", "graph.tanh") else "op", differentiable=False)
def build(part):
    def run(inputs, outputs, config):
        outputs[0][...] = np.tanh(np.exp(inputs[0]))
    return run
"""
GROUP = """builtin.module {
  func.func @main(%x: tensor<8xf32>) -> tensor<8xf32> {
    %0 = graph.exp %x : (tensor<8xf32>) -> tensor<8xf32>
    %1 = graph.tanh %0 : (tensor<8xf32>) -> tensor<8xf32>
    func.return %1 : tensor<8xf32>
  }
}"""


def test_training_through_a_group_that_refuses_it(tmp_path: Path) -> None:
    path = tmp_path / "groups.py"
    path.write_text(GROUPS, encoding="utf-8")
    taken = str(fuse_opt.compile(GROUP, backend=str(path)).module)
    assert "fused.partition" in taken
    trained = GROUP.replace("builtin.module", "builtin.module attributes {graph.training}")
    with collect() as remarks:
        assert "fused.partition" not in str(fuse_opt.compile(trained, backend=str(path)).module)
    assert [remark.code for remark in remarks if remark.pass_name == "partition"] == ["training"]
    group = fuse_opt.optimize(GROUP, "attach-backends{backends=groups},partition")
    text = str(group).replace("attributes {", "attributes {graph.training, ", 1)
    with pytest.raises(
        fuse_opt.InputError, match="'fused.partition' is run by 'groups', which refuses training.*unfuse"
    ):
        fuse_opt.optimize(text, "partition")
