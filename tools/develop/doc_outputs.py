"""What pages of docs/ show of programs and of the registry, between marks in their text.

python -m fuse_opt.tools.develop.doc_outputs [--check]
"""

from __future__ import annotations

import io
import sys
from collections.abc import Callable, Sequence

from xdsl.dialects.builtin import ModuleOp

from fuse_opt.dialects.fused.gpu_schedule import GPU_KNOBS
from fuse_opt.dialects.fused.knobs import KNOBS
from fuse_opt.dialects.implementation.chains import ChainOffer
from fuse_opt.dialects.implementation.offers import Offer, Pairs, PointwiseOffer, all_offers, offers_of
from fuse_opt.dialects.implementation.switch import known_backends
from fuse_opt.dialects.interfaces.structured_op import FusionKind
from fuse_opt.passes.remarks import collect
from fuse_opt.tools.compiler.pipeline import DEFAULT_PIPELINE, make_passes, run_pipeline
from fuse_opt.tools.compiler.registry import available_targets, make_context, own_dialects
from fuse_opt.tools.develop.generated import Files, Generator, read, section
from fuse_opt.tools.source.parsing import parse_module

EXAMPLE = "docs/share_of_row.mlir"
_KERNEL, _PROGRAM = "\n// graph.", "\n// Program "


def files() -> Files:
    """The pages with what they show."""
    found: dict[str, str] = {}
    for page, name, text in SECTIONS:
        found[page] = section(found.get(page) or read(page), name, GENERATOR.command, text())
    return found


def c_kernel() -> str:
    """The kernel of the example in C, with the functions that call it."""
    _, _, text = emitted(EXAMPLE, "c").partition(_KERNEL)
    return f"```c\n{(_KERNEL + text).strip()}\n```"


def cuda_kernel() -> str:
    """The kernel of the example in CUDA C, without the one for arguments that are not aligned, and the program."""
    _, _, text = emitted(EXAMPLE, "cuda").partition(_KERNEL)
    kernel, (_, _, program) = text.partition(_KERNEL)[0], text.partition(_PROGRAM)
    return f"```cuda\n{(_KERNEL + kernel).strip()}\n\n{(_PROGRAM + program).strip()}\n```"


def emitted(path: str, target: str) -> str:
    """What `fuse-opt PATH --default -t TARGET` prints in the root of the tree."""
    output = io.StringIO()
    available_targets()[target]()().emit(make_context(), optimized(path), output)
    return output.getvalue()


def optimized(path: str) -> ModuleOp:
    """The module in a file after the default pipeline, with locations as commands in the root of the tree print them."""
    ctx = make_context()
    module = parse_module(read(path), path, ctx)
    run_pipeline(module, make_passes(DEFAULT_PIPELINE), ctx)
    return module


def knobs_table() -> str:
    """A row for each entry of a schedule that C programs look at."""
    rows = [
        f"| `{k.name}` | {k.values} | {', '.join(k.kinds)} | {'yes' if k.same_bits else 'no'} | {k.doc} |"
        for k in KNOBS
    ]
    return "\n".join(["| entry | value | kinds | same bits | what it says |", "|---|---|---|---|---|", *rows])


def gpu_knobs_table() -> str:
    """A row for each of what the entry `gpu` of a schedule may say."""
    rows = [f"| `{k.name}` | {k.values} | {', '.join(k.kinds)} | {k.doc} |" for k in GPU_KNOBS]
    return "\n".join(["| entry | value | kinds | what it says |", "|---|---|---|---|", *rows])


def offers_table() -> str:
    """A row for each implementation of each opaque op, the default of an op first."""
    names = sorted({op.name for make in own_dialects().values() for op in make().operations})
    rows = [_row(offer, number == 0) for name in names for number, offer in enumerate(offers_of(name))]
    return "\n".join(["| op | implementation | offers |", "|---|---|---|", *rows])


def backends_table() -> str:
    """A row for each backend: whether it is there without being named, who calls it, and the ops that it runs."""
    rows: list[str] = []
    for name in known_backends():
        offers = [offer for offer in all_offers() if offer.backend == name]
        there = "where it is named" if all(offer.optional for offer in offers) else "yes"
        ops = ", ".join(f"`{op}`" for op in sorted({offer.op for offer in offers}))
        rows.append(f"| `{name}` | {there} | {_caller(offers)} | {ops} |")
    return "\n".join(["| backend | by default | runs as | ops |", "|---|---|---|---|", *rows])


def _caller(offers: Sequence[Offer]) -> str:
    return ", ".join(sorted({_kind(offer) for offer in offers}))


def _kind(offer: Offer) -> str:
    if offer.platform != "cpu":
        return "calls on a CUDA device"
    return "code of the program" if offer.kind else "compiled calls" if offer.native else "functions of Python"


def _pairs(offer: Offer) -> Pairs:
    """Those that hold whatever the site."""
    return () if callable(offer.inplace) else offer.inplace


def _row(offer: Offer, default: bool) -> str:
    name = f"`{offer.name}`" + ("" if default else ", next")
    said = [f"result {result} in the memory of operand {operand}" for result, operand in _pairs(offer)]
    said += [f"{where} its op {_pointwise(given)}" for where, given in _neighbours(offer) if given is not None]
    return f"| `{offer.op}` | {name} | {'; '.join(said)} |"


def _neighbours(offer: Offer) -> tuple[tuple[str, PointwiseOffer | ChainOffer | None], ...]:
    return (("before", offer.prologue), ("behind", offer.epilogue))


def _pointwise(offer: PointwiseOffer | ChainOffer) -> str:
    if isinstance(offer, ChainOffer):
        return f"in its own code up to {offer.max_ops} steps: {offer.says}"
    reads = {"any": "anything", "bias": "vectors along the last axis", "none": "nothing else"}[offer.operands]
    kinds = "elementwise ops" + ("" if offer.kind == FusionKind.ELEMENTWISE else " and broadcasts")
    kinds = "pointwise ops and views" if offer.kind > FusionKind.BROADCAST else kinds
    return f"up to {offer.max_ops} {kinds} that read {reads}"


def memory_remarks() -> str:
    """What the passes of memory say of a transformer block, the refusals for size left out."""
    with collect() as remarks:
        optimized("examples/transformer_block.mlir")
    said = [r for r in remarks if r.pass_name in ("order-for-memory", "infer-inplace", "plan-memory")]
    return "\n".join(["```text", *(str(remark) for remark in said if remark.code != "size"), "```"])


SECTIONS: tuple[tuple[str, str, Callable[[], str]], ...] = (
    ("docs/c.md", "kernel", c_kernel),
    ("docs/c.md", "knobs", knobs_table),
    ("docs/cuda.md", "knobs", gpu_knobs_table),
    ("docs/cuda.md", "kernel", cuda_kernel),
    ("docs/memory.md", "remarks", memory_remarks),
    ("docs/implementations.md", "offers", offers_table),
    ("docs/implementations.md", "backends", backends_table),
)
"""Pages, names of their marks, and what stands between these."""

GENERATOR = Generator("doc_outputs", files)

if __name__ == "__main__":
    sys.exit(GENERATOR.main())
