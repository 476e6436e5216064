"""Who runs a model that is not taken: onnxruntime where it is installed and takes it, else ONNX's own reference."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Hashable, Sequence
from contextlib import suppress
from importlib import import_module
from typing import Any

from fuse_opt.frontends.onnx.operators.node import onnx_module


class Peer:
    """A model as others run it, of the same arrays in the same order."""

    def __init__(self, proto: Any) -> None:
        self._proto = proto
        self.name, self._run = self._by_runtime() or self._by_reference()

    def __call__(self, arrays: Sequence[Any]) -> tuple[Any, ...]:
        graph = self._proto.graph
        stored = {tensor.name for tensor in (*graph.initializer, *graph.sparse_initializer)}
        names = [value.name for value in graph.input if len(arrays) == len(graph.input) or value.name not in stored]
        return tuple(self._run(None, dict(zip(names, arrays, strict=True))))

    def _by_runtime(self) -> tuple[str, Callable[..., Any]] | None:
        with suppress(Exception):  # whatever onnxruntime has against a model
            runtime: Any = import_module("onnxruntime")
            session = runtime.InferenceSession(self._proto.SerializeToString(), providers=["CPUExecutionProvider"])
            return "onnxruntime", session.run
        return None

    def _by_reference(self) -> tuple[str, Callable[..., Any]]:
        return "ONNX's reference", onnx_module("onnx.reference").ReferenceEvaluator(self._proto).run


class NotTakenError(Exception):
    """A program that cannot be compiled; the message says why."""


class Left:
    """The calls of a model that are left to a peer: all, or those of some shapes."""

    def __init__(self, proto: Any, strict: bool) -> None:
        self.strict = strict
        self._proto = proto
        self._peer: Peer | None = None
        self._reasons: dict[Hashable, Exception] = {}

    def reason(self, key: Hashable) -> Exception | None:
        """Why calls of these shapes are the peer's; None where they are not known to be."""
        return self._reasons.get(key)

    def run(self, error: Exception, arrays: Sequence[Any], key: Hashable = None) -> tuple[Any, ...]:
        """What the peer gives, with one warning that says why it is asked. Raises the error where it is to be strict."""
        if self.strict:
            raise error
        self._reasons[key] = error
        if self._peer is None:
            try:
                self._peer = Peer(self._proto)
            except Exception:  # nobody runs it: what is to be said is why we do not
                raise error from None
            text = str(error).partition("\n")[0]
            message = f"fuse_opt leaves an ONNX model to {self._peer.name}: {text}"
            warnings.warn(message, RuntimeWarning, stacklevel=4)
        return self._peer(arrays)
