"""Random tensor programs, and an adversary that runs planned ones in real memory, element by element.

The adversary takes every liberty that lowering has: rows and elements in any order, each value loaded again wherever it
is used, results stored as soon as their values are known, all memory full of garbage before.
"""

from __future__ import annotations

import itertools
import random
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
from xdsl.context import Context
from xdsl.dialects.builtin import DictionaryAttr, IntegerAttr, ModuleOp
from xdsl.dialects.func import FuncOp, ReturnOp
from xdsl.ir import Block, Operation, Region, SSAValue
from xdsl.parser import Parser
from xdsl.passes import ModulePass

from fuse_opt.dialects.analysis.kernel_access import generated_kind, is_library, kernel_access
from fuse_opt.dialects.analysis.kernel_parts import kernel_passes
from fuse_opt.dialects.analysis.loop_body import LoopBody, ScalarNode
from fuse_opt.dialects.analysis.storage import functions_of
from fuse_opt.dialects.fused import NOT_IN_ARENA, KernelOp, YieldOp
from fuse_opt.dialects.interfaces.properties import ints
from fuse_opt.dialects.interfaces.shapes import dtype, shape
from fuse_opt.dialects.interfaces.structured_op import StructuredOp
from fuse_opt.dialects.types.index_expr import Dim, Index
from fuse_opt.lowering.reference.interpreter import evaluate_function
from fuse_opt.lowering.reference.scalar import NUMPY_DTYPES, evaluate_body
from fuse_opt.tools.compiler.registry import register

Array = npt.NDArray[Any]
Env = Mapping[Dim, int]


def context() -> Context:
    ctx = Context()
    register(ctx)
    return ctx


def parse(text: str) -> ModuleOp:
    return Parser(context(), text).parse_module()


def function_of(module: ModuleOp) -> FuncOp:
    """The only function."""
    (function,) = functions_of(module)
    return function


def kernels_of(module: ModuleOp) -> list[KernelOp]:
    """The kernels of the only function, in order."""
    return [op for op in function_of(module).body.block.ops if isinstance(op, KernelOp)]


def apply(module: ModuleOp, *passes: ModulePass) -> ModuleOp:
    for pass_ in passes:
        pass_.apply(context(), module)
    module.verify()
    return module


ALL_OPS = ("unary", "binary", "binary", "binary", "reduce", "reshape", "permute_dims", "matmul")
ROW_OPS = ("unary", "binary", "binary", "binary", "reduce", "reduce", "reshape")
WINDOW_OPS = ("unary", "binary", "binary", "binary", "window", "window", "reduce", "reshape")
SHAPES = ((4, 6), (4, 6), (4, 1), (6,), (24,))
WINDOW_SHAPES = ((4, 6), (4, 5), (4, 3), (4, 1), (6,), (3,), (12,))


def random_program(
    rng: random.Random, count: int, kinds: Sequence[str] = ALL_OPS, shapes: Sequence[tuple[int, ...]] = SHAPES
) -> str:
    """A function of `count` ops on i32, whose sums are the same in every order."""
    types = {f"a{n}": s for n, s in enumerate(shapes)}
    arguments = ", ".join(f"%{n}: {_type(s)}{' {graph.donated}' * rng.randrange(2)}" for n, s in types.items())
    lines = [_random_op(rng, f"v{number}", types, kinds) for number in range(count)]
    returned = rng.choices(list(types), k=rng.randrange(1, 4))
    results = ", ".join(_type(types[name]) for name in returned)
    values = ", ".join(f"%{name}" for name in returned)
    body = "\n  ".join([*lines, f"func.return {values} : {results}"])
    return f"func.func @main({arguments}) -> ({results}) {{\n  {body}\n}}\n"


def _type(extents: Sequence[int]) -> str:
    return f"tensor<{''.join(f'{n}x' for n in extents)}i32>"


def _random_op(rng: random.Random, name: str, types: dict[str, tuple[int, ...]], kinds: Sequence[str]) -> str:
    source = rng.choice(list(types)[-8:] if rng.random() < 0.8 else list(types))
    extents, attributes, operands = types[source], "", [source]
    match rng.choice(kinds):
        case "reduce" if len(extents) == 2:
            op, axis = rng.choice(("sum", "max")), 1 if "permute_dims" not in kinds else rng.choice((1, 1, 0))
            attributes = f" {{axes = array<i64: {axis}>, keepdims = true}}"
            result: tuple[int, ...] = (extents[0], 1) if axis == 1 else (1, extents[1])
        case "window" if extents[-1] > 1:
            op, size, stride = rng.choice(("window_sum", "window_max")), rng.choice((1, 2, 2, 3)), rng.choice((1, 1, 2))
            size = min(size, extents[-1])
            attributes = f" {{window = array<i64: {size}>, strides = array<i64: {stride}>}}"
            result = (*extents[:-1], (extents[-1] - size) // stride + 1)
        case "reshape":
            op = "reshape"
            size = int(np.prod(extents))
            result = rng.choice([(size,), (size, 1), (2, size // 2) if size % 2 == 0 else (size,)])
            attributes = f" {{shape = array<i64: {', '.join(map(str, result))}>}}"
        case "permute_dims" if len(extents) == 2:
            op, result, attributes = "permute_dims", extents[::-1], " {axes = array<i64: 1, 0>}"
        case "matmul" if len(extents) == 2 and rng.random() < 0.4:
            other = [n for n, s in types.items() if len(s) == 2 and s[0] == extents[1]]
            if not other:
                op, result = "negative", extents
            else:
                operands.append(rng.choice(other))
                op, result = "matmul", (extents[0], types[operands[1]][1])
        case "unary":
            op, result = rng.choice(("negative", "abs", "square")), extents
        case _:
            fitting = [n for n, s in types.items() if _broadcasts(s, extents)]
            operands.insert(rng.randrange(2), rng.choice(fitting))
            op, result = rng.choice(("add", "subtract", "multiply", "maximum")), extents
    given = ", ".join(_type(types[n]) for n in operands)
    types[name] = result
    values = ", ".join(f"%{n}" for n in operands)
    return f"%{name} = graph.{op} {values}{attributes} : ({given}) -> {_type(result)}"


def _broadcasts(source: tuple[int, ...], target: tuple[int, ...]) -> bool:
    if len(source) > len(target):
        return False
    return all(a in (1, b) for a, b in zip(source, target[len(target) - len(source) :], strict=True))


def random_arguments(function: FuncOp, rng: random.Random) -> list[Array]:
    generator = np.random.default_rng(rng.randrange(2**32))
    return [generator.integers(-9, 9, shape(a)).astype(NUMPY_DTYPES[dtype(a)]) for a in function.body.block.args]


def arena_entry(function: FuncOp, name: str) -> int:
    """A number of the function's plan."""
    attribute = function.attributes["fused.arena"]
    assert isinstance(attribute, DictionaryAttr)
    entry = attribute.data[name]
    assert isinstance(entry, IntegerAttr)
    return entry.value.data


def run_adversary(function: FuncOp, arguments: Sequence[Array], rng: random.Random) -> list[Array]:
    """The results of a planned function, run in an arena of the planned size."""
    arena: Array = np.full(arena_entry(function, "size"), 0xA5, np.uint8)
    memory: dict[SSAValue, Array] = {}
    for value, array in zip(function.body.block.args, arguments, strict=True):
        memory[value] = array.copy().reshape(-1)
    for op in function.body.block.ops:
        if isinstance(op, ReturnOp):
            return [memory[value].reshape(shape(value)).copy() for value in op.operands]
        if isinstance(op, KernelOp):
            _place_results(op, arena, memory)
            _run_kernel(op, memory, rng)
        elif isinstance(op, StructuredOp) and op.is_alias():
            memory[op.results[0]] = memory[op.operands[0]]
        else:
            memory.update(zip(op.results, _by_reference(op, memory), strict=True))
    raise AssertionError("no func.return")


def _place_results(kernel: KernelOp, arena: Array, memory: dict[SSAValue, Array]) -> None:
    pairs = dict(kernel.inplace_pairs())
    for number, (value, slot) in enumerate(zip(kernel.results, ints(kernel.slots), strict=True)):
        type_ = np.dtype(NUMPY_DTYPES[dtype(value)])
        count = int(np.prod(shape(value)))
        if slot != NOT_IN_ARENA:
            memory[value] = arena[slot : slot + count * type_.itemsize].view(type_)
        elif number in pairs:
            memory[value] = memory[kernel.operands[pairs[number]]]
        else:
            memory[value] = np.full(count * type_.itemsize, 0x5A, np.uint8).view(type_)


def _by_reference(op: Operation, memory: Mapping[SSAValue, Array]) -> list[Array]:
    """The results of one op, computed as a whole."""
    clone = op.clone()
    function = FuncOp("one", ([v.type for v in op.operands], [r.type for r in op.results]))
    clone.operands = function.body.block.args
    function.body.block.add_ops([clone, ReturnOp(*clone.results)])
    given = [memory[value].reshape(shape(value)).copy() for value in op.operands]
    return [array.reshape(-1).copy() for array in evaluate_function(function, given)]


def _run_kernel(kernel: KernelOp, memory: Mapping[SSAValue, Array], rng: random.Random) -> None:
    if is_library(kernel) or kernel_access(kernel).scheme is None:
        for value, array in zip(kernel.results, _by_reference(kernel, memory), strict=True):
            memory[value][...] = array
        return
    _run_generated(kernel, memory, rng)


def _run_generated(kernel: KernelOp, memory: Mapping[SSAValue, Array], rng: random.Random) -> None:
    """Runs the passes of a kernel, the instances of one among those of the others."""
    passes = kernel_passes(kernel, generated_kind(kernel))
    running = [_Adversary(kernel, loop_body, memory, rng).run() for loop_body in passes]
    while running:
        chosen = rng.choice(running)
        if next(chosen, None) is None:
            running.remove(chosen)


class _Adversary:
    def __init__(
        self, kernel: KernelOp, loop_body: LoopBody, memory: Mapping[SSAValue, Array], rng: random.Random
    ) -> None:
        self.loop_body = loop_body
        self.sources = dict[SSAValue, Array]()
        for inside, outside in zip(kernel.block.args, kernel.operands, strict=True):
            self.sources[inside] = memory[outside]
        self.targets = [memory[value] for value in kernel.results]
        self.rng = rng
        self.reduced: dict[ScalarNode, Array] = {}
        self.stage: dict[ScalarNode, int] = {}
        for node in self.loop_body.nodes:
            below = max((self.stage[p] for p in node.operands), default=0)
            self.stage[node] = below + 1 if _combine(node) else below

    def run(self) -> Iterator[bool]:
        """Stops between instances, where others may run."""
        reductions = [node for node in self.loop_body.nodes if _combine(node)]
        loops = dict.fromkeys([self.loop_body.columns, *(node.loop for node in reductions)])
        for row in self._instances(self.loop_body.rows, {}):
            self.reduced = {}
            for stage in range(max(self.stage.values(), default=0) + 1):
                self._store(stage, True, row)
                due = [node for node in reductions if self.stage[node] == stage + 1]
                for loop in loops:
                    for env in self._instances(loop, row):
                        parts = [(p, self._value(p.operands[0], env)) for p in due if p.loop == loop]
                        if loop == self.loop_body.columns:
                            self._store(stage, False, env)
                        for node, part in parts:
                            self._accumulate(node, part)
                        yield True

    def _instances(self, index: Index, outer: Env) -> Iterable[Env]:
        dims = sorted({dim for i in index for dim in i.dims()}, key=lambda dim: dim.name)
        all_ = list(itertools.product(*(range(dim.extent) for dim in dims)))
        self.rng.shuffle(all_)
        return ({**outer, **dict(zip(dims, values, strict=True))} for values in all_)

    def _store(self, stage: int, per_row: bool, env: Env) -> None:
        due = [s for s in self.loop_body.stores if s.per_row == per_row and self.stage[s.node] == stage]
        values = [self._value(store.node, env) for store in due]
        for store, value in zip(due, values, strict=True):
            self.targets[store.result][store.address.evaluate(env)] = value

    def _value(self, node: ScalarNode, env: Env) -> Array:
        if node.op is None:
            return self.sources[node.value][node.address.evaluate(env)]
        if node in self.reduced:
            return self.reduced[node]
        operands = [np.asarray(self._value(p, env)) for p in node.operands]
        axes = [np.asarray(i.evaluate(env)) for i in node.index]
        return np.asarray(evaluate_body(node.op.body(), operands, axes)).astype(NUMPY_DTYPES[dtype(node.value)])

    def _accumulate(self, node: ScalarNode, part: Array) -> None:
        assert node.op is not None
        if node not in self.reduced:
            self.reduced[node] = part
        elif node.op.COMBINE == "add":
            self.reduced[node] = np.asarray(self.reduced[node] + part)
        else:
            assert node.op.COMBINE == "max"
            self.reduced[node] = np.maximum(self.reduced[node], part)


def _combine(node: ScalarNode) -> bool:
    return node.op is not None and bool(node.op.COMBINE)


def as_one_kernel(module: ModuleOp) -> KernelOp:
    """Puts all that the only function computes into one kernel."""
    function = function_of(module)
    block = function.body.block
    *ops, last = list(block.ops)
    inner = Block(arg_types=[value.type for value in block.args])
    for op in ops:
        op.detach()
    inner.add_ops(ops)
    inner.add_op(YieldOp.create(operands=list(last.operands)))
    for outside, inside in zip(block.args, inner.args, strict=True):
        outside.replace_uses_with_if(inside, lambda use: use.operation.parent is inner)
    kernel = KernelOp(block.args, [value.type for value in last.operands], Region(inner))
    last.operands = kernel.results
    block.insert_op_before(kernel, last)
    return kernel


def run_pair(
    kernel: KernelOp, pair: tuple[int, int] | None, arguments: Sequence[Array], rng: random.Random
) -> list[Array]:
    """The results of a generated kernel of which one result is written over one operand."""
    memory: dict[SSAValue, Array] = {}
    for value, array in zip(kernel.operands, arguments, strict=True):
        memory[value] = array.copy().reshape(-1)
    for value in kernel.results:
        memory[value] = np.full(shape(value), 77, NUMPY_DTYPES[dtype(value)]).reshape(-1)
    if pair is not None:
        memory[kernel.results[pair[0]]] = memory[kernel.operands[pair[1]]]
    _run_generated(kernel, memory, rng)
    return [memory[value].reshape(shape(value)) for value in kernel.results]
