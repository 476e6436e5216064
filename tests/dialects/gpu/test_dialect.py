"""The gpu dialect: a superset of upstream's under the same name, plus programs of launches."""

import shutil
import subprocess
from io import StringIO

import pytest
from xdsl.context import Context
from xdsl.dialects import arith, func, memref, test
from xdsl.dialects import gpu as upstream
from xdsl.dialects.builtin import Builtin, IndexType, IntegerAttr, MemRefType, NoneAttr, StringAttr, f32, i8, i32, i64
from xdsl.ir import Attribute, Block, Dialect, Region
from xdsl.parser import ParseError, Parser
from xdsl.printer import Printer
from xdsl.transforms.common_subexpression_elimination import cse
from xdsl.transforms.dead_code_elimination import region_dce
from xdsl.utils.exceptions import VerifyException

from fuse_opt.dialects import gpu
from fuse_opt.dialects.gpu import dialect

MLIR_OPT = shutil.which("mlir-opt-22")


def context(dialect: Dialect = gpu.GPU) -> Context:
    ctx = Context()
    for each in (Builtin, arith.Arith, func.Func, memref.MemRef, test.Test, dialect):
        ctx.load_dialect(each)
    return ctx


def reprint(text: str, dialect: Dialect = gpu.GPU, generic: bool = False) -> str:
    module = Parser(context(dialect), text).parse_module()
    module.verify()
    output = StringIO()
    Printer(output, print_generic_format=generic).print_op(module)
    return output.getvalue()


UPSTREAM = """
builtin.module attributes {gpu.container_module} {
  "gpu.module"() ({
    func.func @host(%host: memref<4xi32>, %any: memref<*xi32>, %n: index, %dev: i32) {
      "gpu.host_register"(%any) : (memref<*xi32>) -> ()
      "gpu.host_unregister"(%any) : (memref<*xi32>) -> ()
      "gpu.set_default_device"(%dev) : (i32) -> ()
      %t0 = "gpu.wait"() : () -> !gpu.async.token
      %a = "gpu.alloc"(%n) <{operandSegmentSizes = array<i32: 0, 1, 0>}> : (index) -> memref<?xi32>
      %b, %t1 = "gpu.alloc"(%t0) <{hostShared, operandSegmentSizes = array<i32: 1, 0, 0>}> : (!gpu.async.token)
        -> (memref<4xi32>, !gpu.async.token)
      "gpu.memcpy"(%b, %host) {operandSegmentSizes = array<i32: 0, 1, 1>} : (memref<4xi32>, memref<4xi32>) -> ()
      "gpu.dealloc"(%b) {operandSegmentSizes = array<i32: 0, 1>} : (memref<4xi32>) -> ()
      "gpu.launch"(%n, %n, %n, %n, %n, %n) <{operandSegmentSizes = array<i32: 0, 1, 1, 1, 1, 1, 1, 0, 0, 0, 0>}> ({
      ^bb0(%0: index, %1: index, %2: index, %3: index, %4: index, %5: index,
        %6: index, %7: index, %8: index, %9: index, %10: index, %11: index):
        %sum = "gpu.all_reduce"(%0) <{op = #gpu<all_reduce_op add>, uniform}> ({
        }) : (index) -> index
        %twice = "gpu.all_reduce"(%0) ({
        ^bb0(%l: index, %r: index):
          %lr = arith.addi %l, %r : index
          "gpu.yield"(%lr) : (index) -> ()
        }) : (index) -> index
        "gpu.terminator"() : () -> ()
      }) : (index, index, index, index, index, index) -> ()
      "gpu.launch_func"(%n, %n, %n, %n, %n, %n, %dev, %n)
        <{kernel = @m::@k, operandSegmentSizes = array<i32: 0, 1, 1, 1, 1, 1, 1, 0, 0, 0, 1, 1, 0>}>
        : (index, index, index, index, index, index, i32, index) -> ()
      func.return
    }
    "gpu.func"() ({
    ^bb0(%x: index):
      %tid = "gpu.thread_id"() <{dimension = #gpu<dim x>}> : () -> index
      %bdim = "gpu.block_dim"() <{dimension = #gpu<dim y>}> : () -> index
      %bid = "gpu.block_id"() <{dimension = #gpu<dim z>}> : () -> index
      %gid = "gpu.global_id"() <{dimension = #gpu<dim x>}> : () -> index
      %gdim = "gpu.grid_dim"() <{dimension = #gpu<dim x>}> : () -> index
      %lane = "gpu.lane_id"() : () -> index
      %subgroups = "gpu.num_subgroups"() : () -> index
      %subgroup = "gpu.subgroup_id"() : () -> index
      %size = "gpu.subgroup_size"() : () -> index
      "gpu.barrier"() : () -> ()
      "gpu.return"() : () -> ()
    }) {sym_name = "k", kernel, function_type = (index) -> (),
      gpu.known_block_size = array<i32: 1, 2, 3>, gpu.known_grid_size = array<i32: 4, 5, 6>} : () -> ()
  }) {sym_name = "m"} : () -> ()
  "test.op"() {map = #gpu.loop_dim_map<processor = thread_x, map = (d0) -> (d0), bound = (d0) -> (d0)>,
    p = #gpu<processor block_x>} : () -> ()
}
"""

PROGRAM = """
func.func @program(%a: memref<8x4xf32>, %b: memref<4x2xf32>) {
  %arena = gpu.arena {alignment = 64 : i64} : memref<4096xi8>
  gpu.bulk 0 {
    %shift = arith.constant 1024 : index
    %c = memref.view %arena[%shift][] : memref<4096xi8> to memref<8x2xf32>
    gpu.library_call "numpy.matmul"(%a, %b) outs(%c) {operation = "graph.matmul", config = {axis = 1 : i64}}
      : (memref<8x4xf32>, memref<4x2xf32>) outs(memref<8x2xf32>)
    gpu.library_call "numpy.zeros"() outs(%c) {operation = "graph.zeros"} : () outs(memref<8x2xf32>)
  }
  gpu.bulk 1 {
  }
  func.return
}
"""

SHARED = MemRefType(f32, [32], NoneAttr(), gpu.AddressSpaceAttr(gpu.AddressSpaceEnum.Workgroup))
PRIVATE = MemRefType(f32, [1], NoneAttr(), gpu.AddressSpaceAttr(gpu.AddressSpaceEnum.Private))


def kernel_module() -> gpu.ModuleOp:
    kernel = gpu.FuncOp(
        "row_sum",
        ([MemRefType(f32, [32])], []),
        kernel=True,
        known_block_size=(32, 1, 1),
        workgroup_buffers=[SHARED],
        private_buffers=[PRIVATE],
    )
    block = kernel.body.block
    one = arith.ConstantOp(IntegerAttr(1, i32))
    lane = gpu.ThreadIdOp(gpu.DimensionAttr(gpu.DimensionEnum.X))
    load = memref.LoadOp.get(kernel.arguments[0], [lane.result])
    shuffle = gpu.ShuffleOp(load, one, one, gpu.ShuffleModeEnum.Xor)
    store = memref.StoreOp.get(shuffle.result, kernel.workgroup_buffers[0], [lane.result])
    block.add_ops([one, lane, load, shuffle, store, gpu.BarrierOp(), gpu.ReturnOp()])
    return gpu.ModuleOp.build(properties={"sym_name": StringAttr("kernels")}, regions=[Region(Block([kernel]))])


def test_everything_of_upstream_is_here() -> None:
    ours = {op.name: op for op in gpu.GPU.operations}
    for op in upstream.GPU.operations:
        assert op.name in ours
        replaced = op.name in ("gpu.func", "gpu.return")
        assert (ours[op.name] is op) is not replaced
    assert set(upstream.GPU.attributes) <= set(gpu.GPU.attributes)
    assert {op.__name__ for op in (*upstream.GPU.operations, *gpu.GPU.operations)} <= set(dialect.__all__)
    assert {attribute.__name__ for attribute in gpu.GPU.attributes} <= set(dialect.__all__)
    assert all(hasattr(gpu, name) for name in dialect.__all__)


@pytest.mark.parametrize("generic", [False, True])
def test_upstream_text_prints_as_before(generic: bool) -> None:
    mentioned = {op.name for op in upstream.GPU.operations if f'"{op.name}"' in UPSTREAM}
    assert mentioned == {op.name for op in upstream.GPU.operations}
    assert reprint(UPSTREAM, gpu.GPU, generic) == reprint(UPSTREAM, upstream.GPU, generic)


@pytest.mark.parametrize("text", [UPSTREAM, PROGRAM, str(kernel_module())])
def test_round_trip_of_both_forms(text: str) -> None:
    custom = reprint(text)
    assert reprint(custom) == custom
    assert reprint(reprint(text, generic=True)) == custom


def test_program_prints_as_written() -> None:
    assert reprint(PROGRAM).split() == ["builtin.module", "{", *PROGRAM.split(), "}"]


@pytest.mark.parametrize("space", ["global", "workgroup", "private"])
def test_address_spaces(space: str) -> None:
    attribute = Parser(context(), f"#gpu.address_space<{space}>").parse_attribute()
    assert attribute == gpu.AddressSpaceAttr(gpu.AddressSpaceEnum(space))
    assert str(attribute) == f"#gpu.address_space<{space}>"


@pytest.mark.parametrize("mode", ["xor", "up", "down", "idx"])
def test_shuffle_modes(mode: str) -> None:
    attribute = Parser(context(), f"#gpu<shuffle_mode {mode}>").parse_attribute()
    assert attribute == gpu.ShuffleModeAttr(gpu.ShuffleModeEnum(mode))
    assert str(attribute) == f"#gpu<shuffle_mode {mode}>"


@pytest.mark.parametrize("text", ["#gpu.address_space<shared>", "#gpu<shuffle_mode down_by>", "#gpu.address_space<"])
def test_unknown_attribute_values_are_parse_errors(text: str) -> None:
    with pytest.raises(ParseError):
        Parser(context(), text).parse_attribute()


def test_function_reads_either_spelling() -> None:
    def function(properties: str, attributes: str) -> gpu.FuncOp:
        text = f'''"gpu.func"() <{{function_type = () -> (){properties}}}> ({{
          "gpu.return"() : () -> ()
        }}) {{sym_name = "f"{attributes}}} : () -> ()'''
        op = Parser(context(), text).parse_op()
        assert isinstance(op, gpu.FuncOp)
        return op

    ours = function(", known_block_size = array<i32: 1, 2, 3>, known_grid_size = array<i32: 4, 5, 6>", ", gpu.kernel")
    theirs = function(
        ", kernel", ", gpu.known_block_size = array<i32: 1, 2, 3>, gpu.known_grid_size = array<i32: 4, 5, 6>"
    )
    for op in (ours, theirs):
        assert op.is_kernel
        assert op.block_size == (1, 2, 3)
        assert op.grid_size == (4, 5, 6)
    plain = function("", "")
    assert not plain.is_kernel
    assert plain.block_size is None
    assert plain.grid_size is None


def test_constructed_kernel() -> None:
    module = kernel_module()
    module.verify()
    kernel = module.body.block.first_op
    assert isinstance(kernel, gpu.FuncOp)
    assert [argument.type for argument in kernel.workgroup_buffers] == [SHARED]
    assert [argument.type for argument in kernel.private_buffers] == [PRIVATE]
    assert "gpu.kernel" in kernel.attributes
    assert "kernel" not in kernel.properties


def test_private_buffers_are_what_remains() -> None:
    module = kernel_module()
    kernel = module.body.block.first_op
    assert isinstance(kernel, gpu.FuncOp)
    del kernel.attributes["private_attributions"]
    module.verify()
    assert [argument.type for argument in kernel.private_buffers] == [PRIVATE]


def test_lowered_memory_spaces_are_accepted() -> None:
    lowered = MemRefType(f32, [32], NoneAttr(), IntegerAttr(3, i64))
    function = gpu.FuncOp("f", ([], []), workgroup_buffers=[lowered])
    function.body.block.add_op(gpu.ReturnOp())
    function.verify()


def test_constructed_program() -> None:
    arena = gpu.ArenaOp(4096, alignment=256)
    assert arena.size == 4096
    assert arena.result.type == MemRefType(i8, [4096])
    shift = arith.ConstantOp.from_int_and_width(1024, IndexType())
    slot = memref.ViewOp(arena, shift, [], MemRefType(f32, [8]))
    config: dict[str, Attribute] = {"axis": IntegerAttr(0, i64)}
    call = gpu.LibraryCallOp("numpy.sort", "graph.sort", [slot], [slot], config)
    bulk = gpu.BulkOp(3, [shift, slot, call])
    arena.verify()
    bulk.verify()
    assert list(bulk.launches) == [call]
    assert bulk.segment.value.data == 3
    assert call.config.data == config


def test_cleanups_keep_launches_and_arenas() -> None:
    text = PROGRAM.replace(
        "  gpu.bulk 1", "  %other = gpu.arena {alignment = 64 : i64} : memref<4096xi8>\n  gpu.bulk 1"
    )
    module = Parser(context(), text).parse_module()
    cse(module)
    region_dce(module.body)
    module.verify()
    after = [op.name for op in module.walk()]
    assert after.count("gpu.arena") == 2
    assert after.count("gpu.library_call") == 2
    assert after.count("gpu.bulk") == 1  # the empty one is dead


INVALID = {
    "arena: element type": ("%a = gpu.arena {alignment = 1 : i64} : memref<4xf32>", "memref<Nxi8>, got memref<4xf32>"),
    "arena: rank": ("%a = gpu.arena {alignment = 1 : i64} : memref<4x4xi8>", "memref<Nxi8>, got memref<4x4xi8>"),
    "arena: space": (
        "%a = gpu.arena {alignment = 1 : i64} : memref<4xi8, #gpu.address_space<global>>",
        "expected a result of type memref<Nxi8>",
    ),
    "arena: no power of two": ("%a = gpu.arena {alignment = 0 : i64} : memref<4xi8>", "a power of two, got 0"),
    "arena: negative alignment": ("%a = gpu.arena {alignment = -4 : i64} : memref<4xi8>", "a power of two, got -4"),
    "arena: alignment missing": ("%a = gpu.arena : memref<4xi8>", "alignment"),
    "library call: no operation": (
        '%m = "test.op"() : () -> memref<i8>\ngpu.library_call "f"() outs(%m) {operation = ""} : () outs(memref<i8>)',
        "expected a name as its operation",
    ),
    "library call: output": (
        '%m = "test.op"() : () -> f32\ngpu.library_call "f"() outs(%m) {operation = "g.h"} : () outs(f32)',
        "expected a memref as output #0, got f32",
    ),
    "shuffle: scalable": (
        '%x, %i = "test.op"() : () -> (vector<[4]xf32>, i32)\n%s, %v = gpu.shuffle up %x, %i, %i : vector<[4]xf32>',
        "one fixed dimension",
    ),
    "shuffle: index": (
        '%x, %i = "test.op"() : () -> (index, i32)\n%s, %v = gpu.shuffle up %x, %i, %i : index',
        "index",
    ),
    "terminator outside a launch": ('"gpu.terminator"() : () -> ()', "'gpu.terminator' expects parent op 'gpu.launch'"),
}


@pytest.mark.parametrize(("text", "message"), INVALID.values(), ids=INVALID.keys())
def test_verifier_refuses(text: str, message: str) -> None:
    with pytest.raises(VerifyException) as caught:
        reprint(text)
    assert message in str(caught.value)


@pytest.mark.parametrize("size", ["array<i32>", "array<i32: 32>", "array<i32: 32, 0, 1>"])
def test_launch_bounds_are_three_positive_sizes(size: str) -> None:
    text = f""""gpu.module"() <{{sym_name = "m"}}> ({{
      "gpu.func"() <{{function_type = () -> (), known_block_size = {size}}}> ({{
        "gpu.return"() : () -> ()
      }}) {{sym_name = "f"}} : () -> ()
    }}) : () -> ()"""
    with pytest.raises(VerifyException, match="three positive sizes in known_block_size"):
        reprint(text)


@pytest.mark.skipif(MLIR_OPT is None, reason="mlir-opt-22 is not installed")
@pytest.mark.parametrize("generic", [False, True])
def test_mlir_accepts_and_keeps_kernels(generic: bool) -> None:
    def mlir_opt(text: str) -> str:
        command = [str(MLIR_OPT), "--mlir-print-op-generic"]
        return subprocess.run(command, input=text, capture_output=True, text=True, check=True).stdout

    theirs = mlir_opt(reprint(str(kernel_module()), generic=generic))
    for kept in ("gpu.kernel", "known_block_size = array<i32: 32, 1, 1>", "workgroup_attributions = 1 : i64"):
        assert kept in theirs
    assert mlir_opt(reprint(theirs)) == theirs
