"""Whole models through all of the default pipelines: each stage keeps the values, and the text of C and of CUDA C comes out."""

from __future__ import annotations

from functools import cache

import pytest
from cuda_on_cpu import CudaOnCpu, needs_cxx
from ir_testing import apply, evaluate, kernels, parse, text_of
from laws import Subject, compiled_fault, roughly_differs
from lowered_programs import needs_compiler
from whole_models import MODELS, arguments_of
from xdsl.dialects.builtin import ModuleOp

from fuse_opt.dialects.types.dtypes import BF16, F32, DType
from fuse_opt.lowering.emit import build_program
from fuse_opt.lowering.emit.cuda import build_cuda_program
from fuse_opt.tools.compiler.pipeline import DEFAULT_PIPELINE, FOR_CPUS

FOR_GPUS = ["gpu-attach-device", *(name for name in DEFAULT_PIPELINE if name not in FOR_CPUS)]
PIPELINES = {"cpu": list(DEFAULT_PIPELINE), "cuda": FOR_GPUS}


@cache
def subject(name: str, apart: bool, element: DType = F32) -> Subject:
    module = MODELS[name](apart, element)
    arguments = arguments_of(module)
    return Subject(text_of(module), arguments, evaluate(module, arguments))


@cache
def optimized(name: str, apart: bool, target: str, element: DType = F32) -> ModuleOp:
    """The module after the target's passes, with the values of the program; it verifies, and there is a text of it."""
    known = subject(name, apart, element)
    module = apply(parse(known.text), PIPELINES[target])
    fault = roughly_differs(evaluate(module, known.arguments), known.values)
    assert not fault, fault
    program = build_program(module) if target == "cpu" else build_cuda_program(module)
    assert kernels(module) and program.source
    return module


@pytest.mark.sampled(6)
@pytest.mark.parametrize("apart", [False, True], ids=["ops", "apart"])
@pytest.mark.parametrize("name", MODELS)
def test_the_default_pipelines_keep_values(name: str, apart: bool) -> None:
    for target in PIPELINES:
        optimized(name, apart, target)


@pytest.mark.parametrize("name", ["llama", "training_step"])
def test_the_default_pipelines_take_narrow_floats(name: str) -> None:
    for target in PIPELINES:
        optimized(name, True, target, BF16)


@needs_compiler
@pytest.mark.parametrize("name", ["llama", "training_step"])
def test_compiled(name: str) -> None:
    """Found by a device alone: sums of squares of rows that an embedding reads were no program."""
    fault = compiled_fault(subject(name, True))
    assert not fault, fault


@needs_cxx
@pytest.mark.parametrize("name", ["llama", "training_step"])
def test_on_a_gpu_emulated(name: str) -> None:
    known = subject(name, True)
    module = apply(optimized(name, True, "cuda").clone(), ["convert-fused-to-gpu"])
    found = CudaOnCpu(module).run("main", known.arguments)
    fault = roughly_differs(found, known.values)
    assert not fault, fault
