"""What a kernel has on the stack of whatever thread runs it: arrays are declared by one writer, which knows their bytes."""

import re
import subprocess
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from threading import Thread, stack_size

import numpy as np
import pytest
from draws import draws
from ir_testing import evaluate, parse, text_of
from large_programs import large_program
from lowered_programs import Array, assert_close, needs_compiler
from xdsl.dialects import memref
from xdsl.dialects.builtin import f32
from xdsl.dialects.func import FuncOp
from xdsl.ir import Block

import fuse_opt
from fuse_opt.dialects.types.size import SizeRefusal
from fuse_opt.lowering.c.language import C
from fuse_opt.lowering.c.printer import CPrintError, print_function
from fuse_opt.lowering.convert import stack_room
from fuse_opt.lowering.convert.stack_room import fit_stack
from fuse_opt.lowering.emit import build_program, build_sized_program
from fuse_opt.lowering.hints import MOST_ON_STACK, OF_THREAD
from fuse_opt.runtime.host.c_compiler import find_c_compiler
from fuse_opt.tools.compiler.sized import SizedKind, compile_sized
from fuse_opt.tools.compiler.targets import all_passes

BACKENDS = Path(fuse_opt.__file__).parents[1] / "runtime/backends"
POSITIONS = "".join((BACKENDS / f"positions/{name}_tasks.c").read_text() for name in ("indexing", "order"))
ROUTINES = {
    **{
        name: (BACKENDS / f"{name}_tasks.c").read_text() for name in ("top_k", "sparse", "blas/matmul", "onednn/onednn")
    },
    **{
        task: f"#define TASK {task}\n#define TYPE 9\n{POSITIONS}"
        for task in re.findall(r"^FUSE_TASK (\w+)", POSITIONS, re.M)
    },
}
"""What compiles by itself, or a task at a time."""
FRAME = 96 << 10
"""Bytes beside the arrays of a kernel: of functions that it calls, and of vectors that no register is left for."""
LARGE = """func.func private @kernel(%x: f32) {{
  %a = memref.alloca() {{{mark}}} : memref<{count}xf32>
  %c0 = arith.constant 0 : index
  memref.store %x, %a[%c0] : memref<{count}xf32>
  func.return
}}"""


def one_op(op: str, *types: str, properties: str = "") -> str:
    """A function of one op; the last type is its result's."""
    *given, result = types
    names = ", ".join(f"%{number}" for number in range(len(given)))
    arguments = ", ".join(f"%{number}: {kind}" for number, kind in enumerate(given))
    return f"""func.func @main({arguments}) -> {result} {{
  %y = graph.{op} {names} {{{properties}}} : ({", ".join(given)}) -> {result}
  func.return %y : {result}
}}"""


def attention(queries: str, keys: str, values: str, result: str) -> str:
    return one_op("scaled_dot_product_attention", queries, keys, values, result)


NARROW, WIDE = (f"tensor<?x2x?x{n}xf64, #graph.shape<b, 2, n, {n}>>" for n in (3, 8))
HEADS = "tensor<?x4x?x64xf32, #graph.shape<b, 4, n, 64>>"
LONG, FEW = "tensor<2x2048x64xf32>", "tensor<2x2x64xf32>"
IMAGES, WEIGHT = "tensor<?x64x?x?xf32, #graph.shape<b, 64, h, w>>", "tensor<64x64x3x3xf32>"
SMALLER = "tensor<?x64x?x?xf32, #graph.shape<b, 64, max(0, h - 2), max(0, w - 2)>>"
ROWS, COLUMNS = "tensor<?x?xf32, #graph.shape<m, k>>", "tensor<?x?xf32, #graph.shape<k, n>>"
TEXTS = {
    "attention of narrow matrices": (ATTENTION := attention(NARROW, NARROW, WIDE, WIDE)),
    "attention": attention(HEADS, HEADS, HEADS, HEADS),
    "long attention": attention(LONG, LONG, LONG, LONG),
    "attention of few queries": attention(FEW, LONG, LONG, FEW),
    "images": one_op("conv", IMAGES, WEIGHT, SMALLER),
    "an image": one_op("conv", "tensor<1x64x56x56xf32>", WEIGHT, "tensor<1x64x54x54xf32>"),
    "softmax": one_op("softmax", ROWS, ROWS, properties="axis = 1 : i64"),
    "products": one_op("matmul", ROWS, COLUMNS, "tensor<?x?xf32, #graph.shape<m, n>>"),
}


def test_the_largest_arrays_are_of_the_thread_where_not_all_fit() -> None:
    counts = [100, MOST_ON_STACK // 8, 64, MOST_ON_STACK // 6, 200]
    block = Block([memref.AllocaOp.get(f32, 64, [count]) for count in counts])
    fit_stack(block)
    assert [OF_THREAD in op.attributes for op in block.ops] == [False, False, False, True, False]
    fit_stack(block)
    assert sum(OF_THREAD in op.attributes for op in block.ops) == 1


def test_what_fits_stays_where_it_is() -> None:
    block = Block([memref.AllocaOp.get(f32, 64, [MOST_ON_STACK // 8]) for _ in range(2)])
    fit_stack(block)
    assert not any(op.attributes for op in block.ops)


def test_the_writer_refuses_more_than_a_stack_has() -> None:
    def printed(count: int, mark: str = "") -> str:
        (function,) = parse(LARGE.format(count=count, mark=mark)).ops
        assert isinstance(function, FuncOp)
        return print_function(function, C).text

    with pytest.raises(CPrintError, match="room for local buffers of"):
        printed(MOST_ON_STACK // 4 + 1)
    assert "static _Thread_local float" in printed(MOST_ON_STACK // 4 + 1, OF_THREAD)


@needs_compiler
def test_kernels_with_more_than_fits_run_in_threads_of_small_stacks(monkeypatch: pytest.MonkeyPatch) -> None:
    """As far as attention for any sizes has room, it does: its arrays are made large ones here by less room on stacks."""
    monkeypatch.setattr(stack_room, "MOST_ON_STACK", 64 << 10)
    program = fuse_opt.compile(ATTENTION, "cpu")
    rng = np.random.default_rng(1)
    arguments = [rng.standard_normal((2, 2, 50, columns)) for columns in (3, 3, 8)]
    found: list[Array] = []
    thread = Thread(target=lambda: found.append(program(*arguments)))
    before = stack_size(1 << 20)
    thread.start()
    stack_size(before)
    thread.join()
    assert "static _Thread_local double" in program.source
    assert_close(found, evaluate(parse(ATTENTION), arguments))


def generated(text: str) -> Iterator[str]:
    """The C text of a program: for its numbers, or for all sizes, of short rows and of long ones."""
    passes = all_passes("cpu", None, None, False, None)
    kind = SizedKind(build_sized_program, lambda program: program, lambda program: program)
    if "?" not in text:
        yield build_program(fuse_opt.optimize(text)).source
        return
    for long_rows in (False, True):
        with suppress(SizeRefusal):
            yield compile_sized(parse(text), None, passes, long_rows, kind)[1].program.source


def frames(source: str, folder: Path) -> dict[str, int]:
    """By function, the bytes that gcc gives it on the stack; none grows while it runs."""
    compiler = find_c_compiler()
    assert compiler is not None
    if not compiler.version.startswith("gcc"):
        pytest.skip("-fstack-usage is gcc's")
    flags = [flag for flag in compiler.flags if flag != "-shared"]
    command = [compiler.path, *flags, "-fstack-usage", "-c", "-x", "c", "-", "-o", str(folder / "kernels.o")]
    subprocess.run(command, input=source, text=True, check=True)
    lines = [line.split("\t") for line in (folder / "kernels.su").read_text().splitlines()]
    assert not [name for name, _, kind in lines if kind == "dynamic"]
    return {name.rpartition(":")[2]: int(nbytes) for name, nbytes, _ in lines}


def check_frames(source: str, folder: Path) -> None:
    large = {name: nbytes for name, nbytes in frames(source, folder).items() if nbytes > MOST_ON_STACK + FRAME}
    assert not large, large


@needs_compiler
@pytest.mark.optimised
@pytest.mark.parametrize("seed", draws(6))
def test_frames_of_large_programs(seed: int, tmp_path: Path) -> None:
    for source in generated(text_of(large_program(seed))):
        check_frames(source, tmp_path)


@needs_compiler
@pytest.mark.optimised
@pytest.mark.parametrize("name", TEXTS)
def test_frames_of_kernels_with_arrays(name: str, tmp_path: Path) -> None:
    sources = list(generated(TEXTS[name]))
    assert sources
    for source in sources:
        check_frames(source, tmp_path)


@needs_compiler
@pytest.mark.parametrize("name", ROUTINES)
def test_frames_of_routines(name: str, tmp_path: Path) -> None:
    assert max(frames(ROUTINES[name], tmp_path).values()) < FRAME
