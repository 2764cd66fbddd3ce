"""A small convolutional network for small grey images, and how an image becomes its input."""

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


def decode(view, label):
    """Returns an image file's pixels in [0, 1], of shape [1, SIDE, SIDE], and its label."""
    image = Image.open(io.BytesIO(view)).convert("L")
    if image.size != (SIDE, SIDE):
        image = image.resize((SIDE, SIDE))
    return torch.from_numpy(numpy.array(image)).unsqueeze(0).float() / 255, label


def decode_and_keep(view, label):
    """Returns what decode does, and the file's bytes."""
    return *decode(view, label), bytes(view)
