"""What cuBLAS, cuBLASLt, cuDNN and cuSPARSE are asked for, by types and shapes alone; their calls are tested on the stand-ins."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest
from cuda_library_scenarios import CONVOLUTIONS, chain_text, convolution_texts
from cuda_sparse_scenarios import csr_product_text
from cuda_whole_scenarios import whole_text
from ir_testing import kernels, parse
from xdsl.dialects.builtin import ModuleOp

from fuse_opt.dialects.implementation.chains import Link
from fuse_opt.dialects.implementation.offers import Offer, all_offers, find_offer, forget_backend, register_offer
from fuse_opt.dialects.implementation.queries import opaque_op
from fuse_opt.dialects.implementation.site import Site
from fuse_opt.lowering.program import LibraryCall
from fuse_opt.passes.devices.device import device_names, find_device
from fuse_opt.runtime.backends import registry
from fuse_opt.runtime.backends.nvidia import cudnn_whole
from fuse_opt.runtime.backends.nvidia.cublaslt import epilogue_of
from fuse_opt.runtime.backends.nvidia.cudnn_problems import Problem, math_type, problem_of
from fuse_opt.runtime.backends.nvidia.cudnn_steps import Steps, steps_of
from fuse_opt.runtime.backends.registry import unavailable_backends
from fuse_opt.runtime.cuda import steps
from fuse_opt.runtime.device.graphs import RunCounts
from fuse_opt.tools.compiler.api import compile as compile_program
from fuse_opt.tools.compiler.api import optimize
from fuse_opt.tools.compiler.pipeline import DEFAULT_PIPELINE

BIAS = Link("graph.add", operand=2, extents=(1, 8))
RELU, GELU = Link("graph.relu"), Link("graph.gelu", (("approximate", "tanh"),))


def refusal(name: str, *links: Link) -> str | None:
    offer = find_offer("graph.conv" if ".conv" in name else "graph.matmul", name)
    grammar: Any = None if offer is None else offer.epilogue
    return grammar.refusal(links)


def test_chains_of_cublaslt() -> None:
    strict, fast = "cublaslt.matmul", "cublaslt.matmul_fast"
    assert refusal(strict, BIAS) is None and refusal(strict, BIAS, RELU) == "max-ops"
    assert refusal(strict, RELU) == "step-graph.relu", "it may swallow NaN"
    assert refusal(strict, Link("graph.add", operand=2, extents=(1, 8), dtype="bf16")) == "step-bf16"
    assert refusal(strict, Link("graph.add", operand=2, extents=(8,))) == "step-graph.add", "rows of a vector"
    assert refusal(strict, Link("graph.add", operand=2, extents=(4, 1))) == "step-graph.add"
    assert refusal(strict, Link("graph.add", number=1.0)) == "step-graph.add"
    assert refusal(strict, Link("graph.subtract", operand=2, extents=(1, 8))) == "step-graph.subtract"
    assert refusal(fast, BIAS, GELU) is None and refusal(fast, RELU) is None
    assert refusal(fast, Link("graph.gelu", (("approximate", "none"),))) == "step-graph.gelu"
    assert refusal(fast, RELU, BIAS) == refusal(fast, RELU, GELU) == refusal(fast, BIAS, BIAS) == "step-order"
    assert [epilogue_of(links) for links in ([], [BIAS], [RELU], [BIAS, RELU], [GELU], [BIAS, GELU])] == [
        1, 4, 2, 6, 32, 36
    ]  # fmt: skip


def test_chains_of_cudnn() -> None:
    bias, tensor = (Link("graph.add", operand=2, extents=e, whole=e[0] > 1) for e in ((1, 8, 1, 1), (2, 8, 5, 5)))
    assert [
        refusal("cudnn.conv", *links) for links in ([bias], [bias, RELU], [tensor, bias], [bias, tensor, RELU])
    ] == [None] * 4
    assert refusal("cudnn.conv", RELU) == refusal("cudnn.conv", tensor, RELU) == "step-order", "it wants a bias"
    assert refusal("cudnn.conv", RELU, bias) == refusal("cudnn.conv", bias, bias) == "step-order"
    assert refusal("cudnn.conv", bias, replace(tensor, whole=False)) == "step-graph.add", "a tensor that is broadcast"
    assert refusal("cudnn.conv", replace(bias, extents=(1, 1, 1, 8))) == "step-graph.add", "a vector along an axis"
    assert refusal("cudnn.conv", replace(bias, dtype="bf16")) == "step-bf16"
    assert refusal("cudnn.conv_fast", replace(bias, dtype="bf16")) is None
    assert steps_of([replace(tensor, operand=3), bias, RELU]) == Steps(2, 3, True)


def test_problems_of_cudnn() -> None:
    pads = {"pads": (1, 1, 1, 1)}
    assert problem_of("graph.conv", [(1, 2, 8, 8), (4, 2, 3, 3), (1, 4, 8, 8)], pads) == Problem(
        (1, 2, 8, 8), (4, 2, 3, 3), (1, 4, 8, 8), (1, 1), (1, 1), (1, 1), 1
    )
    uneven = {"pads": (1, 1, 0, 0)}
    assert problem_of("graph.conv", [(1, 2, 8, 8), (4, 2, 3, 3), (1, 4, 7, 7)], uneven) == "pads"
    short = problem_of("graph.conv_backward_weight", [(2, 5, 7), (2, 3, 9), (5, 3, 3)], {})
    assert isinstance(short, Problem) and (short.w, short.strides) == ((5, 3, 1, 3), (1, 1))
    padded = [(1, 2, 4, 4), (2, 3, 2, 2), (1, 3, 8, 8)]
    assert problem_of("graph.conv_transpose", padded, {"strides": (2, 2), "output_padding": (1, 1)}) != "pads"
    assert problem_of("graph.conv_transpose", [(1, 2, 4), (2, 3, 2), (1, 3, 7)], {"dilations": (3,)}) != "pads"
    beyond = [(1, 2, 4), (2, 3, 2), (1, 3, 9)]  # another window fits into what was added
    assert problem_of("graph.conv_transpose", beyond, {"dilations": (3,), "output_padding": (2,)}) == "output-padding"
    assert [math_type(t, fast) for t, fast in (("f32", False), ("f32", True), ("bf16", False), ("f64", False))] == [
        3, 0, 1, 0
    ]  # fmt: skip


def named(module: ModuleOp) -> list[str | None]:
    return [None if k.implementation is None else k.implementation.data for k in kernels(module) if opaque_op(k)]


def test_devices_of_files() -> None:
    assert {name for name in device_names() if find_device(name).platform == "cuda"} >= {
        "h100",
        "h200",
        "a100",
        "l4",
        "t4",
    }


@pytest.mark.parametrize(("device", "some"), [("h200", slice(None)), ("t4", slice(1))])
def test_what_a_device_runs_is_chosen_again(device: str, some: slice) -> None:
    texts = [
        convolution_texts(case, "f32")[op] for case in range(len(CONVOLUTIONS)) for op in convolution_texts(0, "f32")
    ]
    for text in (texts[0], texts[2], chain_text(((16, 24), (24, 8), False, False), "add relu", "", "f32"))[some]:
        module = optimize(parse(text), f"gpu-attach-device{{device={device}}},default")
        (name,) = named(module)
        assert name is not None and name.partition(".")[0] in ("cublas", "cublaslt", "cudnn"), name
        before = str(module)
        assert str(optimize(parse(before), "default")) == before
        assert named(compile_program(before, "cuda").module) == [name]
        (back,) = named(compile_program(before, "reference", "default").module)
        assert back == name
        (host,) = named(compile_program(before, "cpu").module)
        assert host is not None and not host.startswith(("cublas", "cudnn"))


@pytest.mark.parametrize(
    ("extents", "dtype", "named"),
    [
        ((1024, 1024, 200_000, 512), "f32", "cusparse.csr_matmul"),  # long rows, which it divides
        ((1024, 1024, 10_000, 512), "f32", "gpu.csr_matmul"),  # rows that a thread goes over faster than kernels start
        ((20_000, 20_000, 220_000, 64), "f32", "gpu.csr_matmul"),
        ((1024, 1024, 200_000, 512), "f16", "gpu.csr_matmul"),
        ((1024, 1024, 200_000, 1), "f32", "gpu.csr_matmul"),
        ((64, 64, 4097, 512), "f32", "gpu.csr_matmul"),
    ],
)
def test_csr_products_are_chosen_by_cost(extents: tuple[int, int, int, int], dtype: str, named: str) -> None:
    text = csr_product_text(*extents, dtype)
    fast = ",".join(DEFAULT_PIPELINE).replace("select-implementation", "select-implementation{numerics=fast}")
    for words, passes, expected in (
        ("cusparse", fast, named),
        ("-cublas", fast, "gpu.csr_matmul"),
        ("cusparse", "default", "gpu.csr_matmul"),
    ):
        module = optimize(parse(text), f"gpu-attach-device{{device=h200}},attach-backends{{backends={words}}},{passes}")
        assert [k.implementation and k.implementation.data for k in kernels(module) if opaque_op(k)] == [expected]
    site = Site.of(next(op for op in parse(text).walk() if op.name == "graph.csr_matmul"), find_device("h200"))  # pyright: ignore[reportArgumentType]
    offer = find_offer("graph.csr_matmul", "cusparse.csr_matmul")
    assert offer is not None
    reasons = {"f16": "dtype"} if extents[3] > 1 else {"f32": "vector"}
    if extents[2] > extents[0] * extents[1]:
        reasons = {"f32": "capacity"}
    assert offer.refusal(site) == reasons.get(dtype)
    assert offer.workspace_bytes(site) >= 4 * (extents[0] + 1 + extents[2]) + (1 << 20)


ATTENTION = "scaled_dot_product_attention"


def whole(op: str, attributes: str, operands: str, result: str, dtype: str) -> str:
    return whole_text(op, attributes, [shape_of(each) for each in operands.split()], shape_of(result), dtype)


def shape_of(text: str) -> tuple[int, ...]:
    return tuple(map(int, text.split("x")))


@pytest.mark.parametrize(
    ("op", "attributes", "operands", "result", "dtype", "expected"),
    [
        (ATTENTION, "", "2x8x64 2x8x64 2x8x64", "2x8x64", "bf16", None),
        (ATTENTION, "", "2x8x64 2x8x64 2x8x64", "2x8x64", "f32", "dtype"),
        (ATTENTION, "", "2x8x64 2x8x64 2x8x64 8x8", "2x8x64", "f16", "mask"),
        (ATTENTION, "is_causal = true", "2x8x64 2x8x64 2x8x64", "2x8x64", "f16", None),
        (ATTENTION, "dropout_p = 0.5 : f64, seed = 1 : i64", "2x8x64 2x8x64 2x8x64", "2x8x64", "f16", "dropout"),
        (ATTENTION, "", "2x8x20 2x8x20 2x8x64", "2x8x64", "f16", "depth"),
        (ATTENTION, "", "2x8x64 2x8x64 2x8x136", "2x8x136", "f16", "depth"),
        (ATTENTION, "", "2x0x64 2x8x64 2x8x64", "2x0x64", "f16", "empty"),
        ("layer_norm", "", "4x8 8 8", "4x8", "f32", None),
        ("layer_norm", "", "4x8 8", "4x8", "f32", "no-parameters"),
        ("layer_norm", "", "4x8 8 8", "4x8", "f64", "dtype"),
        ("rms_norm", "", "4x8", "4x8", "f32", "no-parameters"),
        ("batch_norm", "", "4x8x3 8 8 8 8", "4x8x3", "f32", None),
        ("batch_norm", "", "4x8x3 8 8 8 8", "4x8x3", "bf16", "dtype"),
        ("batch_norm", "axis = 2 : i64", "4x8x3 3 3 3 3", "4x8x3", "f32", "axis"),
    ],
)
def test_what_cudnn_takes_as_a_whole(
    op: str, attributes: str, operands: str, result: str, dtype: str, expected: str | None
) -> None:
    text = whole(op, attributes, operands, result, dtype)
    site = Site.of(next(each for each in parse(text).walk() if each.name == f"graph.{op}"), find_device("h200"))  # pyright: ignore[reportArgumentType]
    offer = find_offer(f"graph.{op}", f"{'cudnn' if op == 'batch_norm' else 'cudnn_graph'}.{op}")
    assert offer is not None and offer.refusal(site) == expected
    older = offer.refusal(replace(site, device=find_device("t4")))
    assert older == ("needs-sm_80" if op != "batch_norm" and dtype != "f32" else expected)


def test_logarithms_of_sums_of_causal_attention_are_planned() -> None:
    """Without them cuDNN has no plan for it."""
    found: list[int] = []
    for attributes in ("", "is_causal = true"):
        text = whole(ATTENTION, attributes, "3x5x70x64 3x5x90x64 3x5x90x64", "3x5x70x64", "bf16")
        op = next(each for each in parse(text).walk() if each.name == f"graph.{ATTENTION}")
        site = Site.of(op, find_device("h200"))  # pyright: ignore[reportArgumentType]
        offer = find_offer(f"graph.{ATTENTION}", f"cudnn_graph.{ATTENTION}")
        assert offer is not None
        found.append(offer.workspace_bytes(site))
    assert found[1] - found[0] == 4352, "17 times 256 bytes for 3 * 5 * 70 numbers of f32"


def test_attention_is_cudnns_where_that_is_faster(monkeypatch: pytest.MonkeyPatch) -> None:
    def choices(
        shape: str,
        dtype: str = "bf16",
        op: str = ATTENTION,
        more: str = "",
        words: str = "cudnn_graph",
        attributes: str = "",
    ) -> str:
        text = whole(op, attributes, f"{shape} {more or f'{shape} {shape}'}", shape, dtype)
        module = parse(text)
        collected = optimize(module, f"gpu-attach-device{{device=h200}},attach-backends{{backends={words}}},default")
        return ",".join(k.implementation.data for k in kernels(collected) if k.implementation is not None)

    assert choices("8x16x1024x64") == f"cudnn_graph.{ATTENTION}"
    assert choices("8x16x517x64") == "gpu.attention", "blocks of 128 are half empty"
    assert choices("8x16x1024x64", words="-cusparse") == f"cudnn_graph.{ATTENTION}", "it need not be asked for"
    assert choices("4x16x2048x128", attributes="is_causal = true") == f"cudnn_graph.{ATTENTION}"
    assert choices("4x8x197x64", attributes="is_causal = true") == "gpu.attention", "short rows"
    assert choices("8x16x517x64", "f16", attributes="is_causal = true") == "gpu.attention"
    assert choices("4x8x197x64") == "gpu.attention", "short rows, before which memory is cleared"
    assert choices("16x12x512x64") == f"cudnn_graph.{ATTENTION}"
    assert choices("8x16x1024x64", words="-cudnn_graph") == "gpu.attention"
    assert choices("4x8x256x64", "f32") == "gpu.attention"
    assert choices("512x768", "f32", "layer_norm", "768 768") == "", (
        "a pass over memory either way: code of the program"
    )
    monkeypatch.setattr(cudnn_whole, "library_version", lambda: 91200)
    assert choices("8x16x1024x64") == "gpu.attention", "a library that has no such operation"


def test_offers_of_a_device_need_a_device() -> None:
    offers = [offer for offer in all_offers() if offer.platform == "cuda"]
    assert {offer.backend for offer in offers} == {"cublas", "cublaslt", "cudnn", "cudnn_graph", "cusparse", "gpu"}
    assert [offer.name for offer in offers if not offer.native] == ["gpu.attention"] * 2, (
        "which is a kernel of the program"
    )
    libraries = [offer for offer in offers if offer.backend != "gpu"]
    assert not any(offer.inplace for offer in libraries)
    assert [offer.name for offer in libraries if not offer.takes_workspace] == ["cudnn.batch_norm"]
    for text in convolution_texts(1, "bf16").values():
        op = next(op for op in parse(text).walk() if find_offer(op.name, None) is not None)
        site = Site.of(op, find_device("h200"))  # pyright: ignore[reportArgumentType]
        offer = find_offer(op.name, f"cudnn.{op.name.partition('.')[2]}")
        assert offer is not None and offer.refusal(site) is None
        assert (offer.seconds(site) or 0) > 0 and offer.workspace_bytes(site) % 64 == 0


def test_a_call_that_is_not_captured_ends_the_graph(monkeypatch: pytest.MonkeyPatch) -> None:
    ran: list[tuple[str, Any]] = []

    def never(*given: Any) -> None:
        raise AssertionError("it is for the host")

    class Library:
        def bound(self, call: LibraryCall, address: Any) -> Any:
            def enqueue(stream: Any) -> None:
                ran.append((call.implementation, stream))

            return enqueue

    class Graphs:
        def __init__(self, *_: Any) -> None: ...
        def find(self, key: Any, enqueue: Any) -> int:
            return 7

        def launch(self, graph: int, stream: int) -> None:
            ran.append(("graph", stream))

    def library(device: Any) -> Library:
        return Library()

    known = {"eager.sort": False, "quick.sort": True}
    for name, captured in known.items():
        register_offer(Offer("graph.sort", name, native=True, optional=True, platform="cuda", captured=captured))
    monkeypatch.setattr(registry, "_DEVICE_LIBRARIES", {"eager": library, "quick": library})
    monkeypatch.setattr(steps, "CapturedGraphs", Graphs)
    names = ["quick.sort", "quick.sort", "eager.sort", "quick.sort"]
    calls = [LibraryCall(name, "graph.sort", (), (), {}, never) for name in names]

    def new_stream(owner: object, flags: int) -> int:
        return 0

    device: Any = SimpleNamespace(new_stream=new_stream)
    found = steps.Steps(SimpleNamespace(steps=calls, buffers=()), device, "own", None, RunCounts())  # pyright: ignore[reportArgumentType]
    for name in known:
        forget_backend(name.partition(".")[0])
    assert found.graphs() == [7, None, 7] and not found.follow(found.graphs())
    found.run(found.graphs(), 3)
    assert ran == [("graph", 3), ("eager.sort", "own"), ("graph", 3)]


def test_a_library_that_is_off_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    names = ("cublas", "cublaslt", "cudnn", "cusparse")
    for name in names:
        monkeypatch.setenv(f"FUSE_OPT_{name.upper()}", "off")
    reasons = {name: f"FUSE_OPT_{name.upper()}=off" for name in names}
    assert unavailable_backends("cuda") == {**reasons, "cudnn_graph": "FUSE_OPT_CUDNN=off"}
