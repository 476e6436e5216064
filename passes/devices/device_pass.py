"""What passes whose choices depend on a machine share: the option that names it."""

from __future__ import annotations

from abc import ABC
from dataclasses import dataclass

from xdsl.dialects.builtin import ModuleOp
from xdsl.passes import ModulePass

from fuse_opt.passes.devices.device import Device, find_device
from fuse_opt.passes.devices.gpu_attach_device import attached_machine


@dataclass(frozen=True)
class DevicePass(ModulePass, ABC):
    """A pass that works out costs for a device: the one that a person names, or the one that the module is made for."""

    device: str = ""
    """
    What costs are worked out for: a device's name, such as cpu or h100, or the path of a .toml file like theirs. Without a word
    what the module is made for (see gpu-attach-device), or else cpu.
    """

    def __post_init__(self) -> None:
        if self.device:
            find_device(self.device)

    def machine(self, module: ModuleOp) -> Device:
        """The device. Raises RefusedError where the module names an unknown one."""
        return attached_machine(self.name, self.device, module)
