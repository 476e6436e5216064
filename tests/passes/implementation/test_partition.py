"""Parts of graphs that backends run: groups, reviews, profit, memory, faults, and random programs in random orders of passes."""

from __future__ import annotations

import random
import re
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from typing import Any, Protocol

import numpy as np
import pytest
from fuzz import program_of, random_sequence
from ir_testing import text_of
from laws import Subject, pass_fault

import fuse_opt
from fuse_opt.backend import Backend, Site
from fuse_opt.dialects.implementation.offers import forget_backend
from fuse_opt.dialects.implementation.partitions import partition_offer
from fuse_opt.dialects.implementation.site import Machine
from fuse_opt.dialects.implementation.subgraph import Subgraph
from fuse_opt.passes.remarks import collect
from fuse_opt.tools.compiler.builders import has_c_compiler

Run = Callable[[Sequence[Any], Sequence[Any], Mapping[str, Any]], None]
FUNCTIONS: dict[str, Any] = {
    "graph.add": np.add,
    "graph.exp": np.exp,
    "graph.sin": np.sin,
    "graph.tanh": np.tanh,
    "graph.matmul": np.matmul,
}
SEEN: list[int] = []
"""Bytes of workspaces that runs were given."""


def build(part: Subgraph) -> Run:
    offer = partition_offer("parts")
    planned = offer is not None and offer.planned

    def run(inputs: Sequence[Any], outputs: Sequence[Any], config: Mapping[str, Any]) -> None:
        values: dict[int, Any] = dict(enumerate(inputs))
        places = dict(zip(part.inside, outputs[len(part.results) :], strict=True)) if planned else {}
        for node in part.nodes:
            (number,), found = node.outputs, FUNCTIONS[node.name](*(values[number] for number in node.inputs))
            if number in places:  # where the plan has it: what lies there is gone
                np.copyto(places[number], found)
            values[number] = places.get(number, found)
        for out, number in zip(outputs, part.results, strict=False):
            np.copyto(out, values[number])
        SEEN.extend(out.nbytes for out in outputs[len(part.results) :])

    return run


def accepts(site: Site) -> str | None:
    return None if site.name in FUNCTIONS else "op"


class Register(Protocol):
    """Registers the backend `parts`."""

    def __call__(
        self,
        *,
        accepts: Callable[[Site], str | None] = accepts,
        review: Callable[[Subgraph], Collection[int] | None] | None = None,
        seconds: Callable[[Subgraph, Machine], float] | None = None,
        workspace: Callable[[Subgraph], int] | None = None,
        planned: bool = False,
    ) -> None: ...


@pytest.fixture
def register() -> Iterator[Register]:
    def made(
        *,
        accepts: Callable[[Site], str | None] = accepts,
        review: Callable[[Subgraph], Collection[int] | None] | None = None,
        seconds: Callable[[Subgraph, Machine], float] | None = None,
        workspace: Callable[[Subgraph], int] | None = None,
        planned: bool = False,
    ) -> None:
        offered = Backend("parts").partition(
            accepts=accepts, review=review, seconds=seconds, workspace=workspace, planned=planned
        )
        offered(build)

    yield made
    forget_backend("parts")


CHAIN = """
func.func @main(%x: tensor<8x8xf32>, %y: tensor<8x8xf32>) -> tensor<8x8xf32> {
  %0 = graph.exp %x : (tensor<8x8xf32>) -> tensor<8x8xf32>
  %1 = graph.tanh %0 : (tensor<8x8xf32>) -> tensor<8x8xf32>
  %2 = graph.sin %1 : (tensor<8x8xf32>) -> tensor<8x8xf32>
  %3 = graph.matmul %2, %y : (tensor<8x8xf32>, tensor<8x8xf32>) -> tensor<8x8xf32>
  %4 = graph.add %3, %y : (tensor<8x8xf32>, tensor<8x8xf32>) -> tensor<8x8xf32>
  func.return %4 : tensor<8x8xf32>
}
"""
ALLOW = "attach-backends{backends=parts}"


def parts_of(text: str, passes: str = "partition") -> list[list[str]]:
    """The names of the ops of each partition."""
    module = str(fuse_opt.optimize(text, f"{ALLOW},{passes}"))
    bodies = re.findall(r"fused\.partition\(.*?fused\.yield", module, re.DOTALL)
    return [re.findall(r"= (graph\.\w+)", body) for body in bodies]


@pytest.mark.parametrize("target", ["reference", "cpu"])
def test_a_partition_runs(register: Register, target: str) -> None:
    register()
    assert parts_of(CHAIN) == [["graph.exp", "graph.tanh", "graph.sin", "graph.matmul", "graph.add"]]
    if target == "cpu" and not has_c_compiler():
        pytest.skip("programs are compiled")
    program = fuse_opt.compile(CHAIN, target, pipeline=None if target == "cpu" else "partition", backend="parts")
    assert "fused.partition" in str(program.module)
    x, y = np.random.default_rng(3).standard_normal((2, 8, 8)).astype("f4")
    np.testing.assert_allclose(program(x, y), np.sin(np.tanh(np.exp(x))) @ y + y, rtol=1e-5, atol=1e-5)


def test_nothing_is_taken_without_the_backend(register: Register) -> None:
    register()
    before = str(fuse_opt.optimize(CHAIN, ()))
    assert str(fuse_opt.optimize(CHAIN, "partition")) == before  # registered, but nobody named it


@pytest.mark.parametrize(
    ("kept", "expected"),
    [
        ({0, 1, 3, 4}, [["graph.exp", "graph.tanh"], ["graph.matmul", "graph.add"]]),
        ({0, 2, 4}, []),
        (set[int](), []),
    ],
)
def test_what_a_review_leaves_is_grouped_anew(
    register: Register, kept: Collection[int], expected: list[list[str]]
) -> None:
    """Two islands are two parts; a part that is declined stays as it was, byte for byte."""
    register(review=lambda part: kept if len(part.nodes) == 5 else None)
    assert parts_of(CHAIN) == expected
    if not expected:
        allowed = str(fuse_opt.optimize(CHAIN, ALLOW))
        assert str(fuse_opt.optimize(CHAIN, f"{ALLOW},partition")) == allowed


def test_operands_and_results_are_given_once(register: Register) -> None:
    register()
    text = """
    func.func @main(%x: tensor<4xf32>) -> (tensor<4xf32>, tensor<4xf32>, tensor<4xf32>) {
      %0 = graph.exp %x : (tensor<4xf32>) -> tensor<4xf32>
      %1 = graph.add %0, %x : (tensor<4xf32>, tensor<4xf32>) -> tensor<4xf32>
      func.return %1, %0, %1 : tensor<4xf32>, tensor<4xf32>, tensor<4xf32>
    }"""
    module = str(fuse_opt.optimize(text, f"{ALLOW},partition"))
    assert re.search(
        r"%\w+, %\w+ = fused.partition\(%\w+ = %x : tensor<4xf32>\) -> \(tensor<4xf32>, tensor<4xf32>\)", module
    )


@pytest.mark.parametrize(("seconds", "taken"), [(1e-9, True), (1.0, False)])
def test_parts_that_take_longer_are_not_made(register: Register, seconds: float, taken: bool) -> None:
    register(seconds=lambda part, machine: seconds)
    with collect() as remarks:
        assert bool(parts_of(CHAIN)) == taken
    assert ("slower" in {remark.code for remark in remarks}) != taken


@pytest.mark.parametrize(("seconds", "taken"), [(1e-9, True), (1.0, False)])
def test_a_part_of_few_ops_is_made_where_it_saves_time(register: Register, seconds: float, taken: bool) -> None:
    register(seconds=lambda part, machine: seconds)
    assert bool(parts_of(CHAIN, "partition{min-ops=99}")) == taken


def test_the_parts_that_save_most_are_made(register: Register) -> None:
    register(review=lambda part: {0, 1, 3, 4} if len(part.nodes) == 5 else None, seconds=lambda part, machine: 0.0)
    assert parts_of(CHAIN, "partition{max-groups=1}") == [["graph.exp", "graph.tanh"]]


def test_a_workspace_is_a_slot_of_the_plan(register: Register) -> None:
    register(workspace=lambda part: 1000)
    module = str(fuse_opt.optimize(CHAIN, (ALLOW, "default")))
    assert 'memory = "workspace"' in module and "workspace = 1000 : i64" in module and "workspace_slot = 0" in module
    if has_c_compiler():
        program = fuse_opt.compile(CHAIN, backend="parts")
        SEEN.clear()
        program(np.ones((8, 8), "f4"), np.ones((8, 8), "f4"))
        assert SEEN == [1000] and program.stats.workspace_bytes >= 1000


@pytest.mark.parametrize("passes", ["default", "partition,wrap-kernels,select-implementation"])
def test_values_inside_are_slots_of_the_plan(register: Register, passes: str) -> None:
    """Four values inside, no more than two alive at once."""
    register(planned=True)
    module = str(fuse_opt.optimize(CHAIN, (ALLOW, "default")))
    assert re.search(r"inner_slots = array<i64: 256, 0, 256, 0>", module) and "size = 512" in module
    if has_c_compiler():
        program = fuse_opt.compile(CHAIN, pipeline=passes, backend="parts")
        assert program.stats.inside_bytes == 1024
        assert program.stats.arena_bytes == 512  # `compile` plans where the pipeline does not
        x, y = np.random.default_rng(3).standard_normal((2, 8, 8)).astype("f4")
        np.testing.assert_allclose(program(x, y), np.sin(np.tanh(np.exp(x))) @ y + y, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize(
    ("slots", "message"),
    [
        (
            "256, 256, 0, 0",
            "'graph.tanh' inside of a partition .* over the result of 'graph.exp' inside",
        ),
        ("256, 0, 256, 100", "slot 100 of .* is no multiple of 64"),
        ("256, 0, 256, 512", "at 512..768 is not inside of the arena of 512 bytes"),
        ("256, 0, 256, -1", "inner slot -1 of .*: expected an offset"),
    ],
)
def test_wrong_places_inside_are_refused(register: Register, slots: str, message: str) -> None:
    register(planned=True)
    text = str(fuse_opt.optimize(CHAIN, (ALLOW, "default"))).replace(
        "array<i64: 256, 0, 256, 0>", f"array<i64: {slots}>"
    )
    with pytest.raises(fuse_opt.InputError, match=message):
        fuse_opt.optimize(text, ())


def test_a_backend_has_one_kind_of_memory(register: Register) -> None:
    with pytest.raises(ValueError, match="'parts' asks for a workspace beside planned values; leave one out"):
        register(planned=True, workspace=lambda part: 64)


@pytest.mark.parametrize(
    ("question", "answer", "message"),
    [
        ("accepts", 3, "answer of accepts: expected None or a reason, got 3"),
        ("accepts", ZeroDivisionError(), "accepts raised ZeroDivisionError"),
        ("review", {7}, "answer of review: expected None or numbers below 5"),
        ("review", {"a"}, "answer of review: expected None or numbers below 5"),
        ("seconds", -1.0, "answer of seconds: expected 0 or more seconds, got -1.0"),
        ("seconds", float("nan"), "answer of seconds: expected 0 or more seconds, got nan"),
        ("workspace", 1.5, "answer of workspace: expected 0 or more bytes, got 1.5"),
    ],
)
def test_a_fault_names_the_backend(register: Register, question: str, answer: object, message: str) -> None:
    def answers(*asked: object) -> Any:
        if isinstance(answer, Exception):
            raise answer
        return answer

    options: dict[str, Any] = {question: answers}
    register(**options)
    with pytest.raises(fuse_opt.InputError, match=re.escape(f"backend 'parts', {message}")):
        parts_of(CHAIN)


def test_a_build_that_raises_is_an_error(register: Register) -> None:
    register()

    def broken(part: Subgraph) -> Run:
        raise RuntimeError("no such kernel")

    if not has_c_compiler():
        pytest.skip("programs are compiled")
    from fuse_opt.lowering.reference.kernels.partitions import register_partition_build

    register_partition_build("parts", broken)
    with pytest.raises(fuse_opt.InputError, match="backend 'parts' raised RuntimeError: no such kernel; run unfuse"):
        fuse_opt.compile(CHAIN, backend="parts")


def test_backends_without_partitions_are_refused() -> None:
    assert partition_offer("fuse") is None
    with pytest.raises(fuse_opt.InputError, match="'fuse' takes no parts of graphs; expected one of none"):
        fuse_opt.optimize(CHAIN, "partition{backend=fuse}")


@pytest.mark.sampled(6)
@pytest.mark.parametrize("seed", range(40))
def test_random_programs_in_random_orders(register: Register, seed: int) -> None:
    """A backend that takes ops by a hash of their names; the values are those of the program, whatever runs after it."""
    register(
        accepts=lambda site: None if (len(site.name) * 7 + seed) % 3 else "op",
        review=lambda part: [n for n in range(len(part.nodes)) if (n * 5 + seed) % 7 or len(part.nodes) < 3],
        planned=bool(seed % 2),
    )
    rng = random.Random(seed)
    passes = [ALLOW, *random_sequence(rng)]
    for _ in range(2):
        passes.insert(rng.randint(1, len(passes)), "partition{backend=parts}")
    assert pass_fault(Subject.of(text_of(program_of(seed)), seed), passes) == ""
