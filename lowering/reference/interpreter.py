"""The reference evaluator: runs a module of tensor-level IR at any stage, op by op, with NumPy.

Values are freed at their last use. There is no recursion over the graph; kernels run op by op like the rest, so fusing,
in-place and planning decisions cannot change a result here: a pass is right when the reference agrees before and after.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from math import prod
from typing import TypeAlias, cast

import numpy as np
from xdsl.dialects.builtin import DYNAMIC_INDEX, DenseIntOrFPElementsAttr, ModuleOp, TensorType
from xdsl.dialects.func import FuncOp, ReturnOp
from xdsl.ir import Attribute, Block, Operation, SSAValue
from xdsl.utils.exceptions import VerifyException

from fuse_opt.dialects.analysis.prepared import Prepared, called_functions, prepared_of
from fuse_opt.dialects.fused import OutlinedOp, YieldOp
from fuse_opt.dialects.graph.sparse.expansion import fallback_operands, operands_in_the_way, over_parts, with_dense
from fuse_opt.dialects.graph.sparse.storage import ToStorageOp
from fuse_opt.dialects.interfaces.composite_op import CompositeOp
from fuse_opt.dialects.interfaces.op import GraphBuilder, GraphOp
from fuse_opt.dialects.interfaces.opaque_op import OpaqueOp
from fuse_opt.dialects.interfaces.properties import plain_properties
from fuse_opt.dialects.interfaces.shapes import agree, dtype, is_static, shape, shape_text, tensor
from fuse_opt.dialects.interfaces.stored_values import is_stored
from fuse_opt.dialects.interfaces.structured_op import StructuredOp
from fuse_opt.dialects.interfaces.symbols import argument_symbols, change_sizes, limits_of, size_arguments, stated_sizes
from fuse_opt.dialects.types.dtypes import Kind, dtype_of
from fuse_opt.dialects.types.encodings import encoding_of, with_encoding
from fuse_opt.dialects.types.extents import substitute, symbols
from fuse_opt.dialects.types.index_expr import Dim, Index, dimensions, linearize
from fuse_opt.dialects.types.storage_kinds import part_types
from fuse_opt.lowering.errors import EvaluationError
from fuse_opt.lowering.program.float_formats import bit_patterns, converted, is_narrow, recognized, type_name
from fuse_opt.lowering.reference.kernels import find_implementation
from fuse_opt.lowering.reference.scalar import NUMPY_DTYPES, Array, evaluate_body, most_axes, reduce


def entry_function(module: ModuleOp, name: str | None = None) -> FuncOp:
    """The function called `name`, or the only one (or `main`), of one block. Raises EvaluationError."""
    functions = called_functions(module)
    wanted = [f for f in functions if f.sym_name.data == (name or "main")] if name or len(functions) > 1 else functions
    if len(wanted) == 1:
        if wanted[0].body.blocks.first is not wanted[0].body.blocks.last:
            found = f"'{wanted[0].sym_name.data}': expected a function of one block, got {len(wanted[0].body.blocks)}"
            raise EvaluationError(f"{found}; lower its control flow to ops with regions", wanted[0])
        return wanted[0]
    names = ", ".join(f.sym_name.data for f in functions) or "none"
    raise EvaluationError(
        f"expected {'a function ' + repr(name) if name else 'one function, or one named main'}; the module has: {names}"
    )


Watch: TypeAlias = "Callable[[Operation, Sequence[Value]], None]"
"""Is told of an op of a function, and its operands, before it runs."""


def evaluate_function(function: FuncOp, arguments: Sequence[Array], watch: Watch | None = None) -> list[Array]:
    """
    Results of a function on arrays, without those that it is prepared: the function behind these runs first. Raises
    EvaluationError when arguments do not fit or an op has no meaning here.
    """
    block = function.body.block
    prepared = prepared_of(function)
    taken = sum(len(part_types(value.type)) for value in block.args)
    taken -= 0 if prepared is None else len(prepared.arguments)
    if len(arguments) != taken:
        raise EvaluationError(f"'{function.sym_name.data}' takes {taken} arguments, got {len(arguments)}")
    if prepared is not None:
        arguments = _with_prepared(prepared, arguments)
    whole = _whole(block.args, arguments)
    if symbols(stated_sizes(function)):
        block = _at_numbers(function, whole).body.block
    given = enumerate(zip(block.args, whole, strict=True))
    return _flat(
        _run_block(block, {value: _checked_argument(number, value, array) for number, (value, array) in given}, watch)
    )


def _at_numbers(function: FuncOp, arguments: Sequence[Value]) -> FuncOp:
    """A copy of the function whose ops say numbers in place of sizes: those of these arguments."""
    copy, values = function.clone(), dict[str, int]()
    for names, array in zip(argument_symbols(function), arguments, strict=True):
        if isinstance(array, np.ndarray) and len(names) == array.ndim:
            values.update((name, n) for name, n in zip(names, array.shape, strict=True) if name is not None)
    for number, name in size_arguments(function).items():
        if isinstance(value := arguments[number], np.ndarray) and value.ndim == 0:
            values[name] = int(value)
    _check_limits(function, values)
    change_sizes(copy, lambda extent: substitute(extent, values))
    return copy


def _check_limits(function: FuncOp, values: Mapping[str, int]) -> None:
    """Raises EvaluationError."""
    for limit in limits_of(function):
        if all(one.name in values for one in limit.symbols) and (problem := limit.problem(values)) is not None:
            raise EvaluationError(f"'{function.sym_name.data}': {problem}")


def _whole(values: Sequence[SSAValue], arrays: Sequence[Array]) -> list[Value]:
    """Arrays one behind the other as those of each value."""
    found: list[Value] = []
    rest = list(arrays)
    for value in values:
        count = len(part_types(value.type))
        found.append(tuple(rest[:count]) if is_stored(value) else rest[0])
        del rest[:count]
    return found


def _flat(values: Sequence[Value]) -> list[Array]:
    return [array for value in values for array in (value if isinstance(value, tuple) else (value,))]


Value: TypeAlias = Array | tuple[Array, ...]
"""What a value is: of a storage kind, its parts."""


def _with_prepared(prepared: Prepared, arguments: Sequence[Array]) -> list[Array]:
    """The arguments as the function has them, with those between that its second function computes."""
    found = list(arguments)
    for number in prepared.arguments:
        found.insert(number, np.empty(0))
    given = [found[number] for number in prepared.frozen]
    for number, array in zip(prepared.arguments, evaluate_function(prepared.function, given), strict=True):
        found[number] = array
    return found


def _checked_argument(number: int, value: SSAValue, array: Value) -> Value:
    if isinstance(array, tuple):
        parts = Block(arg_types=part_types(value.type)).args
        checked = [_checked_argument(number, part, given) for part, given in zip(parts, array, strict=True)]
        return tuple(cast("list[Array]", checked))
    wanted, extents = NUMPY_DTYPES[dtype(value)], shape(value)
    array = recognized(array, wanted)
    fits = array.ndim == len(extents) and all(
        n in (DYNAMIC_INDEX, m) for n, m in zip(extents, array.shape, strict=True)
    )
    if not fits or array.dtype != wanted:
        raise EvaluationError(
            f"argument {number}: expected {type_name(wanted)} {shape_text(extents)}, "
            f"got {type_name(array.dtype)} {list(array.shape)}"
        )
    return array


def _run_block(block: Block, values: dict[SSAValue, Value], watch: Watch | None = None) -> list[Value]:
    """Runs the ops in order; `values` holds the block's arguments and is emptied on the way."""
    ops = list(block.ops)
    last_use = {operand: op for op in ops for operand in op.operands}
    for op in ops:
        if isinstance(op, ReturnOp | YieldOp):
            return [values[operand] for operand in op.operands]
        operands = [values[operand] for operand in op.operands]
        if watch is not None:
            watch(op, operands)
        results = _run_op(op, operands)
        for result, array in zip(op.results, results, strict=True):
            if result in last_use:
                values[result] = array
        for operand in op.operands:
            if last_use[operand] is op:
                values.pop(operand, None)
    raise EvaluationError("the block has no terminator that returns values")


def evaluate_op(op: Operation, operands: Sequence[Array]) -> list[Array]:
    """The results of a graph op or a kernel on dense operands, by the indices of their types. Raises EvaluationError."""
    return cast("list[Array]", list(_run_op(op, operands)))


def _run_op(op: Operation, given: Sequence[Value]) -> Sequence[Value]:
    if isinstance(op, GraphOp) and any(map(is_stored, (*op.operands, *op.results))):
        return _run_stored(op, given)
    operands = cast("Sequence[Array]", given)
    if isinstance(op, GraphOp) and not all(map(is_static, (*op.operands, *op.results))):
        op = _specialized(op, operands)
    match op:
        case OutlinedOp():
            return _run_block(op.block, {value: array for value, array in zip(op.block.args, operands, strict=True)})
        case StructuredOp():
            return [evaluate_structured(op, operands)]
        case CompositeOp():
            return _run_expansion(op, operands)
        case OpaqueOp():
            return _run_library(op, operands)
        case _:
            raise EvaluationError(
                f"'{op.name}' has no meaning on the reference; it must implement StructuredOp, CompositeOp or OpaqueOp",
                op,
            )


def _run_stored(op: GraphOp, operands: Sequence[Value]) -> Sequence[Value]:
    """
    An op on stored values, by what it is over their parts; on dense ones where it has no way to run on these. Parts that are
    the same array are one value, so that a pattern that is shared is seen to be.
    """
    arrays = {id(array): array for array in _flat(operands)}
    of_parts = [part_types(value.type) for value in op.operands]
    known = zip(_flat(operands), (type_ for types in of_parts for type_ in types), strict=True)
    types = {id(array): type_ for array, type_ in known}
    of = dict(zip(arrays, Block(arg_types=[types[key] for key in arrays]).args, strict=True))
    flat = [tuple(of[id(array)] for array in (a if isinstance(a, tuple) else (a,))) for a in operands]
    builder = GraphBuilder()
    made = over_parts(op, builder, flat)
    if made is None:
        return _run_fallback(op, operands)
    values: dict[SSAValue, Value] = {of[key]: array for key, array in arrays.items()}
    for inner in builder.ops:
        results = _run_op(inner, [values[operand] for operand in inner.operands])
        values.update(zip(inner.results, results, strict=True))
    found = [tuple(cast(Array, values[part]) for part in parts) for parts in made]
    return [parts if is_stored(result) else parts[0] for result, parts in zip(op.results, found, strict=True)]


def _run_fallback(op: GraphOp, operands: Sequence[Value]) -> Sequence[Value]:
    """What `assign-storage` makes of an op without a rule: its decomposition, or the op on some operands made dense."""
    if isinstance(op, CompositeOp) and not operands_in_the_way(op):
        results = zip(op.expansion().results, _run_expansion(op, operands), strict=True)
        return [_as_dense(value.type, array) for value, array in results]
    numbers = fallback_operands(op)
    dense = [
        _as_dense(v.type, a) if k in numbers else a for k, (v, a) in enumerate(zip(op.operands, operands, strict=True))
    ]
    stand_ins = Block(arg_types=[with_encoding(tensor(value), None) for value in op.operands])
    copy = with_dense(op, numbers, stand_ins.args)
    found = _run_op(copy, dense)
    copy.erase()
    return found


def _as_dense(type_: Attribute, array: Value) -> Value:
    """A value of this type as a dense one."""
    if not isinstance(array, tuple):
        return array
    return _run_stored(ToStorageOp.of(Block(arg_types=[type_]).args[0], None), [array])[0]


def _run_expansion(op: CompositeOp, operands: Sequence[Value]) -> Sequence[Value]:
    expansion = op.expansion()
    values: dict[SSAValue, Value] = dict(zip(expansion.block.args, operands, strict=True))
    for inner in expansion.block.ops:
        results = _run_op(inner, [values[operand] for operand in inner.operands])
        values.update(zip(inner.results, results, strict=True))
    return [values[result] for result in expansion.results]


def _run_library(op: OpaqueOp, operands: Sequence[Array]) -> Sequence[Array]:
    implementation = find_implementation(op.name)
    if implementation is None:
        raise EvaluationError(f"'{op.name}' is opaque and no implementation is registered for it", op)
    outs = [np.empty(shape(result), NUMPY_DTYPES[dtype(result)]) for result in op.results]
    # As in memory: NumPy and BLAS sum in another order for other strides, and a view has those of what it is made of.
    stored = [np.asarray(array, order="C") for array in operands]
    workspace = [np.empty(implementation.workspace_bytes(op), np.int8)] if implementation.takes_workspace else []
    with np.errstate(all="ignore"):
        implementation.run(stored, [*outs, *workspace], plain_properties(op))
    return outs


def evaluate_structured(op: StructuredOp, operands: Sequence[Array]) -> Array:
    """The result of one structured op, derived from its index maps and scalar body."""
    stored = op.stored_value()
    if stored is not None:
        return dense_array(stored)
    extents = shape(op.results[0])
    reduced = op.reduced_extents()
    if (axes := len(extents) + len(reduced)) > most_axes():
        raise EvaluationError(f"'{op.name}' goes along {axes} axes: NumPy's arrays have at most {most_axes()}", op)
    index, inner = dimensions("i", extents), dimensions("r", reduced)
    data = dict(zip(op.operands, operands, strict=True))
    if op.COMBINE:
        sources = [
            gather(a, op.operand_index(k, index, inner), (*index, *inner), (*extents, *reduced), data)
            for k, a in enumerate(operands)
        ]
    else:
        at = op.operand_indices(index, inner)
        sources = [gather(a, place, index, extents, data) for a, place in zip(operands, at, strict=True)]
    body, element = op.body(), dtype(op.results[0])
    if body.function == "operand" and not op.COMBINE and dtype(op.operands[int(body.value)]) is element:
        return np.broadcast_to(sources[int(body.value)], extents)
    computed = [converted(a, NUMPY_DTYPES[dtype(v).compute]) for a, v in zip(sources, op.operands, strict=True)]
    value = evaluate_body(body, computed, np.ogrid[tuple(slice(n) for n in extents)])
    if op.COMBINE:
        value = np.broadcast_to(value, (*extents, *reduced))
        axes = tuple(range(len(extents), len(extents) + len(reduced)))
        value = reduce(op.COMBINE, value, axes, op.initial())
    with np.errstate(all="ignore"):
        return converted(np.broadcast_to(value, extents), NUMPY_DTYPES[element])


def _specialized(op: GraphOp, operands: Sequence[Array]) -> GraphOp:
    """The op on the extents that its operands have now; types with `?` in them say too little to compute."""
    types = [TensorType(tensor(v).element_type, a.shape) for v, a in zip(op.operands, operands, strict=True)]
    try:
        found = op.on_types(types)
    except VerifyException as error:
        raise EvaluationError(f"'{op.name}' on the shapes of this call: {error}", op) from error
    for number, (given, actual) in enumerate(zip(op.results, found.results, strict=True)):
        if not is_static(actual):
            raise EvaluationError(f"'{op.name}': the shape of result {number} does not follow from its operands", op)
        if not agree(shape(given), shape(actual)):
            expected, got = shape_text(shape(given)), shape_text(shape(actual))
            raise EvaluationError(
                f"'{op.name}', result {number}: expected shape {expected}, got {got} in this call", op
            )
    return found


def gather(
    array: Array, source: Index, index: Index, extents: Sequence[int], data: Mapping[SSAValue, Array] | None = None
) -> Array:
    """
    The array read at `source`, an index that is a function of the dimensions of `index`, and of data by what it is read from;
    a view where it can be.
    """
    if source == index and array.shape == tuple(extents):
        return array
    if is_narrow(array.dtype):  # NumPy cannot stride over all types of ml_dtypes
        return gather(bit_patterns(array), source, index, extents, data).view(array.dtype)
    if 0 in extents or not array.size:  # of an empty operand nothing is wanted, where elements are chosen by position
        return np.zeros(tuple(extents), array.dtype)
    base = np.asarray(array, order="C")
    address = linearize(source, base.shape)
    coefficients = address.coefficients()
    if coefficients is None:
        grids = np.ogrid[tuple(slice(n) for n in extents)]
        positions: Mapping[Dim, Array] = {
            next(iter(i.dims())): grid for i, grid in zip(index, grids, strict=True) if not i.is_constant
        }
        tables = {atom.source: _as_positions((data or {})[cast(SSAValue, atom.source)]) for atom in address.loaded()}
        flat = np.broadcast_to(address.evaluate(positions, tables), tuple(extents))  # pyright: ignore[reportArgumentType]
        return base.reshape(-1)[flat]
    steps = [0 if i.is_constant else coefficients.get(next(iter(i.dims())), 0) * base.itemsize for i in index]
    return np.lib.stride_tricks.as_strided(base.reshape(-1)[address.constant :], tuple(extents), steps, writeable=False)


def _as_positions(array: Array) -> Array:
    """Integers of any type in one that positions can be computed in."""
    return np.minimum(array, 2**62).astype(np.int64) if array.dtype == np.uint64 else array.astype(np.int64)


def logical_array(array: Array, type_: Attribute) -> Array:
    """What a row-major buffer holds, by the indices of the tensor type that says how it lies there."""
    if (encoding := encoding_of(type_)) is None:
        return array
    extents = cast("TensorType[Attribute]", type_).get_shape()
    index = dimensions("i", extents)
    return gather(array, encoding.to_memory(index, extents), index, extents)


def memory_array(array: Array, type_: Attribute) -> Array:
    """The row-major buffer of a tensor type's elements: the inverse of `logical_array`."""
    if (encoding := encoding_of(type_)) is None:
        return array
    extents = cast("TensorType[Attribute]", type_).get_shape()
    places = encoding.memory_extents(extents)
    place = dimensions("i", places)
    return gather(array, encoding.from_memory(place, extents), place, places)


def dense_array(attribute: DenseIntOrFPElementsAttr) -> Array:
    """The elements of a constant as an array of its shape."""
    element = dtype_of(attribute.get_element_type())
    if element is None:
        raise EvaluationError(f"constants of '{attribute.get_element_type()}' are not supported")
    kind, extents = NUMPY_DTYPES[element], attribute.get_shape()
    if is_narrow(kind):
        array = np.frombuffer(attribute.data.data, kind).copy()
    else:
        values = list(attribute.get_values())
        if element.kind is Kind.UINT:
            values = [v % 2**element.bits for v in values if isinstance(v, int)]
        array = np.array(values, kind)
    return array.reshape(extents) if array.size == prod(extents) else np.broadcast_to(array, extents).copy()
