"""The demo's photograph and its filters."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from pathlib import Path

import numpy as np

import vkconv
from vkconv._cli.operation import Operation, convolution, transposed
from vkconv._types import Array

BINOMIAL = np.array([1, 4, 6, 4, 1], np.float32) / 16
BILINEAR = np.array([1, 3, 3, 1], np.float32) / 4
LUMINANCE = np.array([0.299, 0.587, 0.114], np.float32)
FILTERS = 9
GABORS = 6
FRAMES = 12
CROP = 256
PAN = 3  # pixels a frame


def load(path: str | None) -> Array:
    """The photograph as float32 in 0..1 of shape (1, H, W, 3); by default Grace Hopper's portrait from Matplotlib."""
    try:
        from PIL import Image

        if path is None:
            from matplotlib.cbook import get_sample_data

            path = str(get_sample_data("grace_hopper.jpg", asfileobj=False))
    except ImportError as error:
        raise OSError(f"{error}: pip install 'vkconv[demo]'") from error
    pixels = np.asarray(Image.open(path).convert("RGB"), np.float32)
    return np.ascontiguousarray(pixels[None] / 255)


def gaussian(sigma: float) -> Array:
    """A normalised Gaussian, cut at three sigma."""
    offsets = np.arange(-math.ceil(3 * sigma), math.ceil(3 * sigma) + 1)
    taps = np.exp(-0.5 * (offsets / sigma) ** 2)
    return np.asarray(taps / taps.sum(), np.float32)


def per_channel(kernel: Array, channels: int = 3) -> Array:
    """A (KH, KW) kernel as a depthwise weight (C, KH, KW, 1)."""
    return np.ascontiguousarray(np.broadcast_to(kernel[None, :, :, None], (channels, *kernel.shape, 1)))


def sobel() -> Array:
    """Horizontal and vertical gradients of the luminance: (2, 3, 3, 3)."""
    smooth, slope = np.array([1, 2, 1], np.float32) / 4, np.array([-1, 0, 1], np.float32) / 2
    kernels = np.stack([np.outer(smooth, slope), np.outer(slope, smooth)])
    return np.ascontiguousarray(kernels[..., None] * LUMINANCE)


def gabor_bank(size: int = 9, wavelength: float = 5.0) -> Array:
    """Luminance filters tuned to GABORS directions: (GABORS, size, size, 3)."""
    y, x = np.mgrid[:size, :size] - (size - 1) / 2
    kernels = []
    for angle in np.arange(GABORS) * math.pi / GABORS:
        along = x * math.cos(angle) + y * math.sin(angle)
        kernel = np.cos(2 * math.pi * along / wavelength) * np.exp(-(x**2 + y**2) / (2 * (size / 5) ** 2))
        kernel -= kernel.mean()
        kernels.append(kernel / np.abs(kernel).sum())
    return np.ascontiguousarray(np.stack(kernels).astype(np.float32)[..., None] * LUMINANCE)


def motion_bank() -> Array:
    """Over time: a blur, and the difference of neighbouring frames; 3x3 binomial in space: (6, 3, 3, 3, 3)."""
    space = np.outer([1, 2, 1], [1, 2, 1]).astype(np.float32) / 16
    time = np.array([[0.25, 0.5, 0.25], [-0.5, 0, 0.5]], np.float32)
    weight = np.zeros((6, 3, 3, 3, 3), np.float32)
    for kind in range(2):
        for colour in range(3):
            weight[kind * 3 + colour, :, :, :, colour] = time[kind][:, None, None] * space
    return weight


def video(photo: Array) -> Array:
    """A slow pan over the photograph: FRAMES shifted crops, (1, FRAMES, CROP, CROP, 3)."""
    _, h, w, _ = photo.shape
    crop = min(CROP, h, w)
    top, left = (h - crop) // 4, (w - crop) // 2
    shifts = [(min(top + i * PAN, h - crop), min(left + i * PAN, w - crop)) for i in range(FRAMES)]
    return np.stack([photo[0, y : y + crop, x : x + crop] for y, x in shifts])[None]


def filters(photo: Array, results: Mapping[str, Array]) -> list[Operation]:
    """The next operations that `results`, the answers so far by title, allow; none when all are there."""
    everything = math.inf
    g = gaussian(3)
    half = 2 * (len(g) // 2,)
    stages: list[Callable[[], list[Operation]]] = [
        lambda: [
            convolution("blur rows", vkconv.depthwise_conv2d, photo, per_channel(g[None, :]), padding=(0, half[1]),
                        work=everything),
            convolution("edges", vkconv.conv2d, photo, sobel(), padding=1, work=everything),
            convolution("directions", vkconv.conv2d, photo, gabor_bank(), padding=4, work=everything),
            convolution("wavelet", vkconv.depthwise_conv2d, photo, per_channel(np.outer(BINOMIAL, BINOMIAL)), padding=8,
                        dilation=4, work=everything),
            convolution("half", vkconv.depthwise_conv2d, photo, per_channel(np.outer(BINOMIAL, BINOMIAL)), stride=2,
                        padding=2, work=everything),
            convolution("motion", vkconv.conv3d, video(photo), motion_bank(), padding=(0, 1, 1), work=everything),
        ],
        lambda: [
            convolution("blur columns", vkconv.depthwise_conv2d, results["blur rows"], per_channel(g[:, None]),
                        padding=(half[0], 0), work=everything),
            convolution("quarter", vkconv.depthwise_conv2d, results["half"], per_channel(np.outer(BINOMIAL, BINOMIAL)),
                        stride=2, padding=2, work=everything),
        ],
        lambda: [
            transposed("enlarged", vkconv.conv_transpose2d, results["quarter"],
                       per_channel(np.outer(BILINEAR, BILINEAR)), stride=2, padding=1, groups=3, work=everything),
        ],
    ]  # fmt: skip
    for stage in stages:
        operations = stage()
        if any(op.title not in results for op in operations):
            return operations
    return []


def pictures(photo: Array, results: Mapping[str, Array]) -> dict[str, Array]:
    """What the contact sheet shows, (H, W, 3) in 0..1 by caption."""
    edges = np.hypot(results["edges"][0, ..., 0], results["edges"][0, ..., 1])
    directions = np.abs(results["directions"][0])
    motion = results["motion"][0]
    return {
        "photograph": photo[0],
        "separable blur (depthwise)": results["blur columns"][0],
        "edges (Sobel)": _grey(edges / np.quantile(edges, 0.995)),
        "directions (9x9 Gabor bank)": _by_angle(directions),
        "wavelet detail (dilation 4)": 0.5 + 2 * (photo[0] - results["wavelet"][0]),
        "half (stride 2)": results["half"][0],
        "quarter (stride 2 twice)": results["quarter"][0],
        "enlarged (transposed)": results["enlarged"][0],
        "video, blurred in time": motion[len(motion) // 2, ..., :3],
        "video, change in time": 0.5 + motion[len(motion) // 2, ..., 3:],
    }


def _grey(values: Array) -> Array:
    return np.repeat(values[..., None], 3, axis=-1)


def _by_angle(directions: Array) -> Array:
    """The strongest direction as a hue, its strength as brightness."""
    hue = directions.argmax(-1) / directions.shape[-1] * 6
    value = np.clip(directions.max(-1) / np.quantile(directions.max(-1), 0.99), 0, 1)
    rgb = np.stack([np.clip(np.abs((hue + shift) % 6 - 3) - 1, 0, 1) for shift in (0, 4, 2)], -1)
    return np.asarray(rgb * value[..., None], np.float32)


def contact_sheet(pictures: Mapping[str, Array], path: Path, width: int = 240, columns: int = 5) -> None:
    """Writes the pictures with their captions as one PNG."""
    from PIL import Image, ImageDraw

    images = []
    for picture in pictures.values():
        pixels = np.uint8(np.clip(picture, 0, 1) * 255 + 0.5)
        image = Image.fromarray(pixels)
        image.thumbnail((width, width * 2))
        images.append(image)
    height, margin, caption = max(i.height for i in images), 8, 16
    rows = math.ceil(len(images) / columns)
    sheet = Image.new(
        "RGB", (margin + columns * (width + margin), rows * (height + margin + caption) + margin), "white"
    )
    draw = ImageDraw.Draw(sheet)
    for index, (title, image) in enumerate(zip(pictures, images, strict=True)):
        x = margin + index % columns * (width + margin)
        y = margin + index // columns * (height + margin + caption)
        draw.text((x, y), title, fill="black")
        sheet.paste(image, (x, y + caption))
    path.parent.mkdir(parents=True, exist_ok=True)
    sheet.save(path)
