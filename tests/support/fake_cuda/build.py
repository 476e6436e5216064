"""Builds the stand-ins for the CUDA driver and its libraries, and with their help PyCUDA for a machine without a driver.

python tests/support/fake_cuda/build.py pycuda FOLDER   # PyCUDA and what it needs, for this Python; up to a minute, once
python tests/support/fake_cuda/build.py driver FOLDER   # libcuda.so.1, libcublas.so ...
python tests/support/fake_cuda/build.py wheels FOLDER   # PyCUDA and what the tests on a GPU need, as wheels for this Python

Exit status: 0 when FOLDER holds them, else 1 with the reason in the last line.
"""

from __future__ import annotations

import argparse
import hashlib
import os
import re
import shlex
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

HERE = Path(__file__).resolve().parent
PYCUDA = "pycuda==2026.1"
_CXX = ["g++", "-std=c++17", "-O0", "-w", "-fPIC"]
LIBRARIES = {
    "cublas.cpp": "libcublas.so",
    "cublaslt.cpp": "libcublasLt.so",
    "cudnn.cpp": "libcudnn.so",
    "cusparse.cpp": "libcusparse.so",
}
"""By source: what libraries that are called with memory of the device are built as."""
ON_A_GPU = ("xdsl>=0.74,<0.75", "pytest>=8")
_KEY = "fuse-opt-key"
"""The file, in a folder with PyCUDA, that says what it was made of."""


def why_not() -> str | None:
    """What is missing here to build with."""
    if missing := [name for name in ("g++", "gcc") if shutil.which(name) is None]:
        return f"no {missing[0]} to build the stand-in driver with"
    return None if cuda_include() else "no cuda.h to build the stand-in driver with (set CUDA_HOME)"


def cuda_include() -> Path | None:
    """The folder of cuda.h, if there is one."""
    nvcc = shutil.which("nvcc")
    homes = [os.environ.get("CUDA_HOME"), os.environ.get("CUDA_PATH"), "/usr/local/cuda"]
    if nvcc:
        homes.insert(0, str(Path(nvcc).resolve().parent.parent))
    folders = [Path(home, "include") for home in homes if home]
    return next((folder for folder in folders if (folder / "cuda.h").is_file()), None)


def build_driver(folder: Path) -> Path:
    """Makes libcuda.so.1, libcuda.so and the LIBRARIES in a folder, which it returns. Raises CalledProcessError."""
    include = cuda_include()
    assert include is not None, "there is no cuda.h"
    folder.mkdir(parents=True, exist_ok=True)
    driver, object_file = folder / "libcuda.so.1", folder / "driver.o"
    subprocess.run([*_CXX, f"-I{include}", "-c", str(HERE / "driver.cpp"), "-o", str(object_file)], check=True)
    stubs = "".join(f"__attribute__((weak)) int {name}(void) {{ return 801; }}\n" for name in declared(include))
    stub_file = folder / "stubs.c"
    stub_file.write_text(stubs)
    link = ["g++", "-O0", "-w", "-fPIC", "-shared", "-Wl,-soname,libcuda.so.1", "-o", str(driver), str(object_file)]
    subprocess.run([*link, "-x", "c", str(stub_file), "-ldl"], check=True)
    (folder / "libcuda.so").unlink(missing_ok=True)
    (folder / "libcuda.so").symlink_to(driver.name)
    for source, name in LIBRARIES.items():
        library = [*_CXX, "-shared", str(HERE / source), "-o", str(folder / name), str(driver)]
        subprocess.run(library, check=True)
    return folder


def driver_name() -> str:
    """What a folder of `build_driver` may be called: another name for each version of the sources."""
    include = cuda_include()
    assert include is not None, "there is no cuda.h"
    sources = [*sorted(HERE.glob("*.?pp")), Path(__file__), include / "cuda.h"]
    key = hashlib.sha256(b"".join(source.read_bytes() for source in sources)).hexdigest()[:16]
    return f"stand-in-driver-{key}"


def declared(include: Path) -> Iterator[str]:
    """The names of all functions of the driver."""
    headers = "#include <cuda.h>\n#include <cudaProfiler.h>\n"
    command = ["gcc", "-E", "-P", f"-I{include}", "-x", "c", "-"]
    text = subprocess.run(command, input=headers, capture_output=True, text=True, check=True).stdout
    yield from sorted(set(re.findall(r"\bcu[A-Z]\w*(?=\s*\()", text)))


def pycuda_key() -> str:
    """Changes when PyCUDA is to be built again."""
    facts = (PYCUDA, sys.version, sys.base_prefix, Path(__file__).read_text())
    return hashlib.sha256("\0".join(facts).encode()).hexdigest()


def is_built(target: Path) -> bool:
    """Whether a folder holds all of PyCUDA, made by this version of this script."""
    try:
        return (target / _KEY).read_text() == pycuda_key()
    except OSError:
        return False


def install_pycuda(target: Path) -> None:
    """
    Installs PyCUDA into a folder, which it makes at the end and as a whole; nothing is done where it is there. The build
    wants a libcuda to link with, which is the stand-in here; what it makes needs no more of it than the name.
    Raises CalledProcessError.
    """
    if is_built(target):
        return
    target = target.resolve()
    target.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=target.parent, prefix="pycuda-") as home:
        draft = Path(home, "installed")
        run_pip(["install", "--target", str(draft), PYCUDA], Path(home))
        Path(home, "driver").rename(draft / driver_name())  # the tests need it, too
        (draft / _KEY).write_text(pycuda_key())
        shutil.rmtree(target, ignore_errors=True)
        draft.rename(target)


def make_wheels(target: Path) -> None:
    """Wheels for a machine without a network. Raises CalledProcessError."""
    with tempfile.TemporaryDirectory() as home:
        run_pip(["wheel", "--wheel-dir", str(target.resolve()), PYCUDA, *ON_A_GPU], Path(home), "-O2")


def run_pip(arguments: list[str], home: Path, optimization: str = "-O0") -> None:
    """Runs pip so that it can build PyCUDA; `home` is an empty folder. Raises CalledProcessError."""
    include = cuda_include()
    assert include is not None, "there is no cuda.h"
    options = {
        "CUDA_ROOT": str(include.parent),
        "CUDA_INC_DIR": [str(include)],
        "CUDA_ENABLE_CURAND": False,
        "CUDADRV_LIB_DIR": [str(build_driver(home / "driver"))],
        "CXXFLAGS": ["-g0", optimization, "-w", "-std=c++14"],
        "LDFLAGS": ["-s"],
    }
    text = "".join(f"{name} = {value!r}\n" for name, value in options.items())
    (home / ".aksetup-defaults.py").write_text(text)
    command = [sys.executable, "-m", "pip", *arguments[:1], "--no-input", *arguments[1:]]
    compiler = f"{shlex.quote(sys.executable)} -S -E {shlex.quote(str(HERE / 'precompiling.py'))} {home}/headers"
    subprocess.run(command, check=True, env={**os.environ, "HOME": str(home), "CXX": f"{compiler} g++"})


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=("driver", "pycuda", "wheels"))
    parser.add_argument("folder", type=Path)
    options = parser.parse_args()
    if options.what == "pycuda" and is_built(options.folder):
        return 0
    if (reason := why_not()) is not None:
        print(reason)
        return 1
    try:
        {"driver": build_driver, "pycuda": install_pycuda, "wheels": make_wheels}[options.what](options.folder)
    except (subprocess.CalledProcessError, OSError) as error:
        command = error.cmd if isinstance(error, subprocess.CalledProcessError) else None
        print("pip could not build PyCUDA; is the package index reachable?" if command and "pip" in command else error)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
