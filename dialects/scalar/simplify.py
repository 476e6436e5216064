"""Algebra on scalar bodies: rules that change no bit of a result, and `fast` ones that may change its last digits.

A rule that is not fast holds for NaN, infinities, signed zeros, wrapped integers and rounding. Fast ones may take NaN,
infinities and signed zeros for other numbers, and round elsewhere. Every rule makes the body smaller or cheaper, so that
applying them comes to an end.
"""

from __future__ import annotations

from collections.abc import Sequence

from fuse_opt.dialects.scalar.evaluate import known
from fuse_opt.dialects.scalar.expr import PRIMITIVES, Scalar, topological
from fuse_opt.dialects.scalar.simplify_rules import COMPARISONS, EXACT, FAST, ROUNDINGS, Rule

_MEETS: dict[str, tuple[str, ...]] = {
    "neg": ("neg", "sub"),
    "not": ("not", *COMPARISONS),
    "abs": ("abs", "neg"),
    "add": ("add", "neg"),
    "sub": ("neg",),
    "select": ("not",),
    **dict.fromkeys(ROUNDINGS, (*ROUNDINGS, "cast")),
    **{primitive: (primitive,) for primitive in ("mul", "and", "or", "xor")},
}
"""By primitive: the primitives among its operands of which a rule says something."""
_MEETS_FAST = {"add": ("sub",), "sub": ("add", "sub"), "div": ("sqrt",)}


def simplified(body: Scalar, leaves: Sequence[Scalar], fast: bool = False) -> Scalar | None:
    """The body with its operands replaced, made simpler; None when no rule applies to that."""
    return _Simplifier(fast).simplified(body, leaves)


def may_reassociate(outer: Scalar, inner: Scalar, fast: bool = False) -> bool:
    """Whether a rule may apply to a primitive on the result of another one."""
    name = outer.function
    if inner.function == name and name in ("add", "mul") and outer.dtype.is_float and not fast:
        return False
    return inner.function in _MEETS.get(name, ()) or (fast and inner.function in _MEETS_FAST.get(name, ()))


def is_commutative(body: Scalar) -> bool:
    """Whether a body of two operands gives the same bits when they are swapped."""
    if len(body.args) != 2 or {(a.function, a.value) for a in body.args} != {("operand", 0), ("operand", 1)}:
        return False
    return PRIMITIVES[body.function].commutative or (
        body.function in ("max", "min") and not body.args[0].dtype.is_float
    )


def is_same(a: Scalar, b: Scalar) -> bool:
    """Whether two bodies are built alike."""
    return _structure(a) == _structure(b)


def _structure(body: Scalar) -> list[tuple[str, list[int], str, str]]:
    nodes = topological(body)
    places = {id(node): place for place, node in enumerate(nodes)}
    return [(n.function, [places[id(arg)] for arg in n.args], n.dtype.name, repr(n.value)) for n in nodes]


class _Simplifier:
    """Equal nodes are one object, so that `x is y` says that two values are equal."""

    def __init__(self, fast: bool) -> None:
        self._rules: tuple[Rule, ...] = (*EXACT, *(FAST if fast else ()))
        self._nodes: dict[tuple[str, tuple[int, ...], str, str], Scalar] = {}
        self._applied = False

    def simplified(self, body: Scalar, leaves: Sequence[Scalar]) -> Scalar | None:
        unique = [self._unique_tree(leaf) for leaf in leaves]
        found = self._rebuilt(body, unique)
        return found if self._applied else None

    def _unique(self, node: Scalar) -> Scalar:
        value = known(node) if node.function == "constant" else node.value
        key = (node.function, tuple(map(id, node.args)), node.dtype.name, repr(value))
        return self._nodes.setdefault(key, Scalar(node.function, node.args, node.dtype, value))

    def _unique_tree(self, root: Scalar) -> Scalar:
        done: dict[int, Scalar] = {}
        for node in topological(root):
            args = tuple(done[id(arg)] for arg in node.args)
            done[id(node)] = self._unique(Scalar(node.function, args, node.dtype, node.value))
        return done[id(root)]

    def _rebuilt(self, root: Scalar, leaves: Sequence[Scalar] | None) -> Scalar:
        """The same nodes with the rules applied to each, operands first; a rule's new nodes go through them, too."""
        done: dict[int, Scalar] = {}
        for node in topological(root):
            if node.function == "operand" and leaves is not None:
                done[id(node)] = leaves[int(node.value)]
                continue
            args = tuple(done[id(arg)] for arg in node.args)
            done[id(node)] = self._rewritten(self._unique(Scalar(node.function, args, node.dtype, node.value)))
        return done[id(root)]

    def _rewritten(self, node: Scalar) -> Scalar:
        if not node.args:
            return node
        for rule in self._rules:
            if (new := rule(node)) is not None:
                self._applied = True
                return self._rebuilt(new, None)
        return node
