"""Four layers of `mlx.nn` on the CPU, and their gradients, by MLX and after `vkconv.mlx.install()`.

python bench/mlx_calls.py [--threads 2]
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from bench import machine
from bench.timing import interleaved

SECONDS = 4.0  # of timing a line


def network() -> tuple[Any, Any]:
    """7x7 and 3x3 with stride 2, two of 3x3 for 64 channels at 56 x 56, and an image of 224 x 224."""
    import mlx.core as mx
    import mlx.nn as nn

    mx.random.seed(0)
    shapes = ((3, 7, 2), (64, 3, 2), (64, 3, 1), (64, 3, 1))  # channels, kernel, stride
    layers = [(nn.Conv2d(c, 64, k, stride=s, padding=k // 2), nn.ReLU()) for c, k, s in shapes]
    return nn.Sequential(*(layer for pair in layers for layer in pair)), mx.random.normal((1, 224, 224, 3))


def calls() -> dict[str, Callable[[], Any]]:
    """The answer and the gradients with respect to every weight."""
    import mlx.core as mx
    import mlx.nn as nn

    model, x = network()
    gradients = nn.value_and_grad(model, lambda x: model(x).square().mean())

    def forward() -> Any:
        y = model(x)
        mx.eval(y)
        return y

    def backward() -> Any:
        loss, grads = gradients(x)
        mx.eval(loss, grads)
        return loss

    return {"forward": forward, "with gradients": backward}


def installed(call: Callable[[], Any]) -> Callable[[], Any]:
    """The same call while MLX's convolutions are vkconv's."""
    import vkconv.mlx

    def run() -> Any:
        vkconv.mlx.install()
        try:
            return call()
        finally:
            vkconv.mlx.uninstall()

    return run


def main() -> int:
    """Command line entry point."""
    options = machine.parser("mlx_calls", __doc__).parse_args()
    machine.require("mlx")
    machine.pin(options.threads)
    import mlx.core as mx

    mx.set_default_device(mx.cpu)
    print(f"{'ms':<16}{'MLX':>10}{'vkconv':>10}{'times faster':>14}{'difference':>12}")
    for name, call in calls().items():
        ours = installed(call)
        theirs_answer, our_answer = call(), ours()
        difference = mx.abs(our_answer - theirs_answer).max() / mx.abs(theirs_answer).max()
        times = interleaved({"mlx": call, "vkconv": ours}, SECONDS)
        mlx, own = times["mlx"].median_ms, times["vkconv"].median_ms
        print(f"{name:<16}{mlx:>10.1f}{own:>10.2f}{mlx / own:>14.0f}{difference.item():>12.1e}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
