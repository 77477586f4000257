"""PyTorch's tools on models of vkconv.torch: operations counted, scripts, oneDNN's tensors, warnings of a trace,
transformations, compiled and of complex numbers."""

from __future__ import annotations

import subprocess
import sys
import textwrap

import pytest

torch = pytest.importorskip("torch")

from torch import nn  # noqa: E402 - after the skip
from torch.autograd import forward_ad  # noqa: E402
from torch.utils import checkpoint, mkldnn  # noqa: E402
from torch.utils.flop_counter import FlopCounterMode  # noqa: E402

from vkconv import torch as vt  # noqa: E402


class Residual(nn.Module):
    def __init__(self, *layers: nn.Module) -> None:
        super().__init__()
        self.layers = nn.Sequential(*layers)

    def forward(self, x):
        return torch.relu(self.layers(x) + x)


def network(groups: int = 2) -> nn.Sequential:
    torch.manual_seed(0)
    return nn.Sequential(
        nn.Conv2d(4, 8, 3, stride=2, padding=1, groups=groups),
        nn.BatchNorm2d(8),
        Residual(nn.Conv2d(8, 8, 3, padding=1)),
        nn.ConvTranspose2d(8, 6, (3, 2), stride=2, groups=groups),
        nn.ReLU(),
        nn.Flatten(),
        nn.Linear(6 * 13 * 12, 5),
    )


def image() -> torch.Tensor:
    return torch.randn(2, 4, 12, 12, generator=torch.Generator().manual_seed(1))


def counted(model: nn.Module, *, backward: bool) -> int:
    with FlopCounterMode(display=False) as mode:
        result = model(image().requires_grad_(backward))
        if backward:
            result.sum().backward()
    total: int = mode.get_total_flops()
    return total


@pytest.mark.parametrize("train", [False, True])
def test_operations_are_counted_as_pytorch_counts_its_own(train):
    # PyTorch counts a gradient of grouped weights as if every group had all channels.
    model = network(groups=1 if train else 2).train(train)
    want = counted(model, backward=train)
    assert want > 0
    assert counted(vt.accelerate(model), backward=train) == want


@pytest.mark.parametrize("layout", [torch.contiguous_format, torch.channels_last])
def test_what_a_backward_pass_needs_may_be_stored_elsewhere(layout):
    model = vt.accelerate(network(groups=1)[:5].train())
    x = image().to(memory_format=layout).requires_grad_()
    stored = []

    def pack(tensor: torch.Tensor) -> int:
        stored.append(tensor.clone(memory_format=torch.contiguous_format))
        return len(stored) - 1

    def gradients(y: torch.Tensor) -> tuple[torch.Tensor, ...]:
        return torch.autograd.grad(y.square().sum(), (x, model[0].weight, model[3].weight))

    want = gradients(model(x))
    with torch.autograd.graph.saved_tensors_hooks(pack, stored.__getitem__):
        y = model(x)
    assert any(torch.equal(t, x) for t in stored)
    for got in (gradients(y), gradients(checkpoint.checkpoint(model, x, use_reentrant=False))):
        for one, other in zip(got, want, strict=True):
            torch.testing.assert_close(one, other)


def test_what_a_backward_pass_needs_must_not_change():
    x, w = image(), torch.randn(3, 4, 3, 3, requires_grad=True)
    y = vt.conv2d(x, w)
    x.add_(1)
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        y.sum().backward()


def test_onednn_tensors_are_convolved_by_pytorch():
    model = network()[:3].eval()
    want = model(image())
    torch.testing.assert_close(vt.accelerate(model)(image().to_mkldnn()).to_dense(), want)
    torch.testing.assert_close(mkldnn.to_mkldnn(vt.accelerate(model))(image().to_mkldnn()).to_dense(), want)
    x, w = image(), torch.randn(3, 4, 3, 3)
    torch.testing.assert_close(vt.conv2d(x.to_mkldnn(), w).to_dense(), vt.conv2d(x, w))


@pytest.mark.parametrize("layout", [torch.strided, torch.jagged])
def test_nested_tensors_go_through_linear_layers(layout):
    model = nn.Sequential(nn.Linear(8, 4), nn.ReLU()).eval()
    nested = torch.nested.nested_tensor([torch.ones(3, 8), torch.ones(5, 8)], layout=layout)
    for got, want in zip(vt.accelerate(model)(nested).unbind(), model(nested).unbind(), strict=True):
        torch.testing.assert_close(got, want)


def test_what_is_no_tensor_or_no_module_is_refused():
    x, w = image(), torch.ones(3, 4, 3, 3)
    for arguments in ((x.numpy(), w), (x, w.numpy()), (x, w, w.numpy()[:, 0, 0, 0])):
        with pytest.raises(TypeError, match="invalid combination of arguments"):
            vt.conv2d(*arguments)
    for thing in (None, torch.relu, nn.Conv2d):
        with pytest.raises(TypeError, match=r"model must be a torch\.nn\.Module"):
            vt.accelerate(thing)


def test_scripts_call_pytorchs_own():
    def both(x: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
        return vt.conv_transpose2d(vt.conv2d(x, w, None, 1, "same"), w, stride=[2, 1])

    x, w = image(), torch.randn(4, 4, 3, 3) / 8
    scripted = torch.jit.script(both)
    assert "aten::conv2d" in str(scripted.graph)
    torch.testing.assert_close(scripted(x, w), both(x, w))


def test_a_trace_warns_of_nothing_and_takes_other_sizes():
    code = """
        import warnings
        import torch
        from torch import nn
        import vkconv.torch

        model = nn.Sequential(nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4), nn.ReLU(), nn.ConvTranspose2d(4, 1, 2, 2)).eval()
        x, larger = torch.randn(1, 3, 8, 8), torch.randn(2, 3, 9, 11).to(memory_format=torch.channels_last)
        for made in (vkconv.torch.accelerate(model), vkconv.torch.accelerate(model.train()).eval()):
            with warnings.catch_warnings(record=True) as told:
                traced = torch.jit.trace(made, x)
            assert not [w for w in told if issubclass(w.category, torch.jit.TracerWarning)], told
            torch.testing.assert_close(traced(larger), model.eval()(larger))
    """
    subprocess.run([sys.executable, "-c", textwrap.dedent(code)], check=True, timeout=600)


DIRECTION = image().flip(0)
TRANSFORMED = {
    "jvp": lambda f: lambda x: torch.func.jvp(f, (x,), (DIRECTION,))[1],
    "jacfwd": lambda f: torch.func.jacfwd(lambda s: f(s * DIRECTION)),
    "grad": lambda f: torch.func.grad(lambda x: f(x).square().sum()),
    "vjp": lambda f: lambda x: torch.func.vjp(f, x)[1](f(x))[0],
    "vmap of grad": lambda f: torch.vmap(torch.func.grad(lambda x: f(x[None]).square().sum())),
}
LAYERS = {
    "conv": lambda: vt.Conv2d(4, 4, 3),
    "transposed": lambda: vt.ConvTranspose2d(4, 3, 2),
    "prepared": lambda: vt.accelerate(nn.Sequential(nn.Conv2d(4, 4, 3), nn.ReLU(), nn.ConvTranspose2d(4, 3, 2)).eval()),
    "residual": lambda: vt.accelerate(Residual(nn.Conv2d(4, 4, 3, padding=1)).eval()),
}


@pytest.mark.parametrize("layer", LAYERS)
@pytest.mark.parametrize("name", TRANSFORMED)
def test_compiled_transformations(name, layer):
    torch.manual_seed(0)
    f = LAYERS[layer]().requires_grad_(False)
    x = torch.tensor(2.0) if name == "jacfwd" else image()
    run = TRANSFORMED[name](f)
    want = run(x)
    assert want.abs().max() > 0
    torch.testing.assert_close(torch.compile(run, backend="aot_eager")(x), want, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("conv", [vt.conv2d, vt.conv_transpose2d])
def test_compiled_tangents_of_weights(conv):
    x, w = image(), torch.randn(4, 4, 3, 3)
    tangent = torch.compile(lambda w: torch.func.jvp(lambda v: conv(x, v), (w,), (w,))[1], backend="aot_eager")(w)
    torch.testing.assert_close(tangent, conv(x, w))


@pytest.mark.parametrize("layer", LAYERS)
def test_dual_tensors_in_compiled_code(layer):
    f, x = LAYERS[layer]().requires_grad_(False), image()
    compiled = torch.compile(f, backend="eager")
    torch.testing.assert_close(compiled(x), f(x))
    with forward_ad.dual_level():
        dual = forward_ad.make_dual(x, DIRECTION)
        got, want = (forward_ad.unpack_dual(run(dual)).tangent for run in (compiled, f))
    torch.testing.assert_close(got, want, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("layer", LAYERS)
def test_maps_over_nothing(layer):
    f = LAYERS[layer]()
    assert torch.vmap(f)(torch.zeros(0, 2, 4, 12, 12)).shape == (0, *f(image()).shape)


@pytest.mark.parametrize("layer", LAYERS)
def test_functionalized(layer):
    f, x = LAYERS[layer]().requires_grad_(False), image()
    torch.testing.assert_close(torch.func.functionalize(f)(x), f(x))
    gradient = torch.func.grad(lambda x: f(x).square().sum())
    torch.testing.assert_close(torch.func.functionalize(gradient)(x), gradient(x))


def complex_numbers(*shape: int) -> torch.Tensor:
    return torch.randn(*shape, dtype=torch.complex128, requires_grad=True)


CONVOLUTIONS = [(vt.conv2d, nn.functional.conv2d), (vt.conv_transpose2d, nn.functional.conv_transpose2d)]


@pytest.mark.parametrize("ours, theirs", CONVOLUTIONS)
@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16], ids=str)
def test_autocast_leaves_complex_numbers(ours, theirs, dtype):
    operands = [complex_numbers(*s).to(torch.complex64) for s in ((2, 3, 5, 5), (3, 3, 2, 2), (3,))]
    with torch.autocast("cpu", dtype):
        torch.testing.assert_close(ours(*operands), theirs(*operands))


@pytest.mark.parametrize("ours, theirs", CONVOLUTIONS)
def test_transformations_of_complex_numbers(ours, theirs):
    x, weights = complex_numbers(1, 2, 3, 3), complex_numbers(3, 2, 2, 2, 2)
    for w in (weights, weights.conj()):
        torch.testing.assert_close(torch.vmap(ours, (None, 0))(x, w), torch.stack([theirs(x, one) for one in w]))
    options = {"check_forward_ad": True, "check_batched_grad": True, "check_batched_forward_grad": True}
    assert torch.autograd.gradcheck(ours, (x, complex_numbers(2, 2, 2, 2), complex_numbers(2)), **options)


@pytest.mark.parametrize("ours, theirs", CONVOLUTIONS)
def test_derivatives_of_no_complex_numbers(ours, theirs):
    operands = complex_numbers(0, 3, 4, 4), complex_numbers(3, 3, 2, 2), complex_numbers(3)
    got, want = (torch.autograd.grad(conv(*operands).abs().sum(), operands) for conv in (ours, theirs))
    torch.testing.assert_close(got, want)
