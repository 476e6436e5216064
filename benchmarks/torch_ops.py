"""Functions of PyTorch, one at a time, through torch.compile beside eager: which are slower, and whether results agree.

    python benchmarks/torch_ops.py [--elements 250000 4000000] [--inductor] [--dynamic] [--only TEXT ...] [--seconds 0.3] [--all]

Calls are in turn, one thread each; `--dynamic` is of any extents. What Dynamo and the call cost is that of adding 1 to four
numbers behind a call of eager, as caches are cold then; it is taken away before ratios are built. Functions whose ratio is above
1.1, or whose results have other types, shapes, strides or values than eager's, are printed, worst first.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any, cast

from function_table import Measured, arguments_of, chosen, environment, in_turns, show
from torch_op_cases import arguments, cases, function

from fuse_opt.frontends.torch.fx.api import torch

TOLERANCE = {"torch.float16": 4e-3, "torch.bfloat16": 3e-2, "torch.float32": 1e-4, "torch.float64": 1e-9}


def compiled(call: Callable[..., Any], backend: str, dynamic: bool) -> Callable[..., Any]:
    torch._dynamo.reset()
    return torch.compile(call, backend=backend, dynamic=dynamic)


def add_one(x: Any) -> Any:
    return x + 1


def difference(ours: Any, eager: Any) -> str:
    """What is not as eager has it: empty where all is."""
    if isinstance(eager, tuple):
        pairs = zip(ours, cast("tuple[Any, ...]", eager), strict=True)
        return next((found for pair in pairs if (found := difference(*pair))), "")
    if (ours.dtype, ours.shape, ours.stride()) != (eager.dtype, eager.shape, eager.stride()):
        return f"{ours.dtype} {tuple(ours.shape)} {ours.stride()}, eager {eager.dtype} {tuple(eager.shape)} {eager.stride()}"
    bound = TOLERANCE.get(str(eager.dtype), 0.0)
    return "" if torch.allclose(ours.double(), eager.double(), bound, bound, equal_nan=True) else "other values"


def measure(text: str, given: Mapping[str, Any], peers: Sequence[str], seconds: float, dynamic: bool) -> Measured:
    call, values = function(text, given)
    one = torch.ones(4)
    calls: dict[str, Callable[[], Any]] = {"eager": lambda: call(*values)}
    for name in peers:
        made = compiled(call, "fuse_opt" if name == "ours" else name, dynamic)
        calls[name] = lambda made=made: made(*values)
    found = difference(calls["ours"](), calls["eager"]())
    small = torch.compile(add_one, backend="fuse_opt", dynamic=False)
    least = in_turns({"compiled": lambda: small(one), "eager": lambda: one + 1}, seconds / 4, calls["eager"])
    fixed = max(0.0, least["compiled"] - least["eager"])
    return Measured(text, in_turns(calls, seconds), found).less(dict.fromkeys(peers, fixed))


def main(given: Sequence[str] | None = None) -> None:
    options = arguments_of(__doc__, given, "--inductor", "--dynamic")
    torch.set_num_threads(1)
    print(environment())
    warnings.simplefilter("ignore")
    peers = ["ours", *(["inductor"] if options.inductor else [])]
    for elements in options.elements:
        one = partial(measure, given=arguments(elements), peers=peers, seconds=options.seconds, dynamic=options.dynamic)
        with torch.no_grad():
            show(elements, chosen(cases(), options), one, options.all)


if __name__ == "__main__":
    main()
