"""Random crops and turns of small images, without torchvision."""

import torch


def augment(image):
    """Returns an image cropped and turned at random, of shape [1, 28, 28], with pixels in [0,
    1]."""
    image = image.convert("L")
    left, top = (int(torch.randint(image.size[side] // 4 + 1, ())) for side in (0, 1))
    image = image.resize((28, 28), box=(left, top, *image.size))
    pixels = torch.tensor(list(image.getdata()), dtype=torch.float32).reshape(1, 28, 28) / 255
    return pixels.flip(2) if torch.rand(()) < 0.5 else pixels
