"""The interface of ONNX's own test suite and of its users: `prepare(model)` and `run(inputs)`.

import onnx.backend.test
from fuse_opt.frontends.onnx_backend import FuseOptBackend
globals().update(onnx.backend.test.BackendTest(FuseOptBackend, __name__).test_cases)
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, cast

from fuse_opt.frontends.builder import Array
from fuse_opt.frontends.onnx.model import OnnxModel, load
from fuse_opt.frontends.onnx.operators.node import UnsupportedError, onnx_module

if TYPE_CHECKING:
    Backend: Any = object
    BackendRep: Any = object
else:
    Backend, BackendRep = (getattr(onnx_module("onnx.backend.base"), name) for name in ("Backend", "BackendRep"))


class FuseOptRep(BackendRep):
    """A model that is ready to run; it is compiled for the shapes and, of some inputs, values that it meets."""

    def __init__(self, model: OnnxModel, target: str, pipeline: str | None) -> None:
        self.model = model
        self._target = target
        self._pipeline = pipeline

    def run(self, inputs: Any, **_: Any) -> tuple[Array, ...]:
        """The outputs for arrays in the order of the graph's inputs; what is not supported is declined as in `prepare`."""
        arrays = list(cast("Sequence[Any]", inputs)) if isinstance(inputs, list | tuple) else [inputs]
        try:
            return self.model(*arrays, target=self._target, pipeline=self._pipeline)
        except UnsupportedError as error:
            raise _declined(error) from error


class FuseOptBackend(Backend):
    """Declines what is not supported as ONNX's tests expect it, by BackendIsNotSupposedToImplementIt."""

    @classmethod
    def prepare(
        cls, model: Any, device: str = "CPU", *, target: str = "cpu", pipeline: str | None = None, **_: Any
    ) -> FuseOptRep:
        try:
            return FuseOptRep(load(model, strict=True), target, pipeline)
        except UnsupportedError as error:
            raise _declined(error) from error

    @classmethod
    def run_model(cls, model: Any, inputs: Any, device: str = "CPU", **options: Any) -> tuple[Array, ...]:
        return cls.prepare(model, device, **options).run(inputs)

    @classmethod
    def supports_device(cls, device: str) -> bool:
        return device == "CPU"


def _declined(error: UnsupportedError) -> Exception:
    declined: Exception = onnx_module("onnx.backend.test.runner").BackendIsNotSupposedToImplementIt(str(error))
    return declined
