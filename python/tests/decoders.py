"""Transforms and collate functions of the tests, importable by spawned workers."""

import mmap
import os
import random
import signal

import numpy
import torch

import rankpool.connection

rankpool.connection.RETRY_SECONDS = 0.0  # here for spawned workers, which no monkeypatch reaches


def first_byte(view, label):
    return torch.tensor(view[0]), torch.tensor(len(view)), label


def array_over_view(view, label):
    """Keeps pointing into the view until it is collated."""
    return torch.from_numpy(numpy.frombuffer(view, numpy.uint8)[:50]), label


def number(view, label):
    return view[0]


def content(view, label):
    return bytes(view), label


def hears_a_signal(view, label):
    os.kill(os.getpid(), signal.SIGUSR1)


def fails(view, label):
    raise KeyError("decode")


def as_dict(items):
    return {"x": torch.stack([item[0] for item in items])}


def say_hello(worker):
    """A worker_init_fn."""
    assert worker in (0, 1)


# --- for the drop-in classes ---


def is_sample(path):
    return os.path.basename(path).startswith("s")


def read_file(path):
    """A loader that uses Python's open()."""
    with open(path, "rb") as file:
        content = file.read()
    assert path.endswith(f"s{content[0]:03}") and type(path) is str
    return content


def read_past_python(path):
    """A loader that reads storage by itself."""
    file = os.open(path, os.O_RDONLY)
    try:
        return os.read(file, 1 << 20)
    finally:
        os.close(file)


def read_mapped(path):
    """A loader that needs a file with a descriptor."""
    with open(path, "rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as content:
        return content[:]


def augment(content):
    """A transform that draws from every generator; the first number it returns is the sample's."""
    numbers = [random.random(), numpy.random.random(), torch.rand(1).item()]
    return torch.tensor([float(content[0]), float(len(content)), *numbers], dtype=torch.float64)


def augment_normal(content):
    """Leaves the second of a pair of numbers in NumPy's generator."""
    return numpy.random.normal()


def augment_target(target):
    return target, random.random()
