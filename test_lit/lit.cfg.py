"""How lit runs the .mlir files of this folder; lit provides `config`. Run it with the environment's own `lit`."""

import os
import shutil
import sys

import lit.formats

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
import preloaded

from fuse_opt.tools.bootstrap import find_c_compiler, find_nvcc

config.name = "fuse-opt"
config.test_format = lit.formats.ShTest(execute_external=False)
config.suffixes = [".mlir"]
config.excludes = ["Inputs"]
config.test_source_root = os.path.dirname(os.path.abspath(__file__))
config.test_exec_root = os.path.join(config.test_source_root, ".lit_out")

# The tools of this environment before any other of the same name, and a kernel cache of its own.
# lit hands on few other variables; PYTHONDONTWRITEBYTECODE must stay out, or every start compiles all modules again.
config.environment["PATH"] = os.pathsep.join((os.path.dirname(sys.executable), os.environ["PATH"]))
config.environment["XDG_CACHE_HOME"] = os.path.join(config.test_exec_root, "cache")
for variable in ("CC", "CUDA_HOME", "CUDA_PATH", "CUDA_VISIBLE_DEVICES", "LD_LIBRARY_PATH"):
    if variable in os.environ:
        config.environment[variable] = os.environ[variable]

# Most tests start the tools by way of a server that has imported them already: see preloaded.py.
config.environment["PATH"] = os.pathsep.join((preloaded.start(), config.environment["PATH"]))

# Both printed forms must parse back.
config.substitutions.append(
    ("%roundtrip", "fuse-opt %s | fuse-opt --print-op-generic | fuse-opt | filecheck %s"),
)

if find_c_compiler():
    config.available_features.add("cc")
if find_nvcc():
    config.available_features.add("nvcc")
if mlir_opt := shutil.which("mlir-opt-22"):
    config.available_features.add("mlir-opt")
    config.substitutions.append(("%mlir_opt", mlir_opt))
