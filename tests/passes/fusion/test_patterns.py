"""Patterns of a person's own: what matches, which match wins, what is refused and why, and what is wrong with a file."""

from __future__ import annotations

import re
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from draws import draws
from ir_testing import (
    CONTEXT,
    apply,
    assert_same_bits,
    evaluate,
    kernels,
    op_names,
    parse,
    random_arguments,
    text_of,
)
from program_generator import random_program

from fuse_opt.passes.decisions.steering import limit_fuel, record_decisions, replay_decisions
from fuse_opt.passes.fusion.patterns.fuse_patterns import FusePatternsPass
from fuse_opt.passes.remarks import RefusedError, Remark, collect, location
from fuse_opt.tools.commands.fuse_opt_main import main
from fuse_opt.tools.compiler.pipeline import run_pipeline
from fuse_opt.tools.compiler.registry import make_context

ROOT = Path(__file__).resolve().parents[3]
PATTERNS = ROOT / "examples" / "patterns"
TANH = str(PATTERNS / "tanh.pdl.mlir")
DOCS = (ROOT / "docs" / "patterns.md").read_text()
FENCE = re.compile(r"```(\w+)\n(.*?)```", re.DOTALL)

T = "tensor<8xf32>"
Capture = pytest.CaptureFixture[str]
Patch = pytest.MonkeyPatch


def program(*lines: str, arguments: str = "xyz") -> str:
    """A function of vectors; a line `a = add b c` is an op, the last one names the results."""
    *ops, results = lines
    text = [f"func.func @main({', '.join(f'%{name}: {T}' for name in arguments)}) -> ({types(results.split())}) {{"]
    for line in ops:
        result, _, name, *rest = line.split()
        operands, attributes = [r for r in rest if r[0] != "{"], [r for r in rest if r[0] == "{"]
        used = ", ".join(f"%{operand}" for operand in operands)
        text.append(f"  %{result} = graph.{name} {used} {' '.join(attributes)} : ({types(operands)}) -> {T}")
    returned = ", ".join(f"%{name}" for name in results.split())
    return "\n".join([*text, f"  func.return {returned} : {types(results.split())}\n}}"])


def types(names: Sequence[str]) -> str:
    return ", ".join(T for _ in names)


def chain(name: str, benefit: int, *ops: str) -> str:
    """A pattern: each op reads the one before it, with other operands behind it where the name ends in 2."""
    text = [f"pdl.pattern @{name} : benefit({benefit}) {{", "  %t = pdl.type", "  %r0 = pdl.operand"]
    for number, op in enumerate(ops):
        second = op.endswith("2")
        text += [f"  %s{number} = pdl.operand"] * second
        operands = f"%r{number}, %s{number} : !pdl.value, !pdl.value" if second else f"%r{number} : !pdl.value"
        text.append(f'  %o{number} = pdl.operation "graph.{op.rstrip("2")}"({operands}) -> (%t : !pdl.type)')
        text += [f"  %r{number + 1} = pdl.result 0 of %o{number}"] * (number < len(ops) - 1)
    return "\n".join([*text, f'  pdl.rewrite %o{len(ops) - 1} with "fuse"\n}}\n'])


class Fused:
    """What the patterns of a file did to a program: its kernels, by the names of their ops, and the remarks."""

    def __init__(self, path: Path, text: str, patterns: str, before: str = "", **options: Any) -> None:
        file = path / "patterns.mlir"
        file.write_text(patterns)
        self.pass_ = FusePatternsPass(file=str(file), **options)
        module = parse(text)
        module = apply(module, before) if before else module
        with collect() as self.remarks:
            self.module = apply(module, [self.pass_])
        self.kernels = [" ".join(op_names(kernel.ops())) for kernel in kernels(self.module)]
        once = text_of(self.module)
        assert text_of(apply(self.module, [self.pass_])) == once, "not idempotent"

    def refusals(self) -> list[Remark]:
        return [remark for remark in self.remarks if remark.code not in ("match", "fused", "rounds")]

    def codes(self) -> list[str]:
        return [remark.code for remark in self.refusals()]


TANH_CHAIN = program("a = multiply x y", "b = tanh a", "c = add b z", "d = exp c", "d")


def test_only_what_matches_is_fused(tmp_path: Path) -> None:
    fused = Fused(tmp_path, TANH_CHAIN, chain("p", 1, "multiply2", "tanh", "add2"))
    assert fused.kernels == ["multiply tanh add"]
    assert not fused.refusals()
    matched = [str(remark) for remark in fused.remarks if remark.code == "match"]
    assert matched[0].endswith("'graph.add' is the root of a match of 'p', with 'graph.multiply', 'graph.tanh'")
    other = program("a = multiply x y", "b = tanh a", "c = add z b", "c")
    assert Fused(tmp_path, other, chain("p", 1, "multiply2", "tanh", "add2")).kernels == [], "operands are in order"


def test_benefit_then_the_order_of_the_file_decides(tmp_path: Path) -> None:
    front, back = ("multiply2", "tanh"), ("tanh", "add2")
    fused = Fused(tmp_path, TANH_CHAIN, chain("front", 1, *front) + chain("back", 2, *back))
    assert fused.kernels == ["tanh add"]
    (refusal,) = fused.refusals()
    assert refusal.code == "overlap" and refusal.flip == "a benefit above that of 'back'"
    assert refusal.message == (
        "not fused with 'graph.multiply' by pattern 'front': pattern 'back' came first, with 'graph.add'"
    )
    assert Fused(tmp_path, TANH_CHAIN, chain("front", 2, *front) + chain("back", 2, *back)).kernels == ["multiply tanh"]


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ({"disable_patterns": ("back",)}, ["multiply tanh"]),
        ({"enable_patterns": ("front",)}, ["multiply tanh"]),
        ({"disable_patterns": ("front",)}, ["tanh add"]),
        ({"disable_patterns": ("front", "back")}, []),
        ({"except_": ("add",)}, ["multiply tanh"]),
        ({"max_ops": 1}, []),
        ({"fuel": 0}, []),
    ],
)
def test_options_choose_patterns(tmp_path: Path, options: dict[str, Any], expected: list[str]) -> None:
    patterns = chain("front", 1, "multiply2", "tanh") + chain("back", 2, "tanh", "add2")
    assert Fused(tmp_path, TANH_CHAIN, patterns, **options).kernels == expected


def test_leaving_a_pattern_out_changes_only_its_matches(tmp_path: Path) -> None:
    text = program("a = exp x", "b = exp a", "c = sqrt b", "d = tanh c", "e = tanh d", "e")
    patterns = chain("exps", 1, "exp", "exp") + chain("tanhs", 1, "tanh", "tanh")
    assert Fused(tmp_path, text, patterns).kernels == ["exp exp", "tanh tanh"]
    assert Fused(tmp_path, text, patterns, disable_patterns=("tanhs",)).kernels == ["exp exp"]


def test_a_larger_match_takes_in_a_kernel_and_does_not_tear_one(tmp_path: Path) -> None:
    small, large = chain("small", 2, "tanh", "add2"), chain("large", 1, "multiply2", "tanh", "add2")
    assert Fused(tmp_path, TANH_CHAIN, small + large).kernels == ["multiply tanh add"]
    assert Fused(tmp_path, TANH_CHAIN, large, before=f"fuse-patterns{{file={quoted(tmp_path, small)}}}").kernels == [
        "multiply tanh add"
    ]
    torn = Fused(tmp_path, TANH_CHAIN, small, before="fuse-elementwise{max-ops=2}")
    assert torn.kernels == ["multiply tanh", "add exp"]
    assert torn.codes() == ["overlap"] and torn.refusals()[0].flip == "--unfuse before"
    assert not Fused(tmp_path, TANH_CHAIN, small, before="fuse-elementwise").refusals(), "in one kernel already"


def quoted(folder: Path, patterns: str) -> str:
    file = folder / "before.mlir"
    file.write_text(patterns)
    return f'"{file}"'


def test_of_two_matches_that_exclude_each_other_the_first_by_priority_wins(tmp_path: Path) -> None:
    """Each is convex alone; x depends on a and feeds d, y depends on c and feeds b: both together are a cycle."""
    text = program("a = exp x", "c = tanh y", "p = sqrt a", "q = abs c", "b = add a q", "d = multiply c p", "b d")
    exp, tanh = chain("exp_add", 1, "exp", "add2"), chain("tanh_multiply", 2, "tanh", "multiply2")
    fused = Fused(tmp_path, text, exp + tanh)
    assert fused.kernels == ["tanh multiply"] and fused.codes() == ["cycle"]
    fused = Fused(tmp_path, text, exp.replace("benefit(1)", "benefit(3)") + tanh)
    assert fused.kernels == ["exp add"] and fused.codes() == ["cycle"]


@pytest.mark.parametrize(
    ("ops", "code"),
    [
        (("a = tanh x", "s = sqrt a", "b = add a s", "b"), "cycle"),
        (("a = tanh x {no_fuse}", "b = add a y", "b"), "no-fuse"),
        (("a = tanh x {stop_fusion}", "b = add a y", "b"), "stop-fusion"),
        (('a = tanh x {fuse_group="g"}', 'b = add a y {fuse_group="h"}', "b"), "fuse-group"),
        (("a = tanh x", "b = add a y", "a"), "unused"),
    ],
)
def test_refused_with_a_reason(tmp_path: Path, ops: tuple[str, ...], code: str) -> None:
    fused = Fused(tmp_path, program(*ops), chain("p", 1, "tanh", "add2"))
    assert fused.kernels == [] and fused.codes() == [code]
    (refusal,) = fused.refusals()
    assert "by pattern 'p': " in refusal.message and refusal.flip


def test_what_would_run_op_by_op_is_refused(tmp_path: Path) -> None:
    text = """
    func.func @main(%x: tensor<4x4xf32>) -> (tensor<4xf32>, tensor<4x4xf32>, tensor<4x4xf32>) {
      %0 = graph.sum %x {axes = array<i64: 1>, keepdims = true} : (tensor<4x4xf32>) -> tensor<4x1xf32>
      %1 = graph.subtract %x, %0 : (tensor<4x4xf32>, tensor<4x1xf32>) -> tensor<4x4xf32>
      %2 = graph.sum %1 {axes = array<i64: 0>} : (tensor<4x4xf32>) -> tensor<4xf32>
      %3 = graph.matmul %x, %x : (tensor<4x4xf32>, tensor<4x4xf32>) -> tensor<4x4xf32>
      %4 = graph.relu %3 : (tensor<4x4xf32>) -> tensor<4x4xf32>
      %5 = graph.softmax %x : (tensor<4x4xf32>) -> tensor<4x4xf32>
      %6 = graph.relu %5 : (tensor<4x4xf32>) -> tensor<4x4xf32>
      func.return %2, %4, %6 : tensor<4xf32>, tensor<4x4xf32>, tensor<4x4xf32>
    }"""
    columns = """pdl.pattern : benefit(1) {
      %x = pdl.operands
      %t = pdl.types
      %u = pdl.types : [tensor<4xf32>]
      %a = pdl.attribute = array<i64: 1>
      %0 = pdl.operation "graph.sum"(%x : !pdl.range<value>) {"axes" = %a} -> (%t : !pdl.range<type>)
      %1 = pdl.result 0 of %0
      %2 = pdl.operation (%x, %1 : !pdl.range<value>, !pdl.value) -> (%v : !pdl.range<type>)
      %v = pdl.types
      %3 = pdl.result 0 of %2
      %4 = pdl.operation "graph.sum"(%3 : !pdl.value) -> (%u : !pdl.range<type>)
      pdl.rewrite %4 with "fuse"
    }"""
    fused = Fused(tmp_path, text, columns)
    assert fused.codes() == ["nested-reduction"] and "by pattern 'pattern#0'" in fused.refusals()[0].message
    assert Fused(tmp_path, text, chain("p", 1, "matmul2", "relu")).codes() == ["opaque"]
    assert Fused(tmp_path, text, chain("p", 1, "softmax", "relu")).kernels == ["softmax relu"], "composites are fusable"


def test_attributes_and_types_are_compared(tmp_path: Path) -> None:
    text = """
    func.func @main(%x: tensor<4x4xf32>) -> tensor<4xf32> {
      %0 = graph.exp %x : (tensor<4x4xf32>) -> tensor<4x4xf32>
      %1 = graph.sum %0 {axes = array<i64: 1>} : (tensor<4x4xf32>) -> tensor<4xf32>
      func.return %1 : tensor<4xf32>
    }"""
    pattern = """pdl.pattern @p : benefit(1) {
      %x = pdl.operand : %wanted
      %wanted = pdl.type : tensor<4x4xf32>
      %u = pdl.type
      %a = pdl.attribute = array<i64: 1>
      %0 = pdl.operation "graph.exp"(%x : !pdl.value) -> (%wanted : !pdl.type)
      %1 = pdl.result 0 of %0
      %2 = pdl.operation "graph.sum"(%1 : !pdl.value) {"axes" = %a} -> (%u : !pdl.type)
      pdl.rewrite %2 with "fuse"
    }"""
    assert Fused(tmp_path, text, pattern).kernels == ["exp sum"]
    assert Fused(tmp_path, text, pattern.replace("i64: 1", "i64: 0")).kernels == []
    assert Fused(tmp_path, text, pattern.replace(": tensor<4x4xf32>", ": tensor<4x4xf64>")).kernels == []
    assert Fused(tmp_path, text, pattern.replace('"axes"', '"axis"')).kernels == []


ANY = """
pdl.pattern @unary : benefit(BENEFIT) {
  %x = pdl.operand
  %t = pdl.types
  %u = pdl.types
  %0 = pdl.operation (%x : !pdl.value) -> (%t : !pdl.range<type>)
  %1 = pdl.result 0 of %0
  %2 = pdl.operation (%1 : !pdl.value) -> (%u : !pdl.range<type>)
  pdl.rewrite %2 with "fuse"
}
pdl.pattern @first : benefit(3) {
  %x = pdl.operands
  %y = pdl.operand
  %t = pdl.types
  %u = pdl.types
  %0 = pdl.operation (%x : !pdl.range<value>) -> (%t : !pdl.range<type>)
  %1 = pdl.result 0 of %0
  %2 = pdl.operation (%1, %y : !pdl.value, !pdl.value) -> (%u : !pdl.range<type>)
  pdl.rewrite %2 with "fuse"
}
pdl.pattern @chain : benefit(2) {
  %x = pdl.operands
  %y = pdl.operands
  %z = pdl.operands
  %t = pdl.types
  %0 = pdl.operation (%x : !pdl.range<value>) -> (%t : !pdl.range<type>)
  %1 = pdl.result 0 of %0
  %2 = pdl.operation (%1, %y : !pdl.value, !pdl.range<value>) -> (%t : !pdl.range<type>)
  %3 = pdl.result 0 of %2
  %4 = pdl.operation (%z, %3 : !pdl.range<value>, !pdl.value) -> (%t : !pdl.range<type>)
  pdl.rewrite %4 with "fuse"
}
"""


def test_laws_decisions_and_fuel_on_random_programs(tmp_path: Path) -> None:
    """Patterns of any ops: they match everywhere, overlap, and make cycles."""
    states, made = ("", "fuse-elementwise,fuse-row", "decompose"), 0
    for seed in draws(8):
        text = text_of(apply(random_program(seed), states[seed % 3]) if seed % 3 else random_program(seed))
        module = parse(text)
        arguments = random_arguments(module, seed)
        values = evaluate(module, arguments)
        with record_decisions() as decisions:
            fused = Fused(tmp_path, text, ANY.replace("BENEFIT", str(1 + seed % 4)))
        once = text_of(fused.module)
        assert_same_bits(evaluate(fused.module, arguments), values, f"(seed {seed})")
        with replay_decisions(decisions):
            assert text_of(apply(parse(text), [fused.pass_])) == once, f"seed {seed}"
        with limit_fuel(len(decisions) // 2), record_decisions() as fewer:
            assert_same_bits(evaluate(apply(parse(text), [fused.pass_]), arguments), values, f"(seed {seed})")
        assert fewer == decisions[: len(decisions) // 2]
        made += len(decisions)
    assert made > 15


def test_matching_is_linear() -> None:
    """Roots are found by name; a long chain in which every fifth op is a root."""
    names = ["multiply", "tanh", "add", "exp", "exp"]
    lines = [f"v{k} = {names[k % 5]} v{k - 1}" + " x" * (k % 5 in (0, 2)) for k in range(1, 2501)]
    module = parse(program(*lines, "v2500", arguments="x").replace("%v0", "%x"))
    start = time.process_time()
    FusePatternsPass(file=TANH).apply(CONTEXT, module)
    assert time.process_time() - start < 5
    assert len(kernels(module)) == 500


PAIRS = """
from fuse_opt.passes.fusion.patterns import Refusal
class Rule:
    def consider(self, graph, producer, consumer):
        {body}
rule = Rule
"""
LAZY = """\
class Lazy:
    def __getattr__(self, name):
        if name == "{name}": raise ValueError(f"asked for {{name}}")
        return lambda *groups: None
"""
SILENT = """\
class Silent(Exception):
    def __str__(self): raise AttributeError("no text")
    __repr__ = __str__
class Members(list):
    def __iter__(self): raise AttributeError("no members")
"""


def write(folder: Path, text: str, name: str = "rule.py") -> str:
    (folder / name).write_text(text)
    return str(folder / name)


def test_a_rule_in_python_fuses_only_its_chains() -> None:
    text = program("a = exp x", "b = exp a", "c = exp b", "d = tanh c", "e = exp d", "e")
    module = apply(parse(text), [FusePatternsPass(file=str(PATTERNS / "exp_chains.py"))])
    assert [" ".join(op_names(kernel.ops())) for kernel in kernels(module)] == ["exp exp exp"]
    assert len((PATTERNS / "exp_chains.py").read_text().splitlines()) < 20
    off = FusePatternsPass(file=str(PATTERNS / "exp_chains.py"), disable_patterns=("exp-chains",))
    assert not kernels(apply(parse(text), [off]))


def test_a_rule_may_be_a_dataclass_refuse_and_offer_partners(tmp_path: Path) -> None:
    file = write(
        tmp_path,
        "from __future__ import annotations\nfrom dataclasses import dataclass\n"
        "from fuse_opt.passes.fusion.engine.group_graph import Group, Refusal\n@dataclass\nclass Siblings:\n    least: int = 1\n"
        "    def partners(self, graph, group):\n"
        "        return [other for p in group.producers for other in p.consumers]\n"
        "    def consider(self, graph, one, other):\n"
        "        if one.count + other.count > 2:\n"
        "            return Refusal('large', 'more than two', {'ops': one.count + other.count})\n"
        "        return [one, other]\nRULE = Siblings(2)\n",
    )
    text = program("a = exp x", "b = sqrt a", "c = abs a", "d = tanh a", "b c d")
    with collect() as remarks:
        module = apply(parse(text), [FusePatternsPass(file=file)])
    assert [op_names(kernel.ops()) for kernel in kernels(module)] == [["sqrt", "abs"]]
    assert "large" in [remark.code for remark in remarks]


@pytest.mark.parametrize(
    ("source", "line", "message"),
    [
        ("x = 1\nrule = (\n", 2, r"'\(' was never closed"),
        ("\n\nx = 1 / 0\n", 3, "the file raised ZeroDivisionError: division by zero"),
        ("import sys\nsys.exit(3)\n", 2, "the file raised SystemExit: 3"),
        ("import no_such_module\n", 1, "the file raised ModuleNotFoundError"),
        (f"{LAZY.format(name='consider')}rule = Lazy()\n", 3, "the file raised ValueError: asked for consider"),
        (f"{LAZY.format(name='partners')}rule = Lazy()\n", 3, "the file raised ValueError: asked for partners"),
        (f"{LAZY.format(name='name')}rule = Lazy()\n", 3, "the file raised ValueError: asked for name"),
        (SILENT + PAIRS.format(body="raise Silent"), 10, "rule 'Rule' raised Silent, asked about"),
        (SILENT + PAIRS.format(body="return Silent()"), 9, "expected two or more groups.* got Silent$"),
        (SILENT + PAIRS.format(body="return Members([producer, consumer])"), 5, "raised AttributeError: no members"),
        (
            PAIRS.format(body="return Refusal('no', 'no', {'a': object()})"),
            4,
            "answer of consider: expected two or more",
        ),
        (PAIRS.format(body="return Refusal('no', 'no', flip=3)"), 4, "answer of consider: expected two or more"),
        ("x = 1\n", 1, "expected a rule named 'rule'"),
        ("class R:\n    pass\nrule = R()\n", 1, "rule 'R': expected a method consider"),
        (PAIRS.format(body="return producer.size"), 5, "rule 'Rule' raised AttributeError.* about 'graph.tanh' and"),
        (PAIRS.format(body="return True"), 4, "rule 'Rule', answer of consider: .* got bool True"),
        (PAIRS.format(body="return [producer, producer]"), 4, "expected two or more groups"),
        (PAIRS.format(body="return [producer, consumer.first]"), 4, r"got \[Group, MultiplyOp\]"),
        (PAIRS.format(body="return Refusal(1, 2)"), 4, "got Refusal"),
        (PAIRS.replace("consider(self, graph,", "consider(").format(body="pass"), 4, "raised TypeError"),
        (PAIRS.format(body="pass") + "rule.partners = lambda self, graph, group: [1]\n", 4, "answer of partners"),
        (PAIRS.format(body="pass") + "rule.partners = lambda self, graph, group: 1\n", 4, "raised TypeError"),
        ("x = '\x00'\n", 1, "null bytes"),
    ],
)
def test_mistakes_in_rules_are_one_located_error(tmp_path: Path, source: str, line: int, message: str) -> None:
    file = write(tmp_path, source)
    with pytest.raises(RefusedError, match=message) as raised:
        apply(parse(program("a = tanh x", "b = multiply a y", "b")), [FusePatternsPass(file=file)])
    place = location(raised.value.op)
    assert place.startswith(f"{file}:{line}:"), place


PATTERN = chain("p", 1, "tanh", "add2")


@pytest.mark.parametrize(
    ("patterns", "line", "message"),
    [
        ("", 1, "expected at least one 'pdl.pattern', got none"),
        ("// nothing\n", 1, "expected at least one 'pdl.pattern', got none"),
        ("\npdl.pattern @p benefit(1) {}", 2, "Expected ':'"),
        ("func.func private @f()", 1, "expected 'pdl.pattern', got 'func.func'"),
        (PATTERN + PATTERN, 10, "there are two patterns 'p'; rename one"),
        (PATTERN.replace("graph.tanh", "graph.tahn"), 4, "has no operation 'graph.tahn'; did you mean 'graph.tan"),
        (PATTERN.replace('"fuse"', '"fold"'), 8, "expected 'pdl.rewrite %root with \"fuse\"'"),
        (PATTERN.replace("rewrite %o1", "rewrite %o0"), 7, "from the root through operands"),
        (PATTERN.replace("(%r0 :", "(%undefined :"), 4, "%undefined"),
        (chain("p", 1, "tanh"), 1, "expected two or more of 'pdl.operation', got one"),
        (
            PATTERN.replace("  pdl.rew", '  pdl.apply_native_constraint "f"(%t : !pdl.type)\n  pdl.rew'),
            8,
            "'pdl.apply_native_constraint' is not supported",
        ),
    ],
)
def test_mistakes_in_patterns_are_one_located_error(tmp_path: Path, patterns: str, line: int, message: str) -> None:
    file = write(tmp_path, patterns, "p.mlir")
    with pytest.raises(RefusedError, match=re.escape(message)) as raised:
        apply(parse(TANH_CHAIN), [FusePatternsPass(file=file)])
    assert location(raised.value.op).startswith(f"{file}:{line}:"), location(raised.value.op)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ("file=no/such.py", "cannot read 'no/such.py': No such file or directory"),
        ("file=examples/patterns/README.txt", "cannot read"),
        ("file=pyproject.toml", "expected a .mlir file of pdl.pattern or a .py file with a rule, got 'pyproject.toml'"),
        ("file=examples/patterns/tanh.pdl.mlir,disable-patterns=tanh", "no 'tanh' in .*; did you mean 'tanh_add'?"),
        ("file=examples/patterns/exp_chains.py,enable-patterns=x", "no 'x' in .*; it has exp-chains"),
    ],
)
def test_mistakes_on_the_command_line(
    options: str, message: str, capsys: Capture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(ROOT)
    assert main(["examples/patterns/activations.mlir", f"--fuse-patterns={options}"]) == 1
    captured = capsys.readouterr()
    assert captured.out == "" and re.search(message, captured.err)
    assert len(captured.err.splitlines()) == 1 and ": error: " in captured.err


def test_a_rule_that_raises_is_one_line_on_the_command_line(tmp_path: Path, capsys: Capture) -> None:
    file = write(tmp_path, PAIRS.format(body="return 1 / 0"))
    assert main([str(PATTERNS / "activations.mlir"), f"--fuse-patterns=file={file}"]) == 1
    assert capsys.readouterr().err.startswith(f"{file}:5:16: error: rule 'Rule' raised ZeroDivisionError: ")


def test_documented_output_is_real(capsys: Capture, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(ROOT)
    command = "examples/patterns/activations.mlir --fuse-patterns=file=examples/patterns/tanh.pdl.mlir --remarks"
    assert f"fuse-opt {command}\n" in DOCS
    assert main(command.split()) == 0
    errors = capsys.readouterr().err
    shown = next(text for kind, text in FENCE.findall(DOCS) if kind == "text").splitlines()
    assert len(shown) == 2 and all(line in errors.splitlines() for line in shown)


def test_documented_files_are_real_and_the_pass_in_python_runs(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(ROOT)
    examples = {kind: [text for k, text in FENCE.findall(DOCS) if k == kind] for kind in ("mlir", "python")}
    assert examples["mlir"][0] in (PATTERNS / "tanh.pdl.mlir").read_text()
    rule, package = examples["python"]
    assert rule == (PATTERNS / "exp_chains.py").read_text()
    names: dict[str, object] = {"__name__": "documented"}
    exec(compile(package, "docs/patterns.md", "exec", dont_inherit=True), names)
    found = kernels(names["module"])  # pyright: ignore[reportArgumentType]
    assert found and all(len(kernel.ops()) == 2 for kernel in found)


FOREIGN = """\
from fuse_opt.passes.fusion.engine.worklist import FusionPass
class Rule:
    def consider(self, graph, producer, consumer):
        return producer.size
class ForeignPass(FusionPass):
    name = "fuse-foreign"
    def rule(self):
        return Rule()
"""


def test_a_fault_in_a_pass_of_somebody_else_is_located_in_its_file(tmp_path: Path, monkeypatch: Patch) -> None:
    file = write(tmp_path, FOREIGN, "foreign_rule.py")
    monkeypatch.setattr(sys, "path", [str(tmp_path), *sys.path])
    foreign: Any = __import__("foreign_rule")
    with pytest.raises(RefusedError, match="pass 'fuse-foreign' raised AttributeError: 'Group' object") as raised:
        run_pipeline(parse(program("a = exp x", "b = exp a", "b")), [foreign.ForeignPass()], make_context())
    assert location(raised.value.op) == f"{file}:4:16"
