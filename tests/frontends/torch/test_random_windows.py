"""Random layers of any extents."""

from __future__ import annotations

from draws import draws
from torch_windows import faults


def test_random_layers_of_any_extents() -> None:
    assert not [fault for seed in draws(8) for fault in faults(seed)]
