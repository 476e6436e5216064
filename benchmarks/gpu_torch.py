"""`torch.compile(model, backend="fuse_opt")` on a CUDA device: values against eager's, times beside Inductor's, memory.

    python benchmarks/gpu_torch.py [--models mlp,bert] [--dtype f32|bf16] [--batch 8] [--training] [--seconds 100]
        [--peers eager,inductor,reduce-overhead,ours,recorded,turned] [--out gpu-torch.json] [--values] [--device cuda|emulated]

Models are those of fuse_opt.frontends.torch.models, and larger ones of transformers (resnet50, bert-base, gpt2-small, vit-
base), with random weights; `-last` behind a name of images has channels innermost. For each: what our programs are (graphs,
those that PyTorch runs, kernels, calls of PyTorch's, graph breaks, warnings), the largest difference from eager relative to the
largest element of each result, or of each gradient, then times of a call by CUDA events, the peers in turns, and the most
memory that each had beside what was there. --values leaves times out. A model that fails is said with its last lines, and takes
nothing from the others. Calls stop beginning new models when --seconds are over. --device emulated tries the script on a
processor, with our kernels by emulation.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import sys
import time
import traceback
import warnings
from collections.abc import Callable
from copy import deepcopy
from importlib import import_module
from pathlib import Path
from typing import Any, cast

os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")
sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

torch: Any = import_module("torch")

PEERS = ("eager", "inductor", "reduce-overhead", "ours", "recorded", "turned")
"""The last ones: ours with whole graphs as CUDA graphs, and then with channels innermost."""
_NO_DROPOUT = {"hidden_dropout_prob": 0.0, "attention_probs_dropout_prob": 0.0}
_GPT_DROPOUT = {"resid_pdrop": 0.0, "embd_pdrop": 0.0, "attn_pdrop": 0.0}
LARGE: dict[str, tuple[str, str, dict[str, Any], str]] = {
    "resnet50": ("ResNetModel", "ResNetConfig", {}, "images"),
    "bert-base": ("BertModel", "BertConfig", _NO_DROPOUT, "tokens"),
    "gpt2-small": ("GPT2Model", "GPT2Config", {"use_cache": False, **_GPT_DROPOUT}, "tokens"),
    "vit-base": ("ViTModel", "ViTConfig", _NO_DROPOUT, "images"),
}
TOLERANCE = {"f32": 2e-3, "bf16": 6e-2}
"""Of the largest difference, relative to the largest element. Products of f32 may round to TF32 in convolutions alone."""
_TURNS, _CALLS = 7, 10


def sample(name: str, batch: int) -> tuple[Any, tuple[Any, ...]]:
    """A model in evaluation mode on the processor, and its arguments."""
    torch.manual_seed(0)
    if (plain := name.removesuffix("-last")) in LARGE:
        kind, config, options, data = LARGE[plain]
        library: Any = import_module("transformers")
        inner = getattr(library, kind)(getattr(library, config)(**options)).eval()
        x = torch.randn(batch, 3, 224, 224) if data == "images" else torch.randint(0, 30000, (batch, 128))
        if plain != name:
            inner, x = (each.to(memory_format=torch.channels_last) for each in (inner, x))
        return _first(inner), (x,)
    models: Any = import_module("fuse_opt.frontends.torch.models")
    found = models.MODELS[name](batch)
    return found.model, found.arguments


def _first(inner: Any) -> Any:
    class First(torch.nn.Module):
        """The first result of a model."""

        def __init__(self) -> None:
            torch.nn.Module.__init__(self)
            self.inner = inner

        def forward(self, x: Any) -> Any:
            return self.inner(x, return_dict=False)[0]

    return First().eval()


def without_dropout(model: Any) -> Any:
    for module in model.modules():
        if isinstance(module, torch.nn.Dropout):
            module.p = 0.0
        for name in ("attention_dropout", "dropout"):
            if isinstance(getattr(module, name, None), float):
                setattr(module, name, 0.0)
    return model


def compiled(peer: str, model: Any, device: str) -> Any:
    if peer == "eager":
        return model
    if peer in ("ours", "recorded", "turned"):
        options: dict[str, Any] = {"cuda_graphs": peer != "ours", "channels_last": peer == "turned"}
        options |= {"target": "emulated"} if device == "emulated" else {}
        backend = import_module("fuse_opt.frontends.torch").fuse_opt  # by name, it would have to be installed
        return torch.compile(model, backend=backend, options=options)
    return torch.compile(model, mode=None if peer == "inductor" else peer)


class Case:
    """A model with arguments on the device, by a peer."""

    def __init__(self, peer: str, model: Any, arguments: tuple[Any, ...], training: bool, device: str) -> None:
        self.peer, self.training, self.arguments = peer, training, arguments
        self.model = deepcopy(model).train(training)
        self.call_model = compiled(peer, self.model, device)

    def call(self) -> Any:
        if self.peer == "reduce-overhead":
            torch.compiler.cudagraph_mark_step_begin()
        if not self.training:
            with torch.no_grad():
                return self.call_model(*self.arguments)
        for parameter in self.model.parameters():
            parameter.grad = None
        y = tensors(self.call_model(*self.arguments))[0]
        y.float().square().mean().backward()
        return y

    def values(self) -> dict[str, Any]:
        """Results, or gradients and buffers, by name."""
        y = self.call()
        if not self.training:
            return {str(k): item.detach().clone() for k, item in enumerate(tensors(y))}
        found = {name: p.grad.detach().clone() for name, p in self.model.named_parameters() if p.grad is not None}
        return {"result": y.detach().clone(), **found}


def tensors(value: Any) -> list[Any]:
    if isinstance(value, torch.Tensor):
        return [value]
    if isinstance(value, dict):
        value = list(cast("dict[Any, Any]", value).values())
    if not isinstance(value, (list, tuple)):
        return []
    return [tensor for item in cast("list[Any]", value) for tensor in tensors(item)]


def difference(found: dict[str, Any], wanted: dict[str, Any]) -> tuple[float, str]:
    """The largest one, relative to the largest element, and whose; of gradients to a hundredth of the largest at least."""
    assert found.keys() == wanted.keys(), f"other results: {sorted(found.keys() ^ wanted.keys())}"
    floor = 1e-2 * max((float(w.abs().max()) for w in wanted.values() if w.numel()), default=0.0)
    worst = (0.0, "")
    for name, w in wanted.items():
        f = found[name]
        assert (f.shape, f.dtype, f.device) == (w.shape, w.dtype, w.device), f"{name}: {f.shape} {f.dtype} {f.device}"
        assert f.stride() == w.stride() or "." in name, f"{name}: strides {f.stride()}, eager's {w.stride()}"
        if not w.numel():
            continue
        error = float((f.double() - w.double()).abs().max()) / max(float(w.abs().max()), floor, 1e-30)
        if not error <= worst[0]:
            worst = (error, name)
    return worst


def on_gpu(device: str) -> bool:
    return device != "emulated"


def synchronize(device: str) -> None:
    if on_gpu(device):
        torch.cuda.synchronize()


def milliseconds(case: Case, calls: int, device: str) -> float:
    """Of one call, of several behind each other."""
    if not on_gpu(device):
        started = time.perf_counter()
        for _ in range(calls):
            case.call()
        return 1e3 * (time.perf_counter() - started) / calls
    start, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
    torch.cuda.synchronize()
    start.record()
    for _ in range(calls):
        case.call()
    end.record()
    torch.cuda.synchronize()
    return start.elapsed_time(end) / calls


def peak(case: Case, device: str) -> float:
    """Mebibytes that a call has beside what was there before."""
    if not on_gpu(device):
        return 0.0
    synchronize(device)
    before = torch.cuda.memory_allocated()
    torch.cuda.reset_peak_memory_stats()
    case.call()
    synchronize(device)
    return (torch.cuda.max_memory_allocated() - before) / 2**20


def programs_of(name: str, made: Callable[[], Any]) -> tuple[Any, dict[str, Any]]:
    """What a first run of ours gives, and what became of its graphs."""
    from fuse_opt.frontends.torch import collect_reports

    counters: Any = import_module("torch._dynamo.utils").counters
    counters.clear()
    with warnings.catch_warnings(record=True) as said, collect_reports() as reports:
        warnings.simplefilter("always")
        value = made()
    ours = [str(w.message) for w in said if "fuse_opt" in str(w.message)]
    graphs = reports.graphs
    record = {
        "graphs": len(graphs),
        "left": [g.left for g in graphs if g.left is not None],
        "kernels": sum(g.stats.kernels for g in graphs),
        "calls": sum(sum(g.counts.external.values()) for g in graphs),
        "external": [dict(g.counts.external) for g in graphs],
        "reasons": {k: v for g in graphs for k, v in g.counts.reasons.items()},
        "host_ops": sum(g.stats.host_ops - sum(g.counts.external.values()) for g in graphs if g.left is None),
        "breaks": sum(counters["graph_break"].values()),
        "break_reasons": list(counters["graph_break"])[:3],
        "warnings": ours,
        "compile_s": round(sum(g.seconds for g in graphs), 2),
    }
    return value, record


def measure(name: str, options: argparse.Namespace, peers: list[str]) -> dict[str, Any]:
    """All that is asked of a model."""
    device, dtype = options.device, {"f32": torch.float32, "bf16": torch.bfloat16}[options.dtype]
    torch._dynamo.reset()
    model, arguments = sample(name, options.batch)
    model = without_dropout(model).to(dtype)
    arguments = tuple(a.to(dtype) if a.is_floating_point() else a for a in arguments)
    if on_gpu(device):
        model, arguments = model.cuda(), tuple(a.cuda() for a in arguments)
    row: dict[str, Any] = {"model": name, "dtype": options.dtype, "batch": options.batch, "training": options.training}
    cases: dict[str, Case] = {}
    eager = Case("eager", model, arguments, options.training, device)
    wanted = eager.values()
    for peer in peers:
        try:
            case = eager if peer == "eager" else Case(peer, model, arguments, options.training, device)
            started = time.perf_counter()
            if peer == "ours":
                found, row["ours"] = programs_of(name, case.values)
            else:
                found = case.values()
            synchronize(device)
            entry: dict[str, Any] = {"first_s": round(time.perf_counter() - started, 2)}
            entry["error"], entry["worst"] = difference(found, wanted)
            for _ in range(3):
                case.call()  # by then, graphs are recorded
            again = case.values()
            entry["error"] = max(entry["error"], difference(again, wanted)[0])
            entry["right"] = entry["error"] <= TOLERANCE[options.dtype]
            row[f"by {peer}"] = entry
            cases[peer] = case
        except Exception as error:
            row[f"by {peer}"] = {"failed": f"{type(error).__name__}: {error}"[:600], "trace": last_lines()}
            print(f"  {name} by {peer} fails:\n{last_lines()}", flush=True)
    if not options.values:
        measure_times(cases, row, device)
    return row


def measure_times(cases: dict[str, Case], row: dict[str, Any], device: str) -> None:
    times: dict[str, list[float]] = {peer: [] for peer in cases}
    for _ in range(3):
        for case in cases.values():
            case.call()
    for turn in range(_TURNS):
        order = list(cases)
        for peer in order[turn % len(order) :] + order[: turn % len(order)]:
            times[peer].append(milliseconds(cases[peer], _CALLS, device))
    for peer, case in cases.items():
        found = times[peer]
        row[f"by {peer}"] |= {"ms": statistics.median(found), "ms_min": min(found), "ms_max": max(found)}
        row[f"by {peer}"]["peak_mib"] = round(peak(case, device), 1)


def last_lines(count: int = 12) -> str:
    return "\n".join(traceback.format_exc().strip().splitlines()[-count:])


def heading(peers: list[str]) -> str:
    cells = ["model", "graphs (left)", "kernels", "calls", "host", "breaks", "warnings"]
    cells += [f"{peer}: error, ms (min-max), MiB" for peer in peers]
    return "| " + " | ".join(cells) + " |\n" + "|---" * len(cells) + "|"


def as_row(row: dict[str, Any], peers: list[str]) -> str:
    ours = row.get("ours", {})
    kind = "training" if row["training"] else "forward"
    cells = [f"{row['model']} {row['dtype']} x{row['batch']} {kind}"]
    cells.append(f"{ours.get('graphs', '-')} ({len(ours.get('left', []))})")
    cells += [str(ours.get(key, "-")) for key in ("kernels", "calls", "host_ops", "breaks")]
    cells.append(str(len(ours.get("warnings", []))))
    for peer in peers:
        entry = row.get(f"by {peer}", {"failed": "not run"})
        if "failed" in entry:
            cells.append("failed")
            continue
        text = f"{entry['error']:.1e}{'' if entry['right'] else ' WRONG ' + entry['worst']}"
        if "ms" in entry:
            text += f", {entry['ms']:.3f} ({entry['ms_min']:.3f}-{entry['ms_max']:.3f}), {entry['peak_mib']:.0f}"
        cells.append(text)
    return "| " + " | ".join(cells) + " |"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--models", default="mlp,bert,gpt2,llama,resnet,resnet50,bert-base,gpt2-small,vit-base")
    parser.add_argument("--dtype", choices=list(TOLERANCE), default="f32")
    parser.add_argument("--batch", type=int, default=8)
    parser.add_argument(
        "--training", action="store_true", help="forward and backward, gradients of the mean of squares"
    )
    parser.add_argument("--seconds", type=float, default=100.0)
    parser.add_argument("--peers", default=",".join(PEERS))
    parser.add_argument("--values", action="store_true", help="values alone, no times")
    parser.add_argument("--device", choices=("cuda", "emulated"), default="cuda")
    parser.add_argument("--out", help="a file of JSON, to which rows are added")
    options = parser.parse_args()
    peers = [peer for peer in PEERS if peer in options.peers.split(",")]
    ends = time.monotonic() + options.seconds
    where = torch.cuda.get_device_name() if on_gpu(options.device) else "emulated"
    print(f"{where}, torch {torch.__version__}, Python {sys.version.split()[0]}\n\n{heading(peers)}", flush=True)
    rows: list[dict[str, Any]] = []
    for name in options.models.split(","):
        if time.monotonic() > ends:
            print(f"no time left for {name}", flush=True)
            continue
        try:
            rows.append(measure(name, options, peers))
            print(as_row(rows[-1], peers), flush=True)
            said(rows[-1])
        except Exception:
            rows.append({"model": name, "failed": last_lines()})
            print(f"{name} fails:\n{last_lines()}", flush=True)
        if options.out:
            write(Path(options.out), where, rows)


def said(row: dict[str, Any]) -> None:
    """Why graphs were left, and what was warned of."""
    ours = row.get("ours", {})
    for line in dict.fromkeys([*ours.get("left", []), *ours.get("warnings", []), *ours.get("break_reasons", [])]):
        print(f"  {str(line).splitlines()[0][:200]}", flush=True)


def write(path: Path, where: str, rows: list[dict[str, Any]]) -> None:
    before: list[Any] = json.loads(path.read_text()) if path.is_file() else []
    keys = ("model", "dtype", "batch", "training")
    mine = {tuple(row.get(key) for key in keys) for row in rows}
    kept = [row for row in before if tuple(row.get(key) for key in keys) not in mine]
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps([*kept, *({**row, "device": where} for row in rows)], indent=1, default=str) + "\n")


if __name__ == "__main__":
    main()
