"""How the tests of the torch.compile backend compile, compare and look; importing it skips a module where PyTorch is missing."""

from collections.abc import Callable, Iterator
from typing import Any

import pytest

torch: Any = pytest.importorskip("torch", reason="the torch backend needs PyTorch, which is not installed here")

from fuse_opt.frontends.torch import collect_reports, fuse_opt  # noqa: E402


@pytest.fixture(autouse=True)
def fresh() -> Iterator[None]:
    torch._dynamo.reset()
    torch.manual_seed(0)
    yield


def compiled(function: Any, **options: Any) -> Any:
    return torch.compile(function, backend=fuse_opt, fullgraph=True, **{"dynamic": False, **options})


def check(function: Callable[..., Any], *arguments: Any, tolerance: float = 1e-5) -> list[Any]:
    """Compares two calls with eager, and looks at the first results again after the second call; gives the reports."""
    fast = compiled(function)
    with collect_reports() as reports:
        first = fast(*arguments)
    kept = [value.clone() for value in leaves(first)]
    wanted = leaves(function(*arguments))
    second = leaves(fast(*arguments))
    assert reports.graphs, "the backend compiled nothing"
    for values in (leaves(first), second):
        for value, expected, before in zip(values, wanted, kept, strict=True):
            assert value.dtype == expected.dtype and value.shape == expected.shape
            assert value.stride() == expected.stride() or 1 in value.shape or value.numel() == 0
            torch.testing.assert_close(value, expected, rtol=tolerance, atol=tolerance, equal_nan=True)
            torch.testing.assert_close(value, before, rtol=0, atol=0, equal_nan=True)
    return reports.graphs


def leaves(value: Any) -> list[Any]:
    if isinstance(value, torch.Tensor):
        return [value]
    return [item for part in value for item in leaves(part)]


def external(reports: list[Any]) -> dict[str, int]:
    return {name: count for report in reports for name, count in report.counts.external.items()}


def code(function: Any, directory: Any, *arguments: Any) -> str:
    """The text of the function that runs the graph."""
    compiled(function, options={"dump": str(directory)})(*arguments)
    (path,) = directory.glob("*_call.py")
    return path.read_text()
