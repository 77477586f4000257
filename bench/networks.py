"""Times whole networks: PyTorch, and the same network through `vkconv.torch.accelerate`.

    python bench/networks.py --only resnet50,r3d_18 --json networks.json
    python bench/networks.py --train --batch 4
    python bench/networks.py --timm regnety_032,xception41

Weights are seeded. Logits, or the gradients of a step of training, are compared before a time counts; contenders take
turns in one process.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from bench import machine

TOLERANCE = 1e-4  # of the largest logit
APART = 4  # times as far from PyTorch's answer as those of its two layouts are from each other
CONTIGUOUS, CHANNELS_LAST, VKCONV, VKCONV_CONTIGUOUS = (
    "PyTorch", "PyTorch, channels last", "vkconv", "vkconv, from contiguous",
)  # fmt: skip


def arguments() -> argparse.Namespace:
    parser = machine.parser("networks", __doc__)
    parser.add_argument("--only", default="", help="only networks with one of these words (comma-separated)")
    parser.add_argument("--timm", default="", help="these networks of timm instead (comma-separated)")
    parser.add_argument("--batch", type=int, default=1)
    parser.add_argument("--train", action="store_true", help="a step of training, without the optimizer's")
    parser.add_argument("--seconds", type=float, default=4.0, help="timing budget of a network (default: 4)")
    parser.add_argument("--json", type=Path, help="also write the results here")
    return parser.parse_args()


def step(model: Any, x: Any) -> Callable[[], Any]:
    """Forward and backward in training mode; returns the gradients of all parameters."""
    import torch

    parameters = [p.requires_grad_() for p in model.train().parameters()]

    def run() -> Any:
        torch.manual_seed(0)  # of dropout
        return torch.autograd.grad(model(x).square().mean(), parameters)

    return run


def inference(model: Any, x: Any) -> Callable[[], Any]:
    return lambda: model(x)


def contenders(model: Any, x: Any, call: Callable[[Any, Any], Callable[[], Any]]) -> dict[str, Callable[[], Any]]:
    import copy

    import torch

    import vkconv.torch

    last = torch.channels_last if x.dim() == 4 else torch.channels_last_3d
    strided, fast = copy.deepcopy(model).to(memory_format=last), vkconv.torch.accelerate(model)
    x_last = x.contiguous(memory_format=last)
    return {
        CONTIGUOUS: call(model, x),
        CHANNELS_LAST: call(strided, x_last),
        VKCONV: call(fast, x_last),
        VKCONV_CONTIGUOUS: call(fast, x),
    }


def logits_error(got: Any, want: Any) -> float:
    return float((got - want).abs().max() / want.abs().max())


def gradients_error(got: Any, want: Any) -> float:
    """Of the norm of all. A ReLU whose input is all but zero may take another side."""
    apart = sum(float((g - w).square().sum()) for g, w in zip(got, want, strict=True))
    return float((apart / sum(float(w.square().sum()) for w in want)) ** 0.5)


def network(name: str, options: argparse.Namespace) -> tuple[Callable[[], Any], tuple[int, ...]]:
    """What makes it, and the shape of its input but for the batch."""
    from bench.models import NETWORKS

    if not options.timm:
        make, shape = NETWORKS[name]
        return make, shape[1:]
    import timm

    return lambda: timm.create_model(name), timm.get_pretrained_cfg(name).input_size


def measure(name: str, options: argparse.Namespace) -> dict[str, Any]:
    import torch

    from bench.models import seeded
    from bench.timing import interleaved

    make, shape = network(name, options)
    model = seeded(make())
    x = torch.randn((options.batch, *shape), generator=torch.Generator().manual_seed(1))
    call, error = (step, gradients_error) if options.train else (inference, logits_error)
    with torch.inference_mode(mode=not options.train):
        calls = contenders(model, x, call)
        want = calls[CONTIGUOUS]()
        errors = {n: error(call(), want) for n, call in calls.items()}
        tolerance = max(TOLERANCE, APART * errors[CHANNELS_LAST])
        right = {n: call for n, call in calls.items() if errors[n] <= tolerance}
        timings = interleaved(right, options.seconds)
    results = {n: {"error": errors[n]} | ({"ms": timings[n].median_ms} if n in timings else {}) for n in calls}
    return {"network": name, "shape": list(x.shape), "results": results}


def speed_up(row: dict[str, Any]) -> float:
    """Against PyTorch's better layout."""
    ms = {n: r.get("ms", float("nan")) for n, r in row["results"].items()}
    return min(ms[CONTIGUOUS], ms[CHANNELS_LAST]) / min(ms[VKCONV], ms[VKCONV_CONTIGUOUS])


def main() -> int:
    options = arguments()
    machine.require("torch", *["timm"] * bool(options.timm))
    machine.pin(options.threads)
    import torch

    from bench import report
    from bench.models import NETWORKS

    torch.set_num_threads(options.threads)
    words = options.only.split(",")
    names = options.timm.split(",") if options.timm else [n for n in NETWORKS if any(w in n for w in words)]
    rows = [measure(name, options) for name in names]
    columns = (CONTIGUOUS, CHANNELS_LAST, VKCONV, VKCONV_CONTIGUOUS)
    print("| ms | " + " | ".join(columns) + " | better PyTorch / vkconv |\n|---|" + "--:|" * (len(columns) + 1))
    for row in rows:
        cells = [report.number(r["ms"]) if "ms" in (r := row["results"][n]) else "wrong" for n in columns]
        print(f"| {row['network']} {tuple(row['shape'])} | " + " | ".join(cells) + f" | {speed_up(row):.2f}x |")
    print(f"| geometric mean | {'| ' * len(columns)}| {report.geomean(speed_up(r) for r in rows):.2f}x |")
    if options.json:
        told = {"machine": machine.describe(), "torch": torch.__version__, "threads": options.threads, "rows": rows}
        options.json.write_text(json.dumps(told, indent=1) + "\n")
    return 0 if all("ms" in row["results"][VKCONV] for row in rows) else 1


if __name__ == "__main__":
    sys.exit(main())
