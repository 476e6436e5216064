"""Say for which GPU a module's kernels are made: how much its blocks and processors hold."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

from xdsl.context import Context
from xdsl.dialects.builtin import DictionaryAttr, IntegerAttr, ModuleOp, StringAttr
from xdsl.passes import ModulePass

from fuse_opt.dialects.gpu.kernels import DEVICE
from fuse_opt.dialects.interfaces.properties import int_value
from fuse_opt.passes.devices.device import Device, device_names, find_device, generations, nearest_gpu
from fuse_opt.passes.remarks import RefusedError

DEFAULT_GPU = "h100"
"""What kernels are made for where nothing is said."""


@dataclass(frozen=True)
class GpuAttachDevicePass(ModulePass):
    """Writes the figures of a GPU on the module, from `device_NAME.toml` or the file of that path.

    ```mlir
    builtin.module { ... }
    ```
    becomes
    ```mlir
    builtin.module attributes {fused.device = {name = "h100", processors = 132 : i64, shared_memory = 232448 : i64, ...}} { ... }
    ```
    `convert-fused-to-gpu` goes by them when it chooses how kernels run; without them it goes by an H100's. The module is made
    for CUDA from then on: costs are those of the device, and fusion and `select-implementation` ask no other implementations.

    Requires: a device whose file has the table `gpu`. Ensures: nothing but the attribute changes.
    """

    name = "gpu-attach-device"

    device: str = DEFAULT_GPU
    """A GPU's name, such as h100, or the path of a .toml file with a table `gpu` like its own."""

    def __post_init__(self) -> None:
        if not find_device(self.device).gpu:
            known = [name for name in device_names() if find_device(name).gpu]
            raise ValueError(
                f"option 'device': '{self.device}' is no GPU; expected one of {', '.join(known)} or a file"
            )

    def apply(self, ctx: Context, op: ModuleOp) -> None:
        attach_device(op, self.device)


def attach_device(module: ModuleOp, device: str) -> None:
    """Writes the figures of a GPU on the module. Raises ValueError for a device that is not known."""
    numbers = {name: int_value(value) for name, value in find_device(device).gpu}
    module.attributes[DEVICE] = DictionaryAttr({"name": StringAttr(device), **numbers})


def make_for(module: ModuleOp, target: str) -> None:
    """Makes a module one for "cuda", where it names no GPU for an H100, or for "cpu"."""
    if target == "cpu":
        module.attributes.pop(DEVICE, None)
    elif target == "cuda" and DEVICE not in module.attributes:
        attach_device(module, DEFAULT_GPU)


def attach_found(module: ModuleOp, title: str, figures: Mapping[str, int]) -> None:
    """
    Makes a module one for a device that is there, where it names no GPU: with the figures that the device's driver gives, and
    for what no driver says those of the file that is nearest to them.

    `title` is what the driver calls the device, such as "NVIDIA A100-SXM4-80GB"; figures are named as in the table `gpu` of a
    file, with `cache_bytes` and `bandwidth`; those that are 0 are not known.
    """
    if DEVICE in module.attributes:
        return
    near = nearest_gpu(title, figures)
    numbers = {**dict(near.gpu), **{name: value for name, value in figures.items() if value > 0}}
    entries = {name: int_value(value) for name, value in numbers.items()}
    module.attributes[DEVICE] = DictionaryAttr({"name": StringAttr(near.name), **entries})


def attached_device(module: ModuleOp) -> str:
    """The device that a module is made for, as it was named: "cpu" without an attribute, and "h100" for figures alone."""
    found = module.attributes.get(DEVICE)
    if not isinstance(found, DictionaryAttr):
        return "cpu"
    name = found.data.get("name")
    return name.data if isinstance(name, StringAttr) else DEFAULT_GPU


def device_of(module: ModuleOp) -> Device:
    """The device that a module is made for, with the figures that its attribute has for costs. Raises ValueError."""
    device, found = find_device(attached_device(module)), module.attributes.get(DEVICE)
    if not isinstance(found, DictionaryAttr):
        return device
    given = {name: found.data.get(name) for name in ("processors", "cache_bytes", "bandwidth")}
    numbers = {name: value.value.data for name, value in given.items() if isinstance(value, IntegerAttr)}
    asked = found.data.get("capability")
    if isinstance(asked, IntegerAttr) and asked.value.data > 0:
        # Of the device that is there: the file may be another one's.
        device = replace(device, features=generations(asked.value.data))
    return replace(device, **{name: value for name, value in numbers.items() if value > 0})


def attached_machine(pass_name: str, device: str, op: ModuleOp) -> Device:
    """The device of that name, or without a name the one that the module is made for. Raises RefusedError for an unknown one."""
    try:
        return find_device(device) if device else device_of(op)
    except ValueError as error:
        raise RefusedError(f"'{pass_name}': attribute '{DEVICE}': {error}; run gpu-attach-device again", op) from None
