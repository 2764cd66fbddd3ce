"""Small networks, two for grey and one for coloured images, and how an image becomes their
input."""

import io

import numpy
import torch
from PIL import Image
from torch import nn

SIDE = 28  # pixels
FEATURES = 128  # inputs of the last layer


def network(classes, channels=16):
    """Returns the network: two convolutions, with `channels` and twice as many output channels,
    and two fully connected layers."""
    return nn.Sequential(
        nn.Conv2d(1, channels, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2),
        nn.Conv2d(channels, 2 * channels, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2),
        nn.Flatten(), nn.Linear(2 * channels * (SIDE // 4) ** 2, FEATURES), nn.ReLU(),
        nn.Linear(FEATURES, classes),
    )  # fmt: skip


def mlp(classes, channels=16):
    """Returns a network of three fully connected layers, the first with 32 · `channels` outputs."""
    return nn.Sequential(
        nn.Flatten(), nn.Linear(SIDE**2, 32 * channels), nn.ReLU(),
        nn.Linear(32 * channels, FEATURES), nn.ReLU(), nn.Linear(FEATURES, classes),
    )  # fmt: skip


class Block(nn.Module):
    """Two convolutions, whose result is added to the input; each side is half as long after it."""

    def __init__(self, inputs, outputs):
        super().__init__()
        self.inner = nn.Sequential(
            nn.Conv2d(inputs, outputs, 3, 2, padding=1, bias=False), nn.BatchNorm2d(outputs),
            nn.ReLU(),
            nn.Conv2d(outputs, outputs, 3, padding=1, bias=False), nn.BatchNorm2d(outputs),
        )  # fmt: skip
        self.short = nn.Conv2d(inputs, outputs, 1, 2, bias=False)

    def forward(self, x):
        return nn.functional.relu(self.inner(x) + self.short(x))


def residual(classes, channels=8):
    """Returns a residual network for coloured images: a convolution with `channels` output
    channels, two blocks that double them, and two fully connected layers."""
    return nn.Sequential(
        nn.Conv2d(3, channels, 3, 2, padding=1, bias=False), nn.BatchNorm2d(channels), nn.ReLU(),
        Block(channels, 2 * channels), Block(2 * channels, 4 * channels),
        nn.AdaptiveAvgPool2d((3, 5)), nn.Flatten(),
        nn.Linear(4 * channels * 15, FEATURES), nn.ReLU(), nn.Linear(FEATURES, classes),
    )  # fmt: skip


def augmented(x):
    """Returns a batch of images moved by up to two pixels and in other colours, at random."""
    moved = nn.functional.pad(x, (2, 2, 2, 2), mode="replicate")
    (rows, columns), places = x.shape[2:], torch.randint(5, (len(x), 2)).tolist()
    moved = torch.stack(
        [image[:, t : t + rows, s : s + columns] for image, (t, s) in zip(moved, places)]
    )
    return moved * (0.8 + 0.4 * torch.rand(len(x), 3, 1, 1))


def decode(view, label):
    """Returns an image file's pixels in [0, 1], of shape [1, SIDE, SIDE], and its label."""
    image = Image.open(io.BytesIO(view)).convert("L")
    if image.size != (SIDE, SIDE):
        image = image.resize((SIDE, SIDE))
    return torch.from_numpy(numpy.array(image)).unsqueeze(0).float() / 255, label


def decode_colours(view, label):
    """Returns an image file's pixels in [0, 1], of shape [3, height, width], and its label."""
    image = numpy.array(Image.open(io.BytesIO(view)).convert("RGB"))
    return torch.from_numpy(image).permute(2, 0, 1).float() / 255, label


def decode_and_keep(view, label):
    """Returns what decode does, and the file's bytes."""
    return *decode(view, label), bytes(view)
