"""Attention as one CUDA kernel: masks, grouped heads, types, dropout; in any order of threads."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import pytest
from cuda_on_cpu import ORDERS, CudaOnCpu, kernels_text, needs_cxx, needs_nvcc
from ir_testing import Array, apply, evaluate, function, kernels, parse, random_arguments
from kernel_resources import check_resources
from xdsl.dialects.builtin import DictionaryAttr, IntegerAttr, ModuleOp

from fuse_opt.dialects.analysis.contractions.attention import ATTENTION
from fuse_opt.lowering.gpu.attention import blocks
from fuse_opt.lowering.program.float_formats import computed
from fuse_opt.runtime.emulation.program import ALIGNMENT
from fuse_opt.tools.compiler.pipeline import DEFAULT_PIPELINE


def attention(
    name: str,
    q: tuple[int, ...],
    k: tuple[int, ...],
    width: int,
    attributes: str = "",
    mask: str = "",
    element: str = "f32",
) -> str:
    q_type, k_type, v_type, result = (
        f"tensor<{'x'.join(map(str, (*shape, element)))}>" for shape in (q, k, (*k[:-1], width), (*q[:-1], width))
    )
    types = [q_type, k_type, v_type, *([mask] if mask else [])]
    names = ["%q", "%k", "%v", "%m"][: len(types)]
    arguments = ", ".join(f"{a}: {b}" for a, b in zip(names, types, strict=True))
    return f"""
func.func @{name}({arguments}) -> {result} {{
  %y = graph.scaled_dot_product_attention {", ".join(names)} {{{attributes}}} : ({", ".join(types)}) -> {result}
  func.return %y : {result}
}}"""


DROPS = "enable_gqa = true, is_causal = true, dropout_p = 0.25 : f64, seed = 7 : i64"
_HEADS = """
func.func @f16_heads(%x: tensor<41x144xf16>) -> tensor<41x48xf16> {
  %q0 = graph.slice %x {starts = array<i64: 0, 0>, stops = array<i64: 41, 48>} : (tensor<41x144xf16>) -> FLAT
  %k0 = graph.slice %x {starts = array<i64: 0, 48>, stops = array<i64: 41, 96>} : (tensor<41x144xf16>) -> FLAT
  %v0 = graph.slice %x {starts = array<i64: 0, 96>, stops = array<i64: 41, 144>} : (tensor<41x144xf16>) -> FLAT
  %q1 = graph.reshape %q0 {shape = array<i64: 41, 3, 16>} : (FLAT) -> ROWS
  %k1 = graph.reshape %k0 {shape = array<i64: 41, 3, 16>} : (FLAT) -> ROWS
  %v1 = graph.reshape %v0 {shape = array<i64: 41, 3, 16>} : (FLAT) -> ROWS
  %q = graph.permute_dims %q1 {axes = array<i64: 1, 0, 2>} : (ROWS) -> HEADS
  %k = graph.permute_dims %k1 {axes = array<i64: 1, 0, 2>} : (ROWS) -> HEADS
  %v = graph.permute_dims %v1 {axes = array<i64: 1, 0, 2>} : (ROWS) -> HEADS
  %y0 = graph.scaled_dot_product_attention %q, %k, %v : (HEADS, HEADS, HEADS) -> HEADS
  %y1 = graph.permute_dims %y0 {axes = array<i64: 1, 0, 2>} : (HEADS) -> ROWS
  %y = graph.reshape %y1 {shape = array<i64: 41, 48>} : (ROWS) -> FLAT
  func.return %y : FLAT
}"""
_TYPES = {"FLAT": "41x48", "ROWS": "41x3x16", "HEADS": "3x41x16"}
CASES = [
    re.sub("|".join(_TYPES), lambda name: f"tensor<{_TYPES[name[0]]}xf16>", _HEADS),
    attention("odd", (2, 3, 50, 24), (2, 3, 37, 24), 41),
    attention("causal", (2, 70, 16), (2, 131, 16), 24, "is_causal = true"),
    attention("choice", (2, 3, 21, 24), (2, 3, 37, 24), 40, "", "tensor<21x37xi1>"),
    attention(
        "added", (1, 3, 33, 24), (1, 3, 35, 24), 8, "is_causal = true, scale = 0.5 : f64", "tensor<1x3x33x35xf32>"
    ),
    attention("dropout", (1, 4, 9, 16), (1, 2, 40, 16), 24, DROPS),
    attention("bf16", (19, 40), (70, 40), 24, "is_causal = true", "", "bf16"),
    attention("f16", (1, 80, 128), (1, 40, 128), 128, "", "", "f16"),
    attention("f16_tiles", (1, 130, 16), (1, 140, 16), 24, "is_causal = true", "", "f16"),
    attention("bf16_choice", (1, 2, 70, 17), (1, 1, 67, 17), 40, "enable_gqa = true", "tensor<1x1x1x67xi1>", "bf16"),
    attention("bf16_added", (1, 9, 16), (1, 67, 16), 8, "", "tensor<9x67xbf16>", "bf16"),
    attention("f64", (2, 33, 30), (2, 34, 30), 9, element="f64"),
]


def chosen(text: str) -> ModuleOp:
    """The module with what was decided for a GPU."""
    module = apply(parse(text), ["gpu-attach-device", *DEFAULT_PIPELINE])
    assert [kernel.schedule_kind() for kernel in kernels(module)] == [ATTENTION] * text.count("func.func")
    device = module.attributes["fused.device"]
    assert isinstance(device, DictionaryAttr)
    # Few matrices fill this one, so that blocks are as high as for many on another.
    module.attributes["fused.device"] = DictionaryAttr({**device.data, "processors": IntegerAttr(1, 64)})
    return module


def values(array: Array) -> Array:
    return computed(array).astype(np.float64)


@needs_cxx
def test_one_kernel_gives_what_the_reference_gives(monkeypatch: pytest.MonkeyPatch) -> None:
    module = chosen("".join(CASES))
    emulated = CudaOnCpu(apply(module.clone(), ["convert-fused-to-gpu"]))
    for text in CASES:
        whole = parse(text)
        name = function(whole).sym_name.data
        arguments = random_arguments(whole, 3)
        if name == "choice":
            arguments[-1][4] = False  # a query that is left no key
        if name == "bf16_choice":
            arguments[-1][..., ::3] = False
        if name == "bf16_added":
            arguments[-1].view(np.uint16)[2] = 0xFF7F  # the lowest number, which times log2(e) is none
        (wanted,) = evaluate(whole, arguments)
        results = [emulated.run(name, arguments, order)[0] for order in ORDERS.values()]
        limit = {"f64": 1e-13, "f16": 2e-3, "bf16": 2e-2}.get(name.split("_")[0], 1e-5)
        np.testing.assert_allclose(values(results[0]), values(wanted), rtol=limit, atol=limit, err_msg=name)
        assert all(result.tobytes() == results[0].tobytes() for result in results), name
        if "_" in name:  # rows that begin anywhere are copied element by element
            with monkeypatch.context() as patch:
                patch.setitem(ALIGNMENT, "argument", 4)
                (found,) = emulated.run(name, arguments)
            assert found.tobytes() == results[0].tobytes(), name


GROUPED = [
    attention("f16_causal", (1, 67, 64), (1, 70, 64), 64, "is_causal = true", "", "f16"),
    attention("bf16_choice", (1, 70, 128), (1, 131, 128), 64, "", "tensor<1x1x131xi1>", "bf16"),
]


@needs_cxx
def test_four_warps_multiply_together(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(blocks, "GROUP_BLOCKS", blocks.GROUP_BLOCKS[:1])
    module = apply(chosen("".join(GROUPED)), ["convert-fused-to-gpu"])
    assert "fo_group_turned_mma_bf16" in kernels_text(module) and "fo_group_mma_f16" in kernels_text(module)
    emulated = CudaOnCpu(module)
    for text in GROUPED:
        whole = parse(text)
        arguments, name = random_arguments(whole, 3), function(whole).sym_name.data
        (wanted,) = evaluate(whole, arguments)
        limit = 2e-3 if name[0] == "f" else 2e-2
        for order in ORDERS.values():
            (found,) = emulated.run(name, arguments, order)
            np.testing.assert_allclose(values(found), values(wanted), rtol=limit, atol=limit, err_msg=name)


@needs_cxx
@pytest.mark.parametrize("element", ["f32", "f16"])
def test_rows_of_nothing_but_infinity_are_nan_as_the_ops_say(element: str) -> None:
    """Without a mask there is no 0 for such rows; a NaN in a key is one of every query."""
    text = attention("main", (1, 20, 8), (1, 40, 8), 8, "", "", element)
    emulated = CudaOnCpu(apply(chosen(text), ["convert-fused-to-gpu"]))
    for spoiled in (-np.inf, np.inf, np.nan):
        q, k, v = random_arguments(parse(text), 3)
        q[:], k[0, 35, 2] = np.abs(q), spoiled
        q[0, 3, 2] = np.inf
        with np.errstate(all="ignore"):
            (wanted,) = evaluate(parse(text), [q, k, v])
        limit = 1e-5 if element == "f32" else 2e-3
        np.testing.assert_allclose(emulated.run("main", [q, k, v], 0)[0], wanted, rtol=limit, atol=limit)


@needs_nvcc
@pytest.mark.parametrize("element", ["f32", "f16"])
def test_no_register_is_spilled(tmp_path: Path, element: str) -> None:
    texts = [
        attention(f"w{width}", (2, 8, 256, width), (2, 8, 300, width), width, "is_causal = true", "", element)
        for width in (64, 128, 256)
    ]
    module = apply(chosen("".join(texts)), ["convert-fused-to-gpu"])
    check_resources(module, tmp_path)
    assert ("fo_mma_f16" in kernels_text(module)) == (element == "f16")


@needs_cxx
def test_only_what_is_rounded_to_their_type_has_rounded_weights() -> None:
    """A result of f32 keeps weights of f32, and a device without such units the kernel for all."""
    narrow = attention("main", (2, 64, 32), (2, 64, 32), 32, "", "", "bf16")
    wide = """
func.func @main(%q: tensor<2x64x32xbf16>, %k: tensor<2x64x32xbf16>, %v: tensor<2x64x32xbf16>) -> tensor<2x64x32xf32> {
  %a = graph.astype %q {dtype = f32} : (tensor<2x64x32xbf16>) -> tensor<2x64x32xf32>
  %b = graph.astype %k {dtype = f32} : (tensor<2x64x32xbf16>) -> tensor<2x64x32xf32>
  %c = graph.astype %v {dtype = f32} : (tensor<2x64x32xbf16>) -> tensor<2x64x32xf32>
  %y = graph.scaled_dot_product_attention %a, %b, %c
    : (tensor<2x64x32xf32>, tensor<2x64x32xf32>, tensor<2x64x32xf32>) -> tensor<2x64x32xf32>
  func.return %y : tensor<2x64x32xf32>
}"""
    old = apply(parse(narrow), ["gpu-attach-device{device=t4}", *DEFAULT_PIPELINE])
    texts = [
        kernels_text(apply(module.clone(), ["convert-fused-to-gpu"])) for module in (chosen(narrow), chosen(wide), old)
    ]
    assert ["fo_mma_bf16" in text for text in texts] == [True, False, False]
    assert "fo_async" not in texts[2]
    arguments = random_arguments(parse(narrow), 3)
    (wanted,) = evaluate(parse(narrow), arguments)
    (found,) = CudaOnCpu(apply(old, ["convert-fused-to-gpu"])).run("main", arguments)
    np.testing.assert_allclose(values(found), values(wanted), rtol=1e-2, atol=1e-2)


def test_what_is_no_softmax_falls_apart() -> None:
    """Weights that are returned, too, and other norms of rows: products of a library, and kernels between them."""
    text = """
func.func @main(%q: tensor<8x64x32xf32>, %k: tensor<8x64x32xf32>, %v: tensor<8x64x32xf32>) -> tensor<8x64x32xf32> {
  %s = graph.matmul %q, %k {transpose_rhs = true} : (tensor<8x64x32xf32>, tensor<8x64x32xf32>) -> tensor<8x64x64xf32>
  %t = graph.sum %s {axes = array<i64: 2>, keepdims = true} : (tensor<8x64x64xf32>) -> tensor<8x64x1xf32>
  %p = graph.divide %s, %t : (tensor<8x64x64xf32>, tensor<8x64x1xf32>) -> tensor<8x64x64xf32>
  %y = graph.matmul %p, %v : (tensor<8x64x64xf32>, tensor<8x64x32xf32>) -> tensor<8x64x32xf32>
  func.return %y : tensor<8x64x32xf32>
}"""
    module = apply(parse(text), ["gpu-attach-device", *DEFAULT_PIPELINE])
    assert ATTENTION not in [kernel.schedule_kind() for kernel in kernels(module)]
