"""What the framework tests share: images, and scripts that run with a cache or without one."""

import json
import os
import socket
import subprocess
import sys
from pathlib import Path

import numpy
import pytest
from PIL import Image

HERE = Path(__file__).parent
ROOT = HERE.parent.parent
RANKPOOL = ROOT / "bin" / "rankpool"
PATIENCE_SECONDS = 1200  # a network of 224 × 224 pixels is slow on a CPU
SAMPLES = {"train": 20, "val": 8}


def pytest_addoption(parser):
    parser.addoption(
        "--imagenet", metavar="FILE", help="imagenet/main.py of github.com/pytorch/examples"
    )
    parser.addoption(
        "--torchvision",
        metavar="FILE",
        help="references/classification/train.py of github.com/pytorch/vision",
    )


@pytest.fixture(scope="session")
def images(tmp_path_factory):
    """A folder with data sets train and val, of five classes."""
    return make_images(tmp_path_factory.mktemp("images"), SAMPLES)


def make_images(root, counts):
    noise = numpy.random.default_rng(1)
    for name, count in counts.items():
        for i in range(count):
            folder = root / name / "abcde"[i % 5]
            folder.mkdir(parents=True, exist_ok=True)
            Image.fromarray(noise.integers(0, 256, (40, 48, 3), dtype=numpy.uint8)).save(
                folder / f"{i:03}.png"
            )
    return root


@pytest.fixture
def trained(tmp_path):
    """trained(name, command, ranks, data) runs a command in a folder, and returns the folder.

    With `data`, a cache of `ranks` ranks serves it; without, `ranks` processes read files.
    """

    def trained(name, command, ranks=2, data=None):
        folder = tmp_path / name
        folder.mkdir(exist_ok=True)
        command = [sys.executable, HERE / "watch.py", "stream", *command]
        environment = {**os.environ, "PYTHONPATH": str(ROOT / "python"), "OMP_NUM_THREADS": "1"}
        if data:
            run = [
                RANKPOOL,
                "run",
                "--ranks",
                ranks,
                "--memory",
                "20%",
                "--log",
                "run.jsonl",
                "--tune",
                "progress=0",
            ]
            finish([start(folder, [*run, "--data", data, "--", *command], environment)])
        else:
            rendezvous = {
                "MASTER_ADDR": "127.0.0.1",
                "MASTER_PORT": str(free_port()),
                "WORLD_SIZE": str(ranks),
            }
            rendezvous["LOCAL_WORLD_SIZE"] = rendezvous["WORLD_SIZE"]
            places = [dict.fromkeys(("RANK", "LOCAL_RANK"), str(rank)) for rank in range(ranks)]
            seats = [{**environment, **rendezvous, **place} for place in places]
            finish([start(folder, command, seat) for seat in seats])
        return folder

    return trained


def start(folder, command, environment):
    log = open(folder / f"output.{environment.get('RANK', 'run')}", "w+")
    words = [str(word) for word in command]
    return subprocess.Popen(
        words, cwd=folder, env=environment, stdout=log, stderr=subprocess.STDOUT
    ), log


def finish(started):
    try:
        codes = [process.wait(PATIENCE_SECONDS) for process, _ in started]
    finally:
        for process, _ in started:
            process.kill()
    logs = []
    for _, log in started:
        log.seek(0)
        logs.append(log.read())
    assert not any(codes), "\n".join(logs)


def free_port():
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return listener.getsockname()[1]


def stream(folder, data="train"):
    """Returns the ids that each trainer fetched from a data set, in order."""
    found = {}
    for log in sorted(folder.glob("stream.*")):
        lines = [line.split() for line in log.read_text().splitlines()]
        found[log.suffix] = [int(id) for name, id in lines if name == data]
    return found


def draws(folder):
    """Returns how many samples trainers drew."""
    return counted(folder, "draws")[0]


def counted(folder, *names):
    """Returns counts of a run."""
    events = [json.loads(line) for line in (folder / "run.jsonl").read_text().splitlines()]
    (summary,) = [event for event in events if event["event"] == "summary"]
    return [summary[name] for name in names]
