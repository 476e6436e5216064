"""Types with sizes against types with numbers: for rows of the op table, inference at sizes is inference at their values."""

from __future__ import annotations

import random
import re
from typing import Any

import numpy as np
import pytest
from graph_op_table import program_text, rows
from ir_testing import context, graph_ops, parse
from xdsl.dialects.builtin import DYNAMIC_INDEX, TensorType, f32
from xdsl.dialects.func import FuncOp
from xdsl.ir import Attribute
from xdsl.utils.exceptions import VerifyException

import fuse_opt
from fuse_opt.dialects.interfaces.op import GraphOp
from fuse_opt.dialects.interfaces.shapes import tensor, tensor_type
from fuse_opt.dialects.interfaces.symbols import argument_symbols
from fuse_opt.dialects.types.encodings import OrderAttr, encoding_of, with_encoding
from fuse_opt.dialects.types.extents import evaluate
from fuse_opt.dialects.types.size import Extent, symbol
from fuse_opt.dialects.types.symbolic_shape import extents_of
from fuse_opt.lowering.reference.interpreter import entry_function
from fuse_opt.tools.compiler.registry import available_passes
from fuse_opt.tools.compiler.specialization import bind
from fuse_opt.tools.source.diagnostics import InputError
from fuse_opt.tools.source.parsing import parse_module
from fuse_opt.tools.source.verification import verify

Tensor = TensorType[Attribute]


def at(type_: Tensor, values: dict[str, int]) -> Tensor:
    numbers = [evaluate(extent, values) for extent in extents_of(type_)]
    return with_encoding(tensor_type(type_.element_type, numbers), encoding_of(type_))


def sized(type_: Tensor, symbols: dict[int, Extent]) -> Tensor:
    return tensor_type(type_.element_type, [symbols.get(n, n) for n in type_.get_shape()])


def carried(op: GraphOp, chosen: list[int], random_: random.Random) -> bool:
    """Whether all sizes of results are known where these extents of operands are symbols; what is known is checked."""
    types = [sized(tensor(value), {n: symbol(f"n{n}") for n in chosen}) for value in op.operands]
    try:
        results = [tensor(result) for result in op.on_types(types).results]
    except VerifyException:
        return False  # it takes no unknown extent there
    if any(DYNAMIC_INDEX in extents_of(type_) for type_ in results):
        return False
    for values in [{f"n{n}": n for n in chosen}, *({f"n{n}": random_.randint(1, 9) for n in chosen} for _ in range(2))]:
        try:
            wanted = op.on_types([at(type_, values) for type_ in types])
        except VerifyException:
            continue  # properties that fit some sizes only: a call with others is refused
        assert [at(type_, values) for type_ in results] == [result.type for result in wanted.results], str(op)
    return True


def test_inference_at_sizes_is_inference_at_numbers() -> None:
    """Of one row in four."""
    sampled = {row.op: row for row in rows()[::4]}
    module = parse(program_text([row.cases()[0] for row in sampled.values()]))
    known, all_names = set[str](), set[str]()
    for number, op in enumerate(graph_ops(module)):
        given = random.Random(number)
        extents = sorted({n for value in op.operands for n in tensor(value).get_shape() if n > 1})
        if not extents or any(encoding_of(value.type) is not None for value in op.operands):
            continue
        draws = [extents, *(given.sample(extents, given.randint(1, len(extents))) for _ in range(2))]
        all_names.add(op.name)
        if all([carried(op, chosen, given) for chosen in draws]):
            known.add(op.name)
    assert len(known) > 0.8 * len(all_names), f"not carried by {sorted(all_names - known)}"


X, Y = "tensor<?x4xf32, #graph.shape<n, 4>>", "tensor<?x4xf32, #graph.shape<2*n + 1, 4>>"
PROGRAM = f"""func.func @main(%x: {X}, %y: {Y}) {{
  %c = graph.concat %x, %y {{axis = 0 : i64}} : ({X}, {Y}) -> TYPE
  func.return
}}"""


@pytest.mark.parametrize(
    ("type_", "message"),
    [
        ("tensor<?x4xf32, #graph.shape<3*n + 1, 4>>", None),
        ("tensor<?x4xf32>", None),
        (
            "tensor<?x4xf32, #graph.shape<3*n, 4>>",
            "expected 'tensor<.x4xf32, #graph.shape<3.n . 1, 4>>' as its operands give",
        ),
        ("tensor<7x4xf32>", "result 0: expected"),
        ("tensor<?x4xf32, #graph.shape<3*n + 1>>", "expected sizes of 2 axes, got 1"),
        (
            "tensor<?x4xf32, #graph.shape<3*n + 1, 5>>",
            "expected '4' as the extent of axis 1, as the type has it, got '5'",
        ),
        ("tensor<?x4xf32, #graph.shape<7, 4>>", "expected a size that is no number"),
        ("tensor<?x4xf32, #graph.shape<n - 2, 4>>", "expected sizes that are never negative, got 'n - 2'"),
        ("tensor<?x4xf32, #graph.shape<n{least = 5, most = 4}, 4>>", "symbol 'n': no number from 5 to 4"),
        ("tensor<?x4xf32, #graph.shape<n{least = -1}, 4>>", "symbol 'n': expected a least value of 0 or more"),
        ("tensor<?x4xf32, #graph.shape<n{size = 1}, 4>>", "expected each of least, most, multiple, typical"),
        ("tensor<?x4xf32, #graph.shape<n*n{most = 4}, 4>>", "expected one range of symbol 'n'"),
        ("tensor<?x4xf32, #graph.shape<n floordiv 0, 4>>", "expected a divisor of 1 or more"),
        ("tensor<?x4xf32, #graph.shape<, 4>>", "expected a size: a number, a symbol"),
    ],
)
def test_types_say_what_follows(type_: str, message: str | None) -> None:
    text = PROGRAM.replace("TYPE", type_)
    if message is None:
        verify(parse_module(text, "text", context()))
        return
    with pytest.raises(Exception, match=message):
        verify(parse_module(text, "text", context()))


def test_texts_of_sizes_are_read_again() -> None:
    q = symbol("past len", 0, 64, 8, 16)
    n, max_ = symbol("n"), symbol("max")
    for size in (q, q * n + 3, (q + 3) // 16 * n, n // 2 + 1, symbol("a.b") * max_, 4 * (n * n // 3), q // 8):
        type_ = tensor_type(f32, [size, 4])
        module = parse_module(f"func.func private @f({type_}) -> ()", "text", context())
        (function,) = module.body.block.ops
        assert isinstance(function, FuncOp)
        (read,) = function.function_type.inputs.data
        assert read == type_ and str(read) == str(type_)


def test_sizes_and_orders_are_parts_of_one_encoding() -> None:
    type_ = tensor_type(f32, [symbol("n"), 4])
    both = with_encoding(type_, OrderAttr.of((1, 0)))
    assert str(both) == "tensor<?x4xf32, #graph.encoding<#graph.shape<n, 4>, #graph.order<1, 0>>>"
    assert (
        encoding_of(both) == OrderAttr.of((1, 0)) and encoding_of(type_) is None and with_encoding(both, None) == type_
    )


NAMED = """func.func @main(%x: tensor<?x4xf32> {graph.dims = ["n", ""]}, %y: tensor<?x4xf32>, %z: tensor<?x?xf32>)
    -> tensor<?xf32> attributes {ATTRIBUTES} {
  %a = graph.add %x, %y : (tensor<?x4xf32>, tensor<?x4xf32>) -> tensor<?x4xf32>
  %b = graph.multiply %a, %z : (tensor<?x4xf32>, tensor<?x?xf32>) -> tensor<?x4xf32>
  %c = graph.concat %b, %x {axis = 0 : i64} : (tensor<?x4xf32>, tensor<?x4xf32>) -> tensor<?x4xf32>
  %d = graph.reshape %c {shape = array<i64: -1>} : (tensor<?x4xf32>) -> tensor<?xf32>
  func.return %d : tensor<?xf32>
}"""


@pytest.mark.parametrize(
    ("attributes", "message"),
    [
        ("graph.symbols = {n = {least = 3, most = 2}}", "symbol 'n': no number from 3 to 2"),
        ("graph.symbols = {n = {least = -3}}", "symbol 'n': expected a least value of 0 or more"),
        ("graph.symbols = {n = {size = 3}}", "symbol 'n': expected a dictionary of integers least, most"),
        ("graph.symbols = {m = {most = 3}}", "no argument has an extent 'm'"),
        ("graph.symbols = [3]", "expected a dictionary of symbols"),
        ('graph.equal = [["k", "m"]]', "no argument has one of the extents"),
        ('graph.equal = ["k"]', "expected groups of names"),
    ],
)
def test_attributes_of_functions_are_checked(attributes: str, message: str) -> None:
    with pytest.raises(VerifyException, match=message):
        verify(parse_module(NAMED.replace("ATTRIBUTES", attributes), "text", context()))


@pytest.mark.parametrize(
    ("types", "message"),
    [
        ("tensor<?xf32, #graph.shape<2*n>>", "symbol 'n' is no extent of an argument by itself"),
        ("tensor<?x?xf32, #graph.shape<n, n{most = 4}>>", "expected one range of symbol 'n'"),
        ("tensor<?xf32, #graph.shape<n>>, %y: tensor<?xf32, #graph.shape<n{most = 4}>>", "expected one range"),
    ],
)
def test_symbols_are_brought_by_arguments(types: str, message: str) -> None:
    with pytest.raises(Exception, match=message):
        verify(parse_module(f"func.func @main(%x: {types}) {{\n  func.return\n}}", "text", context()))


def without_text(text: str) -> str:
    return re.sub(r", #graph.shape<[^>]*>", "", text)


def outcome(text: str, name: str) -> str:
    """The module after a pass, or the refusal, without sizes."""
    try:
        return without_text(str(fuse_opt.optimize(text, name)))
    except InputError as error:
        return without_text(str(error.message))


def test_passes_do_with_sizes_what_they_do_without() -> None:
    sizes = str(
        fuse_opt.optimize(NAMED.replace("ATTRIBUTES", "graph.symbols = {n = {most = 9}}"), "infer-shapes{symbols=true}")
    )
    assert (
        "tensor<?xf32, #graph.shape<8*n{most = 9}>>" in sizes and 'graph.equal = [["n", "y.0"], ["n", "z.0"]]' in sizes
    )
    for name in available_passes():
        assert outcome(sizes, name) == outcome(without_text(sizes), name), name


def test_arguments_of_one_name_have_extents_of_their_own() -> None:
    module = parse(
        "func.func @main(%x: tensor<?xf32>, %y: tensor<?xf32>) -> tensor<?xf32> {\n  func.return %x : tensor<?xf32>\n}"
    )
    function = entry_function(module)
    for value in function.body.block.args:
        value.name_hint = "x"
    assert argument_symbols(function) == [["x.0"], ["arg1.0"]]
    assert bind(function, {0: [3], 1: [2**40]}) == {"x.0": 3, "arg1.0": 2**40}


def test_calls_are_checked_by_name() -> None:
    text = NAMED.replace("ATTRIBUTES", "graph.symbols = {n = {least = 0, most = 9}}")
    program = fuse_opt.compile(fuse_opt.optimize(text, "infer-shapes{symbols=true}"), "reference")
    plain = fuse_opt.compile(text, "reference")

    def arguments(n: int, m: int) -> list[Any]:
        return [np.full((rows, 4), 1.5, np.float32) for rows in (n, n, m)]

    for n in (0, 1, 5):
        np.testing.assert_array_equal(program(*arguments(n, n)), plain(*arguments(n, n)))
    function = entry_function(program.module)
    for shapes, message in [
        (
            {0: [3, 4], 1: [2, 4], 2: [3, 4]},
            "extent 'n': argument 0, axis 0 has 3, argument 1, axis 0 has 2; they must be equal",
        ),
        ({0: [10, 4], 1: [10, 4], 2: [10, 4]}, "extent 'n': argument 0, axis 0 has 10; expected 0 to 9"),
    ]:
        with pytest.raises(ValueError, match=message):
            bind(function, shapes)
    sized = parse(f"func.func @main(%x: {X}, %y: {Y}) {{\n  func.return\n}}")
    with pytest.raises(ValueError, match=r"extent '2\*n \+ 1': argument 1, axis 0 has 8; expected 7 with 'n' 3"):
        bind(entry_function(sized), {0: [3, 4], 1: [8, 4]})
    unequal = NAMED.replace("ATTRIBUTES", 'graph.equal = [["n", "y.0"]]')
    with pytest.raises(ValueError, match="extents 'n' and 'y.0': argument 0, axis 0 has 3, argument 1, axis 0 has 4"):
        bind(entry_function(parse(unequal)), {0: [3, 4], 1: [4, 4], 2: [3, 4]})
