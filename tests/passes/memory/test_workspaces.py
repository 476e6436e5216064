"""Workspaces of implementations: who says how large they are, where plans put them, and that routines work in them."""

from __future__ import annotations

import random
import threading
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from planned_programs import apply, function_of, kernels_of, parse, random_program
from xdsl.dialects.builtin import ModuleOp, StringAttr

import fuse_opt
from fuse_opt.backend import Backend, Cost, Site
from fuse_opt.dialects.analysis.storage import analyse_storage
from fuse_opt.dialects.implementation.offers import forget_backend
from fuse_opt.dialects.interfaces.opaque_op import OpaqueOp
from fuse_opt.dialects.interfaces.properties import int_value, ints
from fuse_opt.dialects.verify.memory_plan import verify_plan
from fuse_opt.dialects.verify.plan_contents import PlanError
from fuse_opt.passes.fusion.wrap_kernels import WrapKernelsPass
from fuse_opt.passes.memory.infer_inplace import InferInplacePass
from fuse_opt.passes.memory.order_for_memory import OrderForMemoryPass
from fuse_opt.passes.memory.plan_memory import PlanMemoryPass

Array = NDArray[Any]
SORTS = """
func.func @main(%x: tensor<64x10xf32>) -> tensor<64x10xf32> {
  %0 = graph.negative %x : (tensor<64x10xf32>) -> tensor<64x10xf32>
  %1 = graph.sort %0 {axis = 0 : i64} : (tensor<64x10xf32>) -> tensor<64x10xf32>
  %2 = graph.sort %1 {axis = 1 : i64} : (tensor<64x10xf32>) -> tensor<64x10xf32>
  func.return %2 : tensor<64x10xf32>
}
"""
SPACE = 64 * 10 * 4 + 5


@pytest.fixture
def given() -> Iterator[list[int]]:
    """Has sorts run by a function that works in a workspace; gives the addresses of those it got."""
    backend, found = Backend("spacious"), list[int]()

    @backend.implementation(
        "graph.sort", workspace=lambda site: site.operands[0].nbytes + 5, cost=lambda site: Cost(call=1e-9)
    )
    def sort(inputs: Sequence[Array], outputs: Sequence[Array], config: Mapping[str, Any]) -> None:
        (x,), (out, space) = inputs, outputs
        assert space.dtype == np.int8 and space.nbytes == SPACE
        found.append(space.ctypes.data)
        copy = space[: x.nbytes].view(np.float32).reshape(x.shape)
        copy[...] = np.sort(x, axis=int(config["axis"]))
        space[x.nbytes :] = 1
        out[...] = copy

    assert callable(sort)
    yield found
    forget_backend("spacious")


def test_a_function_works_in_its_slot(given: list[int]) -> None:
    program = fuse_opt.compile(SORTS, backend="none,spacious")
    assert program.stats.workspace_bytes == SPACE
    # a sort's operand, its result and its workspace: the second one's result is the caller's
    assert program.stats.arena_bytes == program.stats.lower_bound_bytes == 2 * 2560 + 2624
    x = np.random.default_rng(0).standard_normal((64, 10)).astype(np.float32)
    expected = np.sort(np.sort(-x, axis=0), axis=1)
    np.testing.assert_array_equal(program(x), expected)
    assert len(given) == 2 and not any(address % 64 for address in given)
    np.testing.assert_array_equal(fuse_opt.evaluate(SORTS, x), expected)
    np.testing.assert_array_equal(fuse_opt.compile(SORTS, backend="none,spacious", poison=True)(x), expected)
    again = fuse_opt.compile(str(program.module), backend="none,spacious")
    assert str(again.module) == str(program.module)


def test_runs_at_a_time_have_workspaces_of_their_own(given: list[int]) -> None:
    program = fuse_opt.compile(SORTS, backend="none,spacious")
    wrong = list[int]()

    def run(seed: int) -> None:
        x = np.random.default_rng(seed).standard_normal((64, 10)).astype(np.float32)
        expected = np.sort(np.sort(-x, axis=0), axis=1)
        wrong.extend(seed for _ in range(50) if not np.array_equal(program(x), expected))

    threads = [threading.Thread(target=run, args=(seed,)) for seed in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong


@pytest.mark.usefixtures("given")
def test_who_asks_for_more_than_the_plan_has_is_refused() -> None:
    """A module from elsewhere, or edited by hand: nobody allocates in a run."""
    text = str(fuse_opt.compile(SORTS, backend="none,spacious").module)
    assert f"workspace = {SPACE} : i64" in text
    fewer = text.replace(f"workspace = {SPACE} : i64", "workspace = 64 : i64")
    # compile() runs select-implementation again, which asks anew
    assert fuse_opt.compile(fewer, backend="none,spacious").stats.workspace_bytes == SPACE
    with pytest.raises(
        fuse_opt.InputError, match=r"'spacious.sort', which takes a workspace of 2565 bytes, got 64; run sel"
    ):
        from fuse_opt.lowering.emit import build_program
        from fuse_opt.tools.source.located import located

        with located(fewer, module := fuse_opt.load(fewer)):
            build_program(module)


@pytest.mark.parametrize(
    ("answer", "shown"),
    [
        (-1, "-1"),
        (float("nan"), "nan"),
        (8.0, "8.0"),
        (True, "True"),
        ("8", "'8'"),
        (None, "None"),
        (1 << 63, "9223372036854775808"),
    ],
)
@pytest.mark.parametrize("called", [True, False])
def test_an_answer_that_is_none_names_the_backend(answer: Any, shown: str, called: bool) -> None:
    backend = Backend("odd")

    def ask(site: Site) -> Any:
        return answer

    asked: Any = ask if called else answer
    backend.implementation("graph.sort", workspace=asked)(lambda inputs, outputs, config: None)
    try:
        wanted = f"'odd.<lambda>', answer of workspace: expected a whole number of bytes from 0 on, got {shown}"
        with pytest.raises(fuse_opt.InputError, match=wanted.replace("<", ".")):
            fuse_opt.compile(SORTS, backend="none,odd")
    finally:
        forget_backend("odd")


def test_a_question_that_raises_names_the_backend() -> None:
    def workspace(site: Site) -> int:
        raise KeyError(site.name)

    backend = Backend("odd")
    backend.implementation("graph.sort", workspace=workspace)(lambda inputs, outputs, config: None)
    try:
        with pytest.raises(fuse_opt.InputError, match="'odd.<lambda>', workspace raised KeyError: 'graph.sort'"):
            fuse_opt.compile(SORTS, backend="none,odd")
    finally:
        forget_backend("odd")


def with_workspaces(rng: random.Random, count: int) -> ModuleOp:
    """A random program, not planned, whose products ask for workspaces."""
    module = apply(parse(random_program(rng, count)), WrapKernelsPass())
    for kernel in kernels_of(module):
        if any(isinstance(op, OpaqueOp) for op in kernel.block.ops):
            kernel.implementation = StringAttr("numpy.matmul")
            kernel.set_workspace(rng.choice((0, 1, 63, 64, 65, 200, 4096)))
    return module


@pytest.mark.sampled(10)
@pytest.mark.parametrize("seed", range(60))
def test_no_workspace_lies_over_what_is_alive(seed: int) -> None:
    rng = random.Random(seed)
    module = with_workspaces(rng, rng.randrange(4, 24))
    if seed % 2:
        apply(module, OrderForMemoryPass(), InferInplacePass())
    apply(module, PlanMemoryPass(alignment=rng.choice((8, 64, 256))))
    function = function_of(module)
    verify_plan(function, complete=True, exact=True)
    storages, steps = analyse_storage(function), list(function.body.block.ops)
    places = {
        storages.of(value).number: slot
        for kernel in kernels_of(module)
        for value, slot in zip(kernel.results, ints(kernel.slots), strict=True)
        if slot >= 0
    }
    for kernel in kernels_of(module):
        if not (nbytes := kernel.workspace_bytes()):
            assert kernel.workspace_slot is None
            continue
        start, step = kernel.workspace_offset(), steps.index(kernel)
        assert start is not None and start % 64 == 0
        for storage in storages.storages:
            if storage.number in places and storage.birth <= step < storage.death and storage.nbytes:
                at = places[storage.number]
                assert start + nbytes <= at or at + storage.nbytes <= start
    text = str(module)
    assert str(apply(parse(text), PlanMemoryPass(alignment=int(text.partition("alignment = ")[2].split()[0])))) == text


def test_workspaces_of_different_steps_share_bytes() -> None:
    chain = "".join(
        f"  %{k + 1} = graph.matmul %{k}, %w : (tensor<8x8xf32>, tensor<8x8xf32>) -> tensor<8x8xf32>\n"
        for k in range(6)
    )
    text = f"func.func @main(%0: tensor<8x8xf32>, %w: tensor<8x8xf32>) -> tensor<8x8xf32> {{\n{chain}"
    module = apply(parse(text + "  func.return %6 : tensor<8x8xf32>\n}"), WrapKernelsPass())
    for kernel in kernels_of(module):
        kernel.implementation = StringAttr("numpy.matmul")
        kernel.set_workspace(4096)
    apply(module, PlanMemoryPass())
    verify_plan(function_of(module), complete=True, exact=True)
    arena = str(function_of(module).attributes["fused.arena"])
    assert f"size = {4096 + 2 * 256} : i64" in arena and f"lower_bound = {4096 + 2 * 256} : i64" in arena


def test_order_counts_workspaces() -> None:
    """What works in much memory comes first, before a large value is there."""
    module = parse("""
    func.func @main(%x: tensor<32x1024xf32>) -> tensor<32xf32> {
      %a = graph.sin %x : (tensor<32x1024xf32>) -> tensor<32x1024xf32>
      %s = graph.sum %x {axes = array<i64: 1>, keepdims = true} : (tensor<32x1024xf32>) -> tensor<32x1xf32>
      %b = graph.sort %s : (tensor<32x1xf32>) -> tensor<32x1xf32>
      %c = graph.add %a, %b : (tensor<32x1024xf32>, tensor<32x1xf32>) -> tensor<32x1024xf32>
      %d = graph.sum %c {axes = array<i64: 1>} : (tensor<32x1024xf32>) -> tensor<32xf32>
      func.return %d : tensor<32xf32>
    }""")
    apply(module, WrapKernelsPass())
    sort = kernels_of(module)[2]
    sort.implementation = StringAttr("numpy.sort")
    before = [op.name for kernel in kernels_of(module) for op in kernel.ops()]
    assert [op.name for k in kernels_of(apply(module, OrderForMemoryPass())) for op in k.ops()] == before
    sort.set_workspace(1 << 20)
    after = [op.name for k in kernels_of(apply(module, OrderForMemoryPass())) for op in k.ops()]
    assert after == ["graph.sum", "graph.sort", "graph.sin", "graph.add", "graph.sum"]


PLANNED = """
func.func @main(%x: tensor<16xf32>) -> tensor<16xf32>
    attributes {fused.arena = {alignment = 64 : i64, lower_bound = 192 : i64, method = "hand", size = 192 : i64}} {
  %a = fused.kernel(%0 = %x : tensor<16xf32>) -> (tensor<16xf32>) attributes {slots = array<i64: 0>} {
    %1 = graph.negative %0 : (tensor<16xf32>) -> tensor<16xf32>
    fused.yield %1 : tensor<16xf32>
  }
  %b = fused.kernel(%0 = %a : tensor<16xf32>) -> (tensor<16xf32>)
      attributes {implementation = "numpy.sort", slots = array<i64: 64>, workspace = 60 : i64, workspace_slot = 128 : i64} {
    %1 = graph.sort %0 : (tensor<16xf32>) -> tensor<16xf32>
    fused.yield %1 : tensor<16xf32>
  }
  %c = fused.kernel(%0 = %a : tensor<16xf32>, %1 = %b : tensor<16xf32>) -> (tensor<16xf32>) attributes {slots = array<i64: -1>} {
    %2 = graph.add %0, %1 : (tensor<16xf32>, tensor<16xf32>) -> tensor<16xf32>
    fused.yield %2 : tensor<16xf32>
  }
  func.return %c : tensor<16xf32>
}
"""


def test_a_plan_by_hand_is_accepted() -> None:
    verify_plan(function_of(parse(PLANNED)), complete=True, exact=True)


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("workspace_slot = 128", "workspace_slot = 0", r"the workspace of the kernel of %b \(bytes 0..60\) at step 1 over %a"),
        ("workspace_slot = 128", "workspace_slot = 64", r"the workspace of the kernel of %b .* over %b .* at the same step"),
        ("workspace_slot = 128", "workspace_slot = 136", "workspace_slot 136 is no multiple of 64, at step 1"),
        ("workspace_slot = 128", "workspace_slot = 192", "its workspace at 192..252 is not inside of the arena of 192 bytes"),
        (", workspace_slot = 128 : i64", "", "asks for a workspace of 60 bytes at step 1, but has no workspace_slot; run plan-m"),
        ("size = 192", "size = 256", "size is 256, the slots take up 192"),
        ("lower_bound = 192", "lower_bound = 128", "lower_bound is 128, the program has 192"),
    ],
)  # fmt: skip
def test_a_spoiled_plan_is_refused(old: str, new: str, message: str) -> None:
    with pytest.raises(PlanError, match=message):
        verify_plan(function_of(parse(PLANNED.replace(old, new))), complete=True, exact=True)


def test_a_workspace_over_a_value_that_is_read_later_is_refused() -> None:
    """The value is no operand of the kernel that works there."""
    text = PLANNED.replace(
        "%0 = %a : tensor<16xf32>) -> (tensor<16xf32>)\n", "%0 = %x : tensor<16xf32>) -> (tensor<16xf32>)\n"
    )
    message = r"%a \(bytes 0..64\) of step 0 is read at step 2, but the workspace of the kernel of %b .* overwrote it"
    with pytest.raises(PlanError, match=message):
        verify_plan(function_of(parse(text.replace("workspace_slot = 128", "workspace_slot = 0"))))


@pytest.mark.parametrize("nbytes", [61, 0])
def test_another_size_drops_the_place(nbytes: int) -> None:
    module = parse(PLANNED)
    kernel = kernels_of(module)[1]
    kernel.set_workspace(60)
    assert kernel.workspace_offset() == 128
    kernel.set_workspace(nbytes)
    assert kernel.workspace_slot is None and kernel.slots is None
    module.verify()
    apply(module, PlanMemoryPass())
    verify_plan(function_of(module), complete=True, exact=True)


def test_a_rewrite_drops_the_place_and_keeps_the_size() -> None:
    dead = PLANNED.replace("func.return %c", "func.return %b").replace(
        "slots = array<i64: 64>", "slots = array<i64: -1>"
    )
    found = str(fuse_opt.optimize(dead.replace("array<i64: -1>} {\n    %2", "array<i64: 64>} {\n    %2"), "dce"))
    assert "graph.add" not in found and "workspace = 60" in found and "workspace_slot" not in found
    assert "workspace_slot = 128" in str(fuse_opt.optimize(PLANNED, "dce")), "nothing changed"


def test_a_number_that_is_no_64_bit_one_is_refused() -> None:
    kernel = kernels_of(parse(PLANNED))[1]
    kernel.workspace_slot = int_value(-64)
    with pytest.raises(Exception, match="'workspace_slot': expected an offset"):
        kernel.verify()
