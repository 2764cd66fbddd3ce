"""What the tests share: a small data set, losses, reference runs, and the functions that train."""

import itertools
import os
from pathlib import Path

import numpy
import pytest
import run
from alone import own_shared_memory
from dataset import EPOCHS, SAMPLES, make_tree
from losses import loss


def pytest_configure(config):
    if not any("slurm" in word for word in config.args):  # Slurm's testbed has its own namespaces
        own_shared_memory()


# Tests that wait for time-outs: they start first, so that none runs alone at the end.
WAITING = {"test_doctor.py", "test_hangs.py", "test_network.py", "test_shrink.py", "test_warm.py"}


def pytest_collection_modifyitems(items):
    items.sort(key=lambda item: item.path.name not in WAITING)


def pytest_sessionstart(session):
    if not os.access(run.RANKPOOL, os.X_OK):
        raise pytest.UsageError(
            f"{run.RANKPOOL} is missing: run make build, or name a program in RANKPOOL"
        )


@pytest.fixture(scope="session", autouse=True)
def cache_home(tmp_path_factory):
    """Keeps the manifests that rankpool caches out of the user's folder, and what Go has compiled
    in it."""
    home = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    os.environ.setdefault("GOCACHE", str(home / "go-build"))
    os.environ["XDG_CACHE_HOME"] = str(tmp_path_factory.mktemp("cache"))


@pytest.fixture(scope="session")
def tree(tmp_path_factory):
    return make_tree(tmp_path_factory.mktemp("data") / "tree", SAMPLES)


@pytest.fixture(scope="session")
def losses(tmp_path_factory):
    """The arguments that make train.py report the same losses as trainer.py, so that all runs of
    pads draw the same samples."""
    path = tmp_path_factory.mktemp("losses") / "losses.npy"
    numpy.save(
        path, numpy.array([[loss(e, i) for i in range(SAMPLES)] for e in range(EPOCHS)], "float32")
    )
    return ["--losses", path]


@pytest.fixture
def start(tmp_path, tree, losses):
    """start(**what) starts a run in a folder of its own; see run.start. On `tree`, train.py reports
    the same losses as trainer.py."""
    numbers, runs = itertools.count(), []

    def start(data=None, args=(), **what):
        folder = tmp_path / f"run{next(numbers)}"
        folder.mkdir()
        what["args"] = [*losses, *args] if what.get("torch") and data is None else args
        runs.append(run.start(folder, data or tree, **what))
        return runs[-1]

    yield start
    for one in runs:
        one.kill(one.processes())


@pytest.fixture
def train(start):
    """train(ranks=…, memory=…, mpi=…, args=[…]) trains to the end and returns a run.Result."""
    return lambda **what: start(**what).finish()


@pytest.fixture(scope="session")
def reference(tmp_path_factory, tree):
    """reference(sampler) is the result of an undisturbed run on one rank, without a cache."""
    known = {}

    def reference(sampler):
        if sampler not in known:
            args = ["--epochs", EPOCHS, "--sampler", sampler]
            one = run.start(tmp_path_factory.mktemp("reference"), tree, memory="0", args=args)
            known[sampler] = one.finish().check(EPOCHS, SAMPLES)
        return known[sampler]

    return reference
