"""Special functions and the parts of floats by torch.compile: code of the program, and PyTorch's values."""

from typing import Any

import pytest
from torch_testing import check, external, torch
from torch_testing import fresh as fresh

EDGES = [0.0, -0.0, 1.0, -1.0, 0.5, -2.0, float("inf"), -float("inf"), float("nan"), 1e-40, -3.7, 20.0]


@pytest.mark.parametrize("name", ["digamma", "erfinv", "special.i0e", "special.i1e"])
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_functions(name: str, dtype: str):
    place: Any = torch
    for part in name.split("."):
        place = getattr(place, part)

    def function(x: Any) -> Any:
        return place(x) + 1

    x = torch.cat([torch.linspace(-0.99, 9.0, 301), torch.tensor(EDGES)]).to(getattr(torch, dtype))
    assert external(check(function, x)) == {}


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_parts(dtype: str):
    def function(x: Any, y: Any) -> Any:
        fraction, exponent = torch.frexp(x)
        return torch.signbit(x), torch.nextafter(x, y), fraction, exponent + 1

    x = torch.tensor(EDGES).to(getattr(torch, dtype))
    assert external(check(function, x, x.flip(0), tolerance=0)) == {}
