"""Builds the stand-ins for the CUDA driver and cuBLAS, and with their help PyCUDA for a machine without a driver.

python tests/fake_cuda/build.py pycuda FOLDER   # PyCUDA and what it needs, for this Python; about a minute
python tests/fake_cuda/build.py driver FOLDER   # libcuda.so.1 and libcublas.so
"""

from __future__ import annotations

import argparse
import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

HERE = Path(__file__).resolve().parent
PYCUDA = "pycuda==2026.1"
_CXX = ["g++", "-std=c++17", "-O0", "-w", "-fPIC"]


def cuda_include() -> Path | None:
    """The folder of cuda.h, if there is one."""
    nvcc = shutil.which("nvcc")
    homes = [os.environ.get("CUDA_HOME"), os.environ.get("CUDA_PATH"), "/usr/local/cuda"]
    if nvcc:
        homes.insert(0, str(Path(nvcc).resolve().parent.parent))
    folders = [Path(home, "include") for home in homes if home]
    return next((folder for folder in folders if (folder / "cuda.h").is_file()), None)


def build_driver(folder: Path) -> Path:
    """Makes libcuda.so.1, libcuda.so and libcublas.so in a folder, which it returns. Raises CalledProcessError."""
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
    blas = [*_CXX, "-shared", str(HERE / "cublas.cpp"), "-o", str(folder / "libcublas.so"), str(driver)]
    subprocess.run(blas, check=True)
    return folder


def declared(include: Path) -> Iterator[str]:
    """The names of all functions of the driver."""
    headers = "#include <cuda.h>\n#include <cudaProfiler.h>\n"
    command = ["gcc", "-E", "-P", f"-I{include}", "-x", "c", "-"]
    text = subprocess.run(command, input=headers, capture_output=True, text=True, check=True).stdout
    yield from sorted(set(re.findall(r"\bcu[A-Z]\w*(?=\s*\()", text)))


def install_pycuda(target: Path) -> None:
    """
    Installs PyCUDA into a folder. Its build wants a libcuda to link with, which is the stand-in here; what it makes needs
    no more of it than the name. Raises CalledProcessError.
    """
    with tempfile.TemporaryDirectory() as home:
        include = cuda_include()
        assert include is not None, "there is no cuda.h"
        options = {
            "CUDA_ROOT": str(include.parent),
            "CUDA_INC_DIR": [str(include)],
            "CUDA_ENABLE_CURAND": False,
            "CUDADRV_LIB_DIR": [str(build_driver(Path(home, "driver")))],
            "CXXFLAGS": ["-g0", "-O1", "-w", "-std=c++14"],
            "LDFLAGS": ["-s"],
        }
        text = "".join(f"{name} = {value!r}\n" for name, value in options.items())
        Path(home, ".aksetup-defaults.py").write_text(text)
        command = [sys.executable, "-m", "pip", "install", "--no-input", "--upgrade", "--target", str(target), PYCUDA]
        subprocess.run(command, check=True, env={**os.environ, "HOME": home})


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=("driver", "pycuda"))
    parser.add_argument("folder", type=Path)
    options = parser.parse_args()
    (build_driver if options.what == "driver" else install_pycuda)(options.folder)
    return 0


if __name__ == "__main__":
    sys.exit(main())
