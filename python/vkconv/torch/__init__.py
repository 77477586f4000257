"""Convolutions for PyTorch on the CPU.

    import vkconv.torch

    fast = vkconv.torch.accelerate(model.eval())  # every convolution, with what follows it, by vkconv
    y = vkconv.torch.conv2d(x, w, padding=1)      # the functions of torch.nn.functional, with gradients

Results have the memory format that PyTorch's would have. Tensors in `channels_last` (or `channels_last_3d`) are read
where they lie and results written so: a network converts its input once. float32, float64, float16 and bfloat16 (with
ml_dtypes) work; so do autograd, torch.func and torch.compile. Importing this module lets vkconv run in the threads of
PyTorch's OpenMP, so that neither library waits for the other's.
"""

import warnings

from torch.jit import TracerWarning

from vkconv.torch import _flops  # noqa: F401 - which tells PyTorch of its formulas
from vkconv.torch._accelerate import accelerate
from vkconv.torch._functional import (
    conv1d,
    conv2d,
    conv3d,
    conv_transpose1d,
    conv_transpose2d,
    conv_transpose3d,
)
from vkconv.torch._modules import Conv1d, Conv2d, Conv3d, ConvTranspose1d, ConvTranspose2d, ConvTranspose3d
from vkconv.torch._threads import share_threads

__all__ = [
    "Conv1d",
    "Conv2d",
    "Conv3d",
    "ConvTranspose1d",
    "ConvTranspose2d",
    "ConvTranspose3d",
    "accelerate",
    "conv1d",
    "conv2d",
    "conv3d",
    "conv_transpose1d",
    "conv_transpose2d",
    "conv_transpose3d",
]

share_threads()
# A trace keeps which memory format its results have, whatever that of later inputs is. Nothing else depends on sizes.
warnings.filterwarnings("ignore", category=TracerWarning, module=r"vkconv\.torch\.")
