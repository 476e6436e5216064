"""Records of the runtime: what Python reads of the C text is what a compiler makes of it."""

import ctypes
import subprocess
from pathlib import Path

import pytest

from fuse_opt.runtime.backends.blas.convolution import Convolution
from fuse_opt.runtime.backends.blas.matmul import Products
from fuse_opt.runtime.host import c_records
from fuse_opt.runtime.host.c_compiler import find_c_compiler
from fuse_opt.runtime.host.c_records import fields_of, runtime_text
from fuse_opt.runtime.host.program_call import Frame, Loop, ProgramStruct, Result, Value

RECORDS: dict[str, type[ctypes.Structure]] = {
    "struct fuse_loop": Loop,
    "struct value": Value,
    "struct fuse_frame": Frame,
    "struct fuse_program": ProgramStruct,
    "struct result": Result,
    "struct products": Products,
    "struct convolution": Convolution,
}
FILES = (
    *(f"host/{name}.c" for name in ("pool_waiting", "parallel_for", "python_objects", "program_call")),
    *(f"backends/blas/{name}.c" for name in ("matmul_tasks", "tile_products")),
    *(f"backends/blas/{name}.c" for name in ("convolution_tasks", "convolution_gradients")),
)


def test_places_are_those_of_the_compiler():
    if (compiler := find_c_compiler()) is None:
        pytest.skip("no C compiler")
    lines = ["#include <stddef.h>"]
    for name, record in RECORDS.items():
        lines.append(f'_Static_assert(sizeof({name}) == {ctypes.sizeof(record)}, "{name}");')
        for field, *_ in record._fields_:
            place = getattr(record, field).offset
            lines.append(f'_Static_assert(offsetof({name}, {field}) == {place}, "{name}, {field}");')
    # Two of the files have a function of one name.
    text = "".join(map(runtime_text, FILES)).replace("watch_forks", "watch_forks_", 1)
    command = [compiler.path, "-fsyntax-only", "-x", "c", "-"]
    done = subprocess.run(command, input="\n".join([text, *lines]), capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


def test_what_is_no_such_record_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    (tmp_path / "text.c").write_text("struct odd {\n  int64_t a;\n  int b; /* narrow */\n};\n")
    monkeypatch.setattr(c_records, "_RUNTIME", tmp_path)
    with pytest.raises(ValueError, match=r"text.c, 'struct odd': expected fields of 64 bits, got 'int b'"):
        fields_of("text.c", "odd")
    with pytest.raises(ValueError, match="declares no 'struct even'"):
        fields_of("text.c", "even")
