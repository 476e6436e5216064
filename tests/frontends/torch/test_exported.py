"""Programs of torch.export: one for the range of each `Dim`, which errors name; state and arguments are written to as before."""

from __future__ import annotations

from typing import Any

import pytest

torch: Any = pytest.importorskip("torch")

from fuse_opt.frontends.torch import collect_reports, compile_exported  # noqa: E402


class Steps(torch.nn.Module):
    """A linear layer that counts its calls, and joins a tail of twice the rows to its rows."""

    def __init__(self) -> None:
        super().__init__()  # pyright: ignore[reportUnknownMemberType]
        self.layer = torch.nn.Linear(8, 5)
        self.register_buffer("calls", torch.zeros(2))

    def forward(self, x: Any, tail: Any, scale: int) -> tuple[Any, Any]:
        self.calls.add_(1)
        y = torch.nn.functional.gelu(self.layer(x)) * scale
        tail.mul_(2)
        return torch.cat([y, tail]), x.shape[0] * y.sum(0)


def exported() -> tuple[Any, Any, Any]:
    torch.manual_seed(3)
    rows = torch.export.Dim("rows", min=2, max=64)
    shapes = ({0: rows}, {0: 2 * rows}, None)
    model = Steps().eval()
    program = torch.export.export(model, (torch.randn(7, 8), torch.randn(14, 5), 3), dynamic_shapes=shapes)
    return model, program, shapes


@pytest.mark.filterwarnings("ignore")
def test_one_program_for_the_range_of_a_dimension():
    model, program, shapes = exported()
    with collect_reports() as reports:
        fast = compile_exported(program, shapes)
        for rows in (2, 64, 13, 2):
            x, tail = torch.randn(rows, 8), torch.randn(2 * rows, 5)
            other = tail.clone()
            for found, wanted in zip(fast(x, tail, 3), model(x, other, 3), strict=True):
                torch.testing.assert_close(found, wanted, rtol=1e-5, atol=1e-5)
            torch.testing.assert_close(tail, other)
    assert [len(graph.symbols) for graph in reports.graphs] == [1]
    torch.testing.assert_close(program.state_dict["calls"], model.calls)

    wrong = [
        (ValueError, "extent 'rows': argument 0, axis 0 has 65; expected 2 to 64", (65, 8), (130, 5), 3),
        (ValueError, r"extent '2\*rows.*': argument 1, axis 0 has 15; expected 14 with 'rows' 7", (7, 8), (15, 5), 3),
        (ValueError, "argument 0, axis 1 has 9; expected 8", (7, 9), (14, 5), 3),
        (ValueError, "argument 2: expected 3, as it was exported with, got 4", (7, 8), (14, 5), 4),
        (TypeError, "argument 1: expected a tensor of torch.float32 with 2 axes", (7, 8), (14,), 3),
    ]
    for kind, message, first, second, scale in wrong:
        with pytest.raises(kind, match=message):
            fast(torch.randn(first), torch.randn(second), scale)
    with pytest.raises(TypeError, match="expected arguments as"):
        fast(torch.randn(7, 8))
    with pytest.raises(ValueError, match="one entry for each of 3 arguments, got 1"):
        compile_exported(program, ({0: torch.export.Dim("rows")},))
