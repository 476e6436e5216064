"""What each part of memory planning saves, on graphs of the shapes of models: `python benchmarks/memory.py [GRAPH ...]`.

    python benchmarks/memory.py --without fuse-horizontal,fuse-siblings

Bytes of the arena with no optimisation (every value its own), in-place pairs only, sharing only, both; then, with kernels
ordered for memory, the arena, its lower bound and the gap between, and the bound as a part of the one before ordering.
`certificate` says of an arena that equals its bound that none can be smaller in this order and with these pairs.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from memory_graphs import GRAPHS
from xdsl.dialects.builtin import DictionaryAttr, IntegerAttr, ModuleOp

from fuse_opt.dialects.analysis.storage import analyse_storage, functions_of
from fuse_opt.tools.compiler.api import load, optimize
from fuse_opt.tools.compiler.pipeline import DEFAULT_PIPELINE

EXAMPLES = sorted((Path(__file__).resolve().parent.parent / "examples").glob("*.mlir"))
FUSED = DEFAULT_PIPELINE[: DEFAULT_PIPELINE.index("order-for-memory")]
"""The passes before those about memory. Kernels that run side by side leave less to order than kernels of their own."""


@dataclass(frozen=True)
class Row:
    """Bytes of one graph."""

    name: str
    kernels: int
    nothing: int
    inplace: int
    sharing: int
    both: int
    bound: int
    ordered: int
    ordered_bound: int

    @property
    def gain(self) -> float:
        """The bound with ordering as a part of the one without."""
        return self.ordered_bound / self.bound if self.bound else 1.0

    @property
    def gap(self) -> float:
        return self.ordered / self.ordered_bound - 1 if self.ordered_bound else 0.0


def measure(name: str, module: ModuleOp, without: Sequence[str] = ()) -> Row:
    """All variants of a graph, fused without the passes that are named; the module is changed."""
    fused = optimize(module, [pass_ for pass_ in FUSED if pass_ not in without])

    def variant(*passes: str) -> ModuleOp:
        return optimize(fused.clone(), passes)

    both = variant("infer-inplace", "plan-memory")
    ordered = variant("order-for-memory", "infer-inplace", "plan-memory")
    kernels = sum(op.name == "fused.kernel" for op in functions_of(fused)[0].body.block.ops)
    return Row(
        name, kernels, _sum_of_sizes(variant()), _sum_of_sizes(variant("infer-inplace")),
        _entry(variant("plan-memory"), "size"), _entry(both, "size"), _entry(both, "lower_bound"),
        _entry(ordered, "size"), _entry(ordered, "lower_bound"),
    )  # fmt: skip


def _sum_of_sizes(module: ModuleOp) -> int:
    storages = analyse_storage(functions_of(module)[0]).storages
    return sum(-(-storage.nbytes // 64) * 64 for storage in storages if storage.kind == "intermediate")


def _entry(module: ModuleOp, name: str) -> int:
    plan = functions_of(module)[0].attributes.get("fused.arena")
    entry = plan.data[name] if isinstance(plan, DictionaryAttr) else None
    return entry.value.data if isinstance(entry, IntegerAttr) else 0


HEADER = (
    f"{'graph':<20} {'kernels':>7} {'nothing':>10} {'in-place':>10} {'sharing':>10} {'both':>10} {'bound':>10} "
    f"{'ordered':>10} {'bound':>10} {'gap':>7} {'gain':>6}  certificate"
)


def line(row: Row) -> str:
    """One line of the table, in KiB."""
    sizes = (row.nothing, row.inplace, row.sharing, row.both, row.bound, row.ordered, row.ordered_bound)
    numbers = " ".join(f"{size / 1024:>10.1f}" for size in sizes)
    word = "optimal" if row.ordered == row.ordered_bound else "not proven"
    return f"{row.name:<20} {row.kernels:>7} {numbers} {row.gap:>7.4f} {row.gain:>6.3f}  {word}"


def rows(names: Sequence[str], without: Sequence[str] = ()) -> list[Row]:
    """The examples and the graphs, or those that are named."""
    found = [measure(path.stem, load(path), without) for path in EXAMPLES if not names or path.stem in names]
    return found + [measure(name, make(), without) for name, make in GRAPHS.items() if not names or name in names]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("graph", nargs="*", help="names of graphs or examples; all without")
    parser.add_argument("--without", metavar="PASS,...", default="", help="passes of the default pipeline to leave out")
    given = parser.parse_args()
    print(f"KiB, alignment 64{given.without and ', without '}{given.without}")
    print(HEADER)
    for row in rows(given.graph, given.without.split(",")):
        print(line(row), flush=True)


if __name__ == "__main__":
    main()
