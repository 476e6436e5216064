"""Parameters under inference: what follows from them is kept, and follows every way in which they change."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

torch: Any = pytest.importorskip("torch")

import fuse_opt.frontends.torch as backend  # noqa: E402


def model() -> Any:
    torch.manual_seed(0)
    layers = torch.nn
    made = layers.Sequential(layers.Linear(160, 240), layers.GELU(), layers.BatchNorm1d(240), layers.Linear(240, 100))
    return made.eval()


def compiled(module: Any, **options: Any) -> Any:
    torch._dynamo.reset()
    return torch.compile(module, backend="fuse_opt", dynamic=False, options={"strict": True, **options})


def check(call: Any, module: Any, x: Any) -> None:
    torch.testing.assert_close(call(x), module(x), rtol=1e-4, atol=1e-4)


def replace(module: Any) -> None:
    module[3].weight = torch.nn.Parameter(torch.randn(100, 240))


def swap_data(module: Any) -> None:
    module[0].weight.data = torch.randn(240, 160)


CHANGES: list[Callable[[Any], Any]] = [
    lambda module: module[0].weight.mul_(2),
    lambda module: module[2].running_var.add_(1),
    lambda module: module[3].weight[:7].zero_(),
    lambda module: module[3].weight.detach().t().add_(1),
    replace,
    swap_data,
    lambda module: module[0].weight.data.mul_(0.5),
    lambda module: module[3].weight.detach().numpy().__imul__(2),
    lambda module: torch._foreach_add_([module[0].bias.data, module[2].running_mean.data], 0.5),
    lambda module: module[3].weight.data[-1].add_(1),
    lambda module: module.load_state_dict({name: value * 0.5 for name, value in module.state_dict().items()}),
]


def test_results_follow_parameters() -> None:
    module, x = model(), torch.randn(40, 160)
    with backend.collect_reports() as reports, torch.no_grad():
        call = compiled(module)
        check(call, module, x)
        assert reports.graphs[0].stats.prepared_bytes >= 4 * (160 * 240 + 240 * 100)
        for change in CHANGES:
            change(module)
            for _ in range(2):
                check(call, module, x)


def test_batch_norm_is_in_the_weights() -> None:
    torch.manual_seed(0)
    layers = torch.nn
    convolutions = [layers.Conv2d(8, 16, 3), layers.Conv2d(16, 16, 3, groups=16, bias=False)]
    module = layers.Sequential(*(each for conv in convolutions for each in (conv, layers.BatchNorm2d(16)))).eval()
    for norm in (module[1], module[3]):
        for values in (norm.weight, norm.bias, norm.running_mean, norm.running_var):
            layers.init.uniform_(values, 0.5, 2)
    x = torch.randn(2, 8, 12, 12)
    with backend.collect_reports() as reports, torch.no_grad():
        call = compiled(module)
        check(call, module, x)
        assert reports.graphs[0].stats.prepared_bytes >= 4 * (16 * 8 + 16) * 9
        for change in (module[1].running_var.mul_, module[3].weight.mul_, module[2].weight.mul_):
            change(2)
            check(call, module, x)


def test_parameters_are_known_behind_what_is_rewritten() -> None:
    torch.manual_seed(0)
    module, x = torch.nn.Sequential(torch.nn.Linear(160, 240), torch.nn.Dropout(0.1)).eval(), torch.randn(40, 160)
    with backend.collect_reports() as reports, torch.no_grad():
        check(compiled(module), module, x)
    assert reports.graphs[0].stats.prepared_bytes >= 4 * 160 * 240


def test_without_freezing_nothing_is_kept() -> None:
    module, x = model(), torch.randn(40, 160)
    with backend.collect_reports() as reports, torch.no_grad():
        check(compiled(module, freezing=False), module, x)
    assert reports.graphs[0].stats.prepared_bytes == 0


def test_training_keeps_nothing() -> None:
    module, x = model(), torch.randn(40, 160)
    with backend.collect_reports() as reports:
        check(compiled(module), module, x)
    assert [graph.stats.prepared_bytes for graph in reports.graphs] == [0]


def test_parameters_that_do_not_count_writes() -> None:
    with torch.inference_mode():
        module, x = model(), torch.randn(40, 160)
        call = compiled(module)
        check(call, module, x)
        module[0].weight.mul_(2)
        check(call, module, x)


def test_programs_for_other_extents_share_what_is_kept() -> None:
    module = model()
    with torch.no_grad():
        calls = {rows: compiled(module) for rows in (40, 50)}
        for rows, call in calls.items():
            check(call, module, torch.randn(rows, 160))
        module[0].weight.add_(1)
        for rows, call in calls.items():
            check(call, module, torch.randn(rows, 160))


def test_threads_share_a_model() -> None:
    module = model()
    inputs = [torch.randn(40, 160) for _ in range(4)]
    with torch.no_grad():
        call = compiled(module)
        check(call, module, inputs[0])

        def run(number: int) -> Any:
            with torch.no_grad():
                return [call(inputs[number]) for _ in range(25)][-1]

        with ThreadPoolExecutor(4) as pool:
            for factor in (2, 0.25):  # the second time there are frames with addresses of what was kept before
                module[3].weight.mul_(factor)
                wanted = [module(x) for x in inputs]
                for got, value in zip(pool.map(run, range(4)), wanted, strict=True):
                    torch.testing.assert_close(got, value, rtol=1e-4, atol=1e-4)


def test_freezing_is_yes_or_no() -> None:
    with pytest.raises(Exception, match="option 'freezing': expected True or False, got 1"):
        compiled(model(), freezing=1)(torch.randn(40, 160))
