"""How each peer of cpu_peers.py runs a workload: `PEERS`, by name."""

from __future__ import annotations

import os
from collections.abc import Callable
from functools import partial
from importlib import import_module
from typing import Any, cast

import numpy as np
from cpu_functions import Expression, Jax, NumExpr, Numpy, Torch
from cpu_onnx import model_of
from cpu_peer_base import Call, Loaded, Peer, room, typed_inputs
from cpu_peer_c import load_limit, load_plain_c
from cpu_workloads import Case, as_tuple


def load_own(case: Case, inputs: list[Any], results: list[Any]) -> Loaded:
    """`program(*arrays, out=results)`."""
    return _into(results, case, *_compiled(case, inputs))


def load_own_fresh(case: Case, inputs: list[Any], results: list[Any]) -> Loaded:
    """`program(*arrays)`."""
    program, arrays = _compiled(case, inputs)
    return Loaded(lambda: program(*arrays), _counts(program))


def load_own_fast(case: Case, inputs: list[Any], results: list[Any]) -> Loaded:
    """`program(*arrays, out=results)`, with the approximations that `math=fast` allows."""
    from fuse_opt.tools.compiler.pipeline import DEFAULT_PIPELINE

    passes = [text.replace("schedule-kernels", "schedule-kernels{math=fast}") for text in DEFAULT_PIPELINE]
    return _into(results, case, *_compiled(case, inputs, ",".join(passes)))


def _into(results: list[Any], case: Case, program: Any, arrays: list[Any]) -> Loaded:
    """Where arguments are donated, the results are in them, and there is nothing to say with `out`."""
    if case.workload.donated:
        return Loaded(lambda: program(*arrays), _counts(program))
    out = [room(r.shape, arrays[0].dtype) for r in results]
    return Loaded(lambda: program(*arrays, out=out), _counts(program))


def _compiled(case: Case, inputs: list[Any], pipeline: str | None = None) -> tuple[Any, list[Any]]:
    import fuse_opt

    program = fuse_opt.compile(case.workload.text(), pipeline=pipeline)
    return program, typed_inputs(case, inputs)


def _counts(program: Any) -> dict[str, float]:
    stats = cast("dict[str, Any]", vars(program.stats))
    return {name: value for name, value in stats.items() if isinstance(value, (int, float))}


def load_numpy(case: Case, inputs: list[Any], results: list[Any]) -> Call:
    if case.dtype != "f32":
        raise NotImplementedError(f"not measured with {case.dtype}")
    if case.name == "W2":
        import_module("scipy.special")
    return lambda: case.workload.body(Numpy(), *inputs)


def load_numexpr(case: Case, inputs: list[Any], results: list[Any]) -> Call:
    if case.dtype != "f32" or case.workload.source is not None:
        raise NotImplementedError("not measured: no such types or no matrix products")
    numexpr, functions = import_module("numexpr"), NumExpr()
    names = [f"a{k}" for k in range(len(inputs))]
    found = as_tuple(case.workload.body(functions, *(Expression(functions, name) for name in names)))
    texts = [expression.text for expression in found]
    arrays = dict(zip(names, inputs, strict=True)) | functions.constants
    return lambda: tuple(numexpr.evaluate(text, arrays) for text in texts)


def load_torch(case: Case, inputs: list[Any], results: list[Any]) -> Call:
    call, tensors = _torch_function(case, inputs)
    return lambda: call(*tensors)


def load_inductor(case: Case, inputs: list[Any], results: list[Any]) -> Call:
    return _inductor(case, inputs)


def load_inductor_fixed(case: Case, inputs: list[Any], results: list[Any]) -> Call:
    """With freezing; the allocator is fixed by the environment of the process."""
    config: Any = import_module("torch._inductor.config")
    config.freezing = True
    return _inductor(case, inputs)


def _torch_function(case: Case, inputs: list[Any]) -> tuple[Callable[..., Any], list[Any]]:
    torch = import_module("torch")
    torch.set_grad_enabled(False)
    types = {"f32": torch.float32, "f16": torch.float16, "bf16": torch.bfloat16, "i1": torch.bool}
    tensors = [torch.from_numpy(a).to(types[case.workload.dtype(k)]).clone() for k, a in enumerate(inputs)]
    functions = Torch(torch)
    return partial(case.workload.body, functions), tensors


def _inductor(case: Case, inputs: list[Any]) -> Call:
    torch = import_module("torch")
    torch._dynamo.reset()
    function, tensors = _torch_function(case, inputs)
    donated = case.workload.donated

    def in_place(*xs: Any) -> Any:
        for number, new in zip(donated, function(*xs), strict=True):
            xs[number].copy_(new)

    made = torch.compile(in_place if donated else function, dynamic=False)
    if not donated:
        return lambda: made(*tensors)

    def call() -> Any:
        made(*tensors)
        return tuple(tensors[number] for number in donated)

    return call


def torch_as_numpy(tensor: Any) -> Any:
    return tensor.detach().float().numpy()


def load_xla(case: Case, inputs: list[Any], results: list[Any]) -> Call:
    jax = import_module("jax")
    arrays = [jax.numpy.array(a) for a in typed_inputs(case, inputs)]
    functions, donated = Jax(jax), case.workload.donated
    made = jax.jit(partial(case.workload.body, functions), donate_argnums=donated)
    if not donated:
        return lambda: jax.block_until_ready(made(*arrays))

    def call() -> Any:
        found = jax.block_until_ready(made(*arrays))
        for number, new in zip(donated, found, strict=True):
            arrays[number] = new
        return found

    return call


def load_ort(case: Case, inputs: list[Any], results: list[Any]) -> Call:
    """Through I/O binding: inputs and results stay where they are."""
    ort, onnx = import_module("onnxruntime"), import_module("onnx")
    options = ort.SessionOptions()
    options.intra_op_num_threads = threads()
    session = ort.InferenceSession(model_of(onnx, case.workload), options, providers=["CPUExecutionProvider"])
    binding = session.io_binding()
    arrays = [ort.OrtValue.ortvalue_from_numpy(a) for a in typed_inputs(case, inputs)]
    dtype = {"f32": np.float32, "f16": np.float16}[case.dtype]
    out = [ort.OrtValue.ortvalue_from_shape_and_type(r.shape, dtype) for r in results]
    for k, array in enumerate(arrays):
        binding.bind_ortvalue_input(f"a{k}", array)
    for k, array in enumerate(out):
        binding.bind_ortvalue_output(f"r{k}", array)

    def call() -> Any:
        session.run_with_iobinding(binding)
        return tuple(out)

    return call


def load_iree(case: Case, inputs: list[Any], results: list[Any]) -> Call:
    """The StableHLO that jax writes of the workload, compiled for this CPU; the time of jax is not counted."""
    jax, tools, runtime = import_module("jax"), import_module("iree.compiler.tools"), import_module("iree.runtime")
    functions, typed = Jax(jax), typed_inputs(case, inputs)
    text = jax.jit(partial(case.workload.body, functions)).lower(*typed).as_text()
    flags = ["--iree-llvmcpu-target-cpu=host", "--iree-opt-level=O3"]
    binary = tools.compile_str(text, input_type="stablehlo", target_backends=["llvm-cpu"], extra_args=flags)
    config = runtime.Config("local-sync" if threads() == 1 else "local-task")
    module = runtime.load_vm_module(runtime.VmModule.copy_buffer(config.vm_instance, binary), config)
    arrays = [runtime.asdevicearray(config.device, a) for a in typed]
    return lambda: module.main(*arrays)


def threads() -> int:
    """As many as the library has; 0 where nothing is said, for the peers' own choice."""
    return int(os.environ.get("FUSE_OPT_NUM_THREADS", "0"))


_KEPT = {
    "MALLOC_MMAP_MAX_": "0",
    "MALLOC_TRIM_THRESHOLD_": str(1 << 40),
    "MALLOC_TOP_PAD_": str(256 << 20),
    "GLIBC_TUNABLES": "glibc.malloc.hugetlb=1",
    "THP_MEM_ALLOC_ENABLE": "1",
}
_SERIAL = {"TORCHINDUCTOR_COMPILE_THREADS": "1"}
_JAX = ("jax", "jaxlib")
PEERS = {
    peer.name: peer
    for peer in (
        Peer("fuse-opt", "program(*xs, out=ys)", ("numpy",), load_own, ("fuse_opt.tools.compiler.api",)),
        Peer("fuse-opt-fresh", "program(*xs)", ("numpy",), load_own_fresh, ("fuse_opt.tools.compiler.api",)),
        Peer("fuse-opt-fast", "program(*xs, out=ys), math=fast", ("numpy",), load_own_fast, ("fuse_opt.tools.compiler.api",)),
        Peer("limit", "moves the same bytes, nothing else", ("numpy",), load_limit, as_numpy=lambda x: x),
        Peer("c", "plain C, gcc -O3 -ffast-math, OpenMP, libmvec", ("numpy",), load_plain_c),
        Peer("inductor", "torch.compile as shipped", ("torch",), load_inductor, ("torch._inductor.config",), _SERIAL,
             torch_as_numpy),
        Peer("inductor-fixed", "torch.compile, freezing, heap kept, huge pages", ("torch",), load_inductor_fixed,
             ("torch._inductor.config",), _SERIAL | _KEPT, torch_as_numpy),
        Peer("torch", "torch, eager", ("torch",), load_torch, ("torch",), as_numpy=torch_as_numpy),
        Peer("xla", "jax.jit", _JAX, load_xla, ("jax.numpy",)),
        Peer("ort", "ONNX Runtime, I/O binding", ("onnxruntime", "onnx"), load_ort, ("onnxruntime", "onnx"),
             as_numpy=lambda value: value.numpy()),
        Peer("iree", "IREE, llvm-cpu local-task or local-sync", ("iree-base-compiler", "iree-base-runtime"), load_iree,
             ("jax.numpy", "iree.compiler.tools", "iree.runtime")),
        Peer("numexpr", "numexpr", ("numexpr",), load_numexpr, ("numexpr",)),
        Peer("numpy", "NumPy, op by op", ("numpy",), load_numpy),
    )
}  # fmt: skip
