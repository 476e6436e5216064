"""Texts of chains of products with their backward halves, for what computes values again."""

from __future__ import annotations

S = "tensor<256x256xf32>"
ONE = 4 * 256 * 256
"""Bytes of a value."""


def gradient(layers: int) -> str:
    """A chain of products and pointwise ops, and its backward half."""

    def ops(name: str, op: str, *operands: str) -> str:
        types = ", ".join([S] * len(operands))
        return f"%{name} = graph.{op} {', '.join(f'%{o}' for o in operands)} : ({types}) -> {S}"

    lines: list[str] = []
    for k in range(layers):
        lines += [ops(f"p{k}", "matmul", f"x{k}", "w"), ops(f"h{k}", "exp", f"p{k}"), ops(f"x{k + 1}", "tanh", f"h{k}")]
    grad = f"x{layers}"
    for k in reversed(range(layers)):
        lines += [ops(f"a{k}", "multiply", grad, f"h{k}"), ops(f"b{k}", "multiply", f"a{k}", f"x{k + 1}")]
        lines.append(ops(f"d{k}", "matmul", f"b{k}", "w"))
        grad = f"d{k}"
    body = "\n  ".join([*lines, f"func.return %{grad} : {S}"])
    return f"func.func @main(%x0: {S}, %w: {S}) -> {S} {{\n  {body}\n}}\n"
