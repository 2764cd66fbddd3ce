"""Transforms and collate functions of the tests, importable by spawned workers."""

import os
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
