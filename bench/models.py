"""Well-known networks by their published definitions, with seeded weights: ResNet-50, MobileNetV3-Large, ConvNeXt-T,
R3D-18. Structure, names of the parts and shapes are torchvision's; `width` and `depth` scale them down for tests."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor, nn


def seeded(model: nn.Module, seed: int = 0) -> nn.Module:
    """Weights that keep activations of order one, and batch norms with statistics as after training; eval mode."""
    generator = torch.Generator().manual_seed(seed)
    for module in model.modules():
        if isinstance(module, nn.Conv2d | nn.Conv3d | nn.Linear):
            fan_in = module.weight[0].numel()
            module.weight.data.normal_(0, fan_in**-0.5, generator=generator)
        elif isinstance(module, nn.BatchNorm2d | nn.BatchNorm3d):
            module.weight.data.uniform_(0.8, 1.2, generator=generator)
            module.bias.data.normal_(0, 0.1, generator=generator)
            module.running_mean.normal_(0, 0.1, generator=generator)
            module.running_var.uniform_(0.8, 1.2, generator=generator)
    return model.eval()


# ---- ResNet-50


class Bottleneck(nn.Module):
    def __init__(self, inputs: int, planes: int, stride: int) -> None:
        super().__init__()
        outputs = planes * 4
        self.conv1, self.bn1 = nn.Conv2d(inputs, planes, 1, bias=False), nn.BatchNorm2d(planes)
        self.conv2 = nn.Conv2d(planes, planes, 3, stride, padding=1, bias=False)
        self.bn2 = nn.BatchNorm2d(planes)
        self.conv3, self.bn3 = nn.Conv2d(planes, outputs, 1, bias=False), nn.BatchNorm2d(outputs)
        self.relu = nn.ReLU(inplace=True)
        self.downsample: nn.Module | None = None
        if stride != 1 or inputs != outputs:
            self.downsample = nn.Sequential(nn.Conv2d(inputs, outputs, 1, stride, bias=False), nn.BatchNorm2d(outputs))

    def forward(self, x: Tensor) -> Tensor:
        identity = x
        out = self.relu(self.bn1(self.conv1(x)))
        out = self.relu(self.bn2(self.conv2(out)))
        out = self.bn3(self.conv3(out))
        if self.downsample is not None:
            identity = self.downsample(x)
        out += identity
        return self.relu(out)


class ResNet(nn.Module):
    def __init__(self, blocks: tuple[int, ...] = (3, 4, 6, 3), width: int = 64, classes: int = 1000) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(3, width, 7, 2, padding=3, bias=False)
        self.bn1, self.relu = nn.BatchNorm2d(width), nn.ReLU(inplace=True)
        self.maxpool = nn.MaxPool2d(3, 2, padding=1)
        layers, inputs = [], width
        for stage, count in enumerate(blocks):
            planes = width << stage
            for i in range(count):
                layers.append(Bottleneck(inputs, planes, 2 if stage > 0 and i == 0 else 1))
                inputs = planes * 4
        self.layers = nn.Sequential(*layers)
        self.avgpool, self.fc = nn.AdaptiveAvgPool2d(1), nn.Linear(inputs, classes)

    def forward(self, x: Tensor) -> Tensor:
        x = self.maxpool(self.relu(self.bn1(self.conv1(x))))
        return self.fc(torch.flatten(self.avgpool(self.layers(x)), 1))


# ---- MobileNetV3-Large

# kernel, expanded, outputs, squeeze and excitation, hardswish, stride
MOBILE_BLOCKS = [
    (3, 16, 16, False, False, 1), (3, 64, 24, False, False, 2), (3, 72, 24, False, False, 1),
    (5, 72, 40, True, False, 2), (5, 120, 40, True, False, 1), (5, 120, 40, True, False, 1),
    (3, 240, 80, False, True, 2), (3, 200, 80, False, True, 1), (3, 184, 80, False, True, 1),
    (3, 184, 80, False, True, 1), (3, 480, 112, True, True, 1), (3, 672, 112, True, True, 1),
    (5, 672, 160, True, True, 2), (5, 960, 160, True, True, 1), (5, 960, 160, True, True, 1),
]  # fmt: skip


def conv_norm(
    inputs: int, outputs: int, kernel: int, stride: int = 1, groups: int = 1, activation: type | None = None
) -> nn.Sequential:
    conv = nn.Conv2d(inputs, outputs, kernel, stride, padding=kernel // 2, groups=groups, bias=False)
    last = [] if activation is None else [activation(inplace=True)]
    return nn.Sequential(conv, nn.BatchNorm2d(outputs, eps=0.001, momentum=0.01), *last)


def divisible(value: float, by: int = 8) -> int:
    rounded = max(by, int(value + by / 2) // by * by)
    return rounded + by if rounded < 0.9 * value else rounded


class SqueezeExcitation(nn.Module):
    def __init__(self, channels: int, squeezed: int) -> None:
        super().__init__()
        self.avgpool = nn.AdaptiveAvgPool2d(1)
        self.fc1, self.fc2 = nn.Conv2d(channels, squeezed, 1), nn.Conv2d(squeezed, channels, 1)
        self.activation, self.scale_activation = nn.ReLU(), nn.Hardsigmoid()

    def forward(self, x: Tensor) -> Tensor:
        scale = self.activation(self.fc1(self.avgpool(x)))
        return self.scale_activation(self.fc2(scale)) * x


class InvertedResidual(nn.Module):
    def __init__(
        self, inputs: int, kernel: int, expanded: int, outputs: int, se: bool, swish: bool, stride: int
    ) -> None:
        super().__init__()
        activation = nn.Hardswish if swish else nn.ReLU
        layers: list[nn.Module] = []
        if expanded != inputs:
            layers.append(conv_norm(inputs, expanded, 1, activation=activation))
        layers.append(conv_norm(expanded, expanded, kernel, stride, expanded, activation))
        if se:
            layers.append(SqueezeExcitation(expanded, divisible(expanded // 4)))
        layers.append(conv_norm(expanded, outputs, 1))
        self.block = nn.Sequential(*layers)
        self.shortcut = stride == 1 and inputs == outputs

    def forward(self, x: Tensor) -> Tensor:
        result = self.block(x)
        return result + x if self.shortcut else result


class MobileNetV3(nn.Module):
    def __init__(self, blocks: int = len(MOBILE_BLOCKS), classes: int = 1000) -> None:
        super().__init__()
        layers: list[nn.Module] = [conv_norm(3, 16, 3, 2, activation=nn.Hardswish)]
        inputs = 16
        for kernel, expanded, outputs, se, swish, stride in MOBILE_BLOCKS[:blocks]:
            layers.append(InvertedResidual(inputs, kernel, expanded, outputs, se, swish, stride))
            inputs = outputs
        layers.append(conv_norm(inputs, inputs * 6, 1, activation=nn.Hardswish))
        self.features, self.avgpool = nn.Sequential(*layers), nn.AdaptiveAvgPool2d(1)
        self.classifier = nn.Sequential(
            nn.Linear(inputs * 6, 1280), nn.Hardswish(inplace=True), nn.Dropout(0.2), nn.Linear(1280, classes)
        )

    def forward(self, x: Tensor) -> Tensor:
        return self.classifier(torch.flatten(self.avgpool(self.features(x)), 1))


# ---- ConvNeXt-T


class Permute(nn.Module):
    def __init__(self, *order: int) -> None:
        super().__init__()
        self.order = order

    def forward(self, x: Tensor) -> Tensor:
        return x.permute(self.order)


class LayerNorm2d(nn.LayerNorm):
    def forward(self, x: Tensor) -> Tensor:
        return super().forward(x.permute(0, 2, 3, 1)).permute(0, 3, 1, 2)


class CNBlock(nn.Module):
    def __init__(self, channels: int) -> None:
        super().__init__()
        self.block = nn.Sequential(
            nn.Conv2d(channels, channels, 7, padding=3, groups=channels),
            Permute(0, 2, 3, 1),
            nn.LayerNorm(channels, eps=1e-6),
            nn.Linear(channels, 4 * channels),
            nn.GELU(),
            nn.Linear(4 * channels, channels),
            Permute(0, 3, 1, 2),
        )
        self.layer_scale = nn.Parameter(torch.full((channels, 1, 1), 0.1))

    def forward(self, x: Tensor) -> Tensor:
        return x + self.layer_scale * self.block(x)


class ConvNeXt(nn.Module):
    def __init__(self, blocks: tuple[int, ...] = (3, 3, 9, 3), width: int = 96, classes: int = 1000) -> None:
        super().__init__()
        layers: list[nn.Module] = [nn.Conv2d(3, width, 4, 4), LayerNorm2d(width, eps=1e-6)]
        for stage, count in enumerate(blocks):
            channels = width << stage
            if stage > 0:
                layers += [LayerNorm2d(channels // 2, eps=1e-6), nn.Conv2d(channels // 2, channels, 2, 2)]
            layers += [CNBlock(channels) for _ in range(count)]
        self.features, self.avgpool = nn.Sequential(*layers), nn.AdaptiveAvgPool2d(1)
        self.classifier = nn.Sequential(LayerNorm2d(channels, eps=1e-6), nn.Flatten(1), nn.Linear(channels, classes))

    def forward(self, x: Tensor) -> Tensor:
        return self.classifier(self.avgpool(self.features(x)))


# ---- R3D-18


class BasicBlock3d(nn.Module):
    def __init__(self, inputs: int, outputs: int, stride: int) -> None:
        super().__init__()
        self.conv1 = nn.Sequential(
            nn.Conv3d(inputs, outputs, 3, stride, padding=1, bias=False), nn.BatchNorm3d(outputs), nn.ReLU(inplace=True)
        )
        self.conv2 = nn.Sequential(nn.Conv3d(outputs, outputs, 3, padding=1, bias=False), nn.BatchNorm3d(outputs))
        self.relu = nn.ReLU(inplace=True)
        self.downsample: nn.Module | None = None
        if stride != 1 or inputs != outputs:
            self.downsample = nn.Sequential(nn.Conv3d(inputs, outputs, 1, stride, bias=False), nn.BatchNorm3d(outputs))

    def forward(self, x: Tensor) -> Tensor:
        residual = x
        out = self.conv2(self.conv1(x))
        if self.downsample is not None:
            residual = self.downsample(x)
        out += residual
        return self.relu(out)


class R3D(nn.Module):
    def __init__(self, blocks: int = 2, width: int = 64, classes: int = 400) -> None:
        super().__init__()
        self.stem = nn.Sequential(
            nn.Conv3d(3, width, (3, 7, 7), (1, 2, 2), padding=(1, 3, 3), bias=False),
            nn.BatchNorm3d(width),
            nn.ReLU(inplace=True),
        )
        layers, inputs = [], width
        for stage in range(4):
            for i in range(blocks):
                layers.append(BasicBlock3d(inputs, width << stage, 2 if stage > 0 and i == 0 else 1))
                inputs = width << stage
        self.layers = nn.Sequential(*layers)
        self.avgpool, self.fc = nn.AdaptiveAvgPool3d(1), nn.Linear(inputs, classes)

    def forward(self, x: Tensor) -> Tensor:
        return self.fc(self.avgpool(self.layers(self.stem(x))).flatten(1))


NETWORKS: dict[str, tuple[Callable[[], nn.Module], tuple[int, ...]]] = {
    "resnet50": (ResNet, (1, 3, 224, 224)),
    "mobilenet_v3_large": (MobileNetV3, (1, 3, 224, 224)),
    "convnext_tiny": (ConvNeXt, (1, 3, 224, 224)),
    "r3d_18": (R3D, (1, 3, 16, 112, 112)),
}
