"""Say for which GPU a module's kernels are made: how much its blocks and processors hold."""

from __future__ import annotations

from dataclasses import dataclass

from xdsl.context import Context
from xdsl.dialects.builtin import DictionaryAttr, ModuleOp
from xdsl.passes import ModulePass

from fuse_opt.dialects.gpu.kernels import DEVICE
from fuse_opt.dialects.interfaces.properties import int_value
from fuse_opt.passes.devices.device import device_names, find_device


@dataclass(frozen=True)
class GpuAttachDevicePass(ModulePass):
    """Writes the figures of a GPU on the module, from `device_NAME.toml` or the file of that path.

    ```mlir
    builtin.module { ... }
    ```
    becomes
    ```mlir
    builtin.module attributes {fused.device = {processors = 132 : i64, shared_memory = 232448 : i64, ...}} { ... }
    ```
    `convert-fused-to-gpu` goes by them when it chooses how kernels run; without them it goes by an H100's.

    Requires: a device whose file has the table `gpu`. Ensures: nothing but the attribute changes.
    """

    name = "gpu-attach-device"

    device: str = "h100"
    """A GPU's name, such as h100, or the path of a .toml file with a table `gpu` like its own."""

    def __post_init__(self) -> None:
        if not find_device(self.device).gpu:
            known = [name for name in device_names() if find_device(name).gpu]
            raise ValueError(
                f"option 'device': '{self.device}' is no GPU; expected one of {', '.join(known)} or a file"
            )

    def apply(self, ctx: Context, op: ModuleOp) -> None:
        numbers = {name: int_value(value) for name, value in find_device(self.device).gpu}
        op.attributes[DEVICE] = DictionaryAttr(numbers)
