"""Programs written out in primitive ops, with the number of kernels that fusion must make of each: `PROGRAMS`."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True)
class Program:
    """A program; `kernels` of it are generated code. `what` describes it in the table of docs/fusion.md."""

    name: str
    what: str
    text: str
    kernels: int = 1


def program(name: str, what: str, arguments: str, lines: str, results: str, kernels: int = 1) -> Program:
    """
    A program in short form. `arguments` and types are `name:extents` (`x:64x128`), all of f32; a line is
    `name = op operands {attributes} : extents`, a number among the operands becomes a constant.
    """
    types: dict[str, str] = {}
    body: list[str] = []
    for word in arguments.split():
        argument, _, extents = word.partition(":")
        types[argument] = _tensor(extents)
    signature = ", ".join(f"%{argument}: {type_}" for argument, type_ in types.items())
    for line in filter(None, map(str.strip, lines.splitlines())):
        _add(line, types, body)
    outs = results.split()
    returned = ", ".join(types[out] for out in outs)
    named = ", ".join(f"%{out}" for out in outs)
    body.append(f"func.return {named} : {returned}")
    joined = "\n".join(f"  {line}" for line in body)
    return Program(name, what, f"func.func @main({signature}) -> ({returned}) {{\n{joined}\n}}\n", kernels)


def _tensor(extents: str) -> str:
    return f"tensor<{extents}xf32>" if extents else "tensor<f32>"


_LINE = re.compile(r"(\w+) = (\w+) ([^{:]*)(\{.*\})?\s*:\s*([\dx]*)")


def _add(line: str, types: dict[str, str], body: list[str]) -> None:
    found = _LINE.fullmatch(line)
    assert found is not None, line
    result, op, operands, attributes, extents = found.groups()
    names = [_operand(word, types, body) for word in operands.split()]
    inputs = ", ".join(types[name] for name in names)
    types[result] = _tensor(extents)
    values = ", ".join(f"%{name}" for name in names)
    body.append(f"%{result} = graph.{op} {values} {attributes or ''} : ({inputs}) -> {types[result]}")


def _operand(word: str, types: dict[str, str], body: list[str]) -> str:
    if word in types:
        return word
    name = f"const{len(types)}"
    types[name] = "tensor<f32>"
    body.append(f"%{name} = graph.constant dense<{float(word):.9e}> : tensor<f32>")
    return name


_AXIS = "{axes = array<i64: 1>, keepdims = true}"
_NORM = f"""
    t = sum h {_AXIS} : 64x1
    mean = multiply t 0.0078125 : 64x1
    d = subtract h mean : 64x128
    q = square d : 64x128
    v = sum q {_AXIS} : 64x1
    w = multiply v 0.0078125 : 64x1
    e = add w 1e-5 : 64x1
    i = rsqrt e : 64x1
    n = multiply d i : 64x128
    ng = multiply n g : 64x128
    y = add ng b : 64x128
"""
_ADAM = """
    gg = square g : 512x256
    m1 = multiply m 0.9 : 512x256
    m2 = multiply g 0.1 : 512x256
    mo = add m1 m2 : 512x256
    v1 = multiply v 0.999 : 512x256
    v2 = multiply gg 0.001 : 512x256
    vo = add v1 v2 : 512x256
    r = sqrt vo : 512x256
    s = add r 1e-8 : 512x256
    u = divide mo s : 512x256
    l = multiply u 1e-3 : 512x256
    po = subtract p l : 512x256
"""
_LSTM = "\n".join(
    f"{gate} = slice z {{starts = array<i64: 0, {64 * k}>, stops = array<i64: 32, {64 * (k + 1)}>}} : 32x64"
    for k, gate in enumerate(("zi", "zf", "zg", "zo"))
)


def _chains(count: int) -> Program:
    lengths = [900 + 7 * k for k in range(count)]
    lines = "\n".join(f"a{k} = exp x{k} : {n}\nb{k} = add a{k} x{k} : {n}" for k, n in enumerate(lengths))
    arguments = " ".join(f"x{k}:{n}" for k, n in enumerate(lengths))
    results = " ".join(f"b{k}" for k in range(count))
    return program("small_chains", f"{count} independent chains of about 1000 elements", arguments, lines, results)


PROGRAMS: Sequence[Program] = (
    program("gelu_tanh", "GELU, tanh form", "x:64x128", """
        c2 = square x : 64x128
        c3 = multiply c2 x : 64x128
        k = multiply c3 0.044715 : 64x128
        s = add x k : 64x128
        u = multiply s 0.7978845608 : 64x128
        t = tanh u : 64x128
        o = add t 1.0 : 64x128
        h = multiply x 0.5 : 64x128
        y = multiply h o : 64x128""", "y"),
    program("gelu_erf", "GELU, erf form", "x:64x128", """
        u = multiply x 0.70710678 : 64x128
        t = erf u : 64x128
        o = add t 1.0 : 64x128
        h = multiply x 0.5 : 64x128
        y = multiply h o : 64x128""", "y"),
    program("softmax", "softmax", "x:64x128", f"""
        m = max x {_AXIS} : 64x1
        d = subtract x m : 64x128
        e = exp d : 64x128
        t = sum e {_AXIS} : 64x1
        y = divide e t : 64x128""", "y"),
    program("log_softmax", "log_softmax", "x:64x128", f"""
        m = max x {_AXIS} : 64x1
        d = subtract x m : 64x128
        e = exp d : 64x128
        t = sum e {_AXIS} : 64x1
        l = log t : 64x1
        y = subtract d l : 64x128""", "y"),
    program("logsumexp", "logsumexp", "x:64x128", f"""
        m = max x {_AXIS} : 64x1
        d = subtract x m : 64x128
        e = exp d : 64x128
        t = sum e {_AXIS} : 64x1
        l = log t : 64x1
        y = add l m : 64x1""", "y"),
    program("layer_norm_residual_mask", "layer norm of a masked residual sum",
        "x:64x128 r:64x128 k:64x128 g:128 b:128", "xm = multiply x k : 64x128\nh = add xm r : 64x128" + _NORM, "y h"),
    program("rms_norm", "rms_norm", "h:64x128 g:128", f"""
        q = square h : 64x128
        v = sum q {_AXIS} : 64x1
        w = multiply v 0.0078125 : 64x1
        e = add w 1e-6 : 64x1
        i = rsqrt e : 64x1
        n = multiply h i : 64x128
        y = multiply n g : 64x128""", "y"),
    program("group_norm", "group norm, 4 groups of 8 channels", "x:2x32x8x8 g:32x1x1 b:32x1x1", """
        h = reshape x {shape = array<i64: 2, 4, 512>} : 2x4x512
        t = sum h {axes = array<i64: 2>, keepdims = true} : 2x4x1
        mean = multiply t 0.001953125 : 2x4x1
        d = subtract h mean : 2x4x512
        q = square d : 2x4x512
        v = sum q {axes = array<i64: 2>, keepdims = true} : 2x4x1
        w = multiply v 0.001953125 : 2x4x1
        e = add w 1e-5 : 2x4x1
        i = rsqrt e : 2x4x1
        n = multiply d i : 2x4x512
        f = reshape n {shape = array<i64: 2, 32, 8, 8>} : 2x32x8x8
        ng = multiply f g : 2x32x8x8
        y = add ng b : 2x32x8x8""", "y"),
    program("mean_and_var", "mean and variance of one value", "x:64x128", f"""
        t = sum x {_AXIS} : 64x1
        mean = multiply t 0.0078125 : 64x1
        d = subtract x mean : 64x128
        q = square d : 64x128
        v = sum q {_AXIS} : 64x1
        var = multiply v 0.0078125 : 64x1""", "mean var"),
    program("sum_and_max", "two reductions of one value", "x:64x128", f"""
        t = sum x {_AXIS} : 64x1
        m = max x {_AXIS} : 64x1""", "t m"),
    program("adam", "Adam step, three results", "p:512x256 g:512x256 m:512x256 v:512x256", _ADAM, "po mo vo"),
    program("lstm_pointwise", "LSTM cell, pointwise part", "z:32x256 c:32x64", _LSTM + """
        i = sigmoid zi : 32x64
        f = sigmoid zf : 32x64
        k = tanh zg : 32x64
        o = sigmoid zo : 32x64
        fc = multiply f c : 32x64
        ik = multiply i k : 32x64
        co = add fc ik : 32x64
        tc = tanh co : 32x64
        ho = multiply o tc : 32x64""", "ho co"),
    _chains(32),
    program("batch_norm_relu_residual", "batch norm (inference), relu, residual",
        "x:8x32x28x28 r:8x32x28x28 mean:32x1x1 var:32x1x1 g:32x1x1 b:32x1x1", """
        e = add var 1e-5 : 32x1x1
        i = rsqrt e : 32x1x1
        s = multiply g i : 32x1x1
        d = subtract x mean : 8x32x28x28
        n = multiply d s : 8x32x28x28
        z = add n b : 8x32x28x28
        a = add z r : 8x32x28x28
        y = relu a : 8x32x28x28""", "y"),
    program("swiglu", "SwiGLU, pointwise part", "h:64x256", """
        a = slice h {starts = array<i64: 0, 0>, stops = array<i64: 64, 128>} : 64x128
        u = slice h {starts = array<i64: 0, 128>, stops = array<i64: 64, 256>} : 64x128
        s = sigmoid a : 64x128
        t = multiply a s : 64x128
        y = multiply t u : 64x128""", "y"),
)  # fmt: skip
