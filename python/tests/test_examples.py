"""The example script: the stream that plain PyTorch draws, also when it is stopped and resumed in
mid-epoch."""

import os
import socket
import subprocess
import sys
from pathlib import Path

import numpy
import pytest
from PIL import Image

import rankpool
from fakedoor import Data

EXAMPLES = Path(__file__).parents[1] / "examples"
REPORT, METRIC, RELEASE, SAVE, LIST = 5, 7, 6, 8, 11


def make_images(root, samples):
    """Writes small PNG files, white ones in class c1; returns them by id."""
    rng, files = numpy.random.default_rng(0), []
    for i in range(samples):
        label = 2 * i // samples
        os.makedirs(os.path.join(root, f"c{label}"), exist_ok=True)
        files.append(os.path.join(root, f"c{label}", f"{i:03}.png"))
        Image.fromarray(rng.integers(label * 200, label * 200 + 50, (30, 28), numpy.uint8)).save(
            files[-1]
        )
    return files


@pytest.fixture
def images(tmp_path, door):
    door.kill()
    door.data = [
        Data(str(tmp_path), name, make_images, samples=n)
        for name, n in (("images", 42), ("val", 9))
    ]
    door.start()
    return door


PATIENCE_SECONDS = 300  # for what takes some seconds on an idle machine


def python(script, *args, **env):
    command = [sys.executable, str(EXAMPLES / script), *map(str, args)]
    return subprocess.Popen(command, env={**os.environ, **env}, stdout=-1, stderr=-1, text=True)


def train(*args, world=1, status=0):
    """Runs one process per trainer; returns what trainer 0 printed."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    env = {"WORLD_SIZE": str(world), "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port)}
    trainers = [python("train.py", *args, RANK=str(rank), **env) for rank in range(world)]
    results = [
        (*trainer.communicate(timeout=PATIENCE_SECONDS), trainer.returncode) for trainer in trainers
    ]
    assert [result[2] for result in results] == [status] * world, results
    return results[0][0], results[0][1]


def reported(door, before=0):
    """Returns the reports that came after the first `before`, when all processes have ended."""
    door.wait(lambda: not door.sockets)
    return door.seen(REPORT)[before:]


def plain(door, *args):
    process = python("plain.py", door.data[0].root, *args)
    out, err = process.communicate(timeout=PATIENCE_SECONDS)
    assert process.returncode == 0, err
    return out


@pytest.mark.parametrize("world, workers", [(1, 1), (2, 0)])
def test_the_digest_is_that_of_plain_pytorch(images, tmp_path, world, workers):
    common = ["--batch-size", 8, "--epochs", 2, "--seed", 3]
    out, _ = train(*common, "--sampler", "torch", "--digest", "--workers", workers, world=world)
    assert out.splitlines()[-1] + "\n" == plain(images, *common, "--world-size", world)
    assert out.startswith("epoch 0 accuracy 0.") or out.startswith("epoch 0 accuracy 1.")
    batches = -(-42 // (8 * world))
    reports = [(0, epoch, batch) for epoch in (0, 1) for batch in range(batches)] * world
    assert sorted(r[:3] for r in reported(images)) == sorted(reports)
    assert [(m["stream"], m["epoch"], m["name"]) for m in images.seen(METRIC)] == [
        (0, e, "accuracy") for e in (0, 1)
    ]


def test_the_plain_mean_leaves_the_weights_out(images):
    def losses(weights, *args):
        images.weights, before = weights, len(images.seen(REPORT))
        train("--batch-size", 8, "--epochs", 1, *args)
        return reported(images, before)

    equal, plain, weighted = losses(False), losses(True, "--plain-mean"), losses(True)
    assert (
        len(equal) == 6 and plain == equal and weighted[0] == equal[0] and weighted[1] != equal[1]
    )


def test_augmented_colours_are_the_same_in_each_run(images):
    runs = []
    for _ in range(2):
        before = len(images.seen(REPORT))
        out, _ = train("--batch-size", 8, "--epochs", 1, "--colours")
        assert out.startswith("epoch 0 accuracy")
        runs.append(reported(images, before))
    assert len(runs[0]) == 6 and runs[0] == runs[1]


def test_a_run_stopped_in_mid_epoch_and_resumed_has_the_same_stream(images, tmp_path):
    whole, parts, save = tmp_path / "whole", tmp_path / "parts", tmp_path / "saved"
    common = ["--batch-size", 8, "--epochs", 3]
    train(*common, "--digest-log", whole)
    train(*common, "--digest-log", parts, "--workers", 1, "--save", save, "--stop-after", 8)
    assert parts.read_text() == "".join(whole.read_text().splitlines(True)[:8])
    train(*common, "--digest-log", parts, "--save", save, "--resume", save)
    assert parts.read_text() == whole.read_text() and len(whole.read_text().splitlines()) == 18
    assert images.seen(SAVE) == [(0, 0, 6), (0, 1, 2), (0, 1, 6), (0, 2, 6)]


def test_given_losses_are_reported_in_place_of_its_own(images, tmp_path):
    losses = numpy.arange(2 * 42, dtype=numpy.float32).reshape(2, 42)
    numpy.save(tmp_path / "losses.npy", losses)
    train("--batch-size", 42, "--epochs", 3, "--losses", tmp_path / "losses.npy")
    assert [(epoch, sorted(told)) for _, epoch, _, told in reported(images)] == [
        (epoch, losses[row].tolist()) for epoch, row in enumerate((0, 1, 1))
    ]


def test_a_sample_that_cannot_be_read_ends_the_script_with_a_sentence(images):
    images.sources = {(0, 0, 0): 5}
    out, err = train("--batch-size", 8, status=1)
    assert err.count("\n") == 1 and "bad block" in err and err.startswith("rankpool: sample ")


def test_plain_finds_the_files_that_the_cache_finds(images):
    root = Path(images.data[0].root)
    (root / ".hidden").mkdir()
    (root / ".hidden" / "x").touch()
    (root / "c0" / ".x").touch()
    sys.path.insert(0, str(EXAMPLES))
    try:
        from plain import files_of
    finally:
        sys.path.pop(0)
    assert files_of(str(root)) == images.data[0].files
    assert rankpool.Dataset().samples == len(images.data[0].files)


def dropin(root, *args, **env):
    process = python("dropin.py", root, "--epochs", 2, "--batch-size", 8, *args, **env)
    out, err = process.communicate(timeout=PATIENCE_SECONDS)
    assert process.returncode == 0, err
    return out, err


def test_the_dropin_script_trains_the_same_beside_a_cache_and_without(images):
    root = images.data[0].root
    beside = dropin(root, "--workers", 2)
    assert "storage" not in beside[1]
    assert len(images.seen(4)) == 12
    without = dropin(root, RANKPOOL_SOCKET="")
    assert len(images.seen(4)) == 12
    assert beside[0] == without[0]


def test_the_dropin_script_reports_losses(images):
    images.weights = True
    dropin(images.data[0].root, "--importance")
    assert [report[:3] for report in reported(images)] == [
        (0, epoch, n) for epoch in range(2) for n in range(6)
    ]


def make_texts(root, samples):
    """Writes short texts of one to twelve words; returns them by id."""
    files = []
    for i in range(samples):
        folder = os.path.join(root, f"c{2 * i // samples}")
        os.makedirs(folder, exist_ok=True)
        files.append(os.path.join(folder, f"{i:03}.txt"))
        Path(files[-1]).write_text("word " * (1 + i * 7 % 12))
    return files


def test_sequences_of_like_length_are_drawn_by_importance(tmp_path, door):
    door.kill()
    door.data = [Data(str(tmp_path), "texts", make_texts, samples=60)]
    door.start()
    root = door.data[0].root

    def trained(*args, **env):
        process = python("sequences.py", root, "--epochs", 3, *args, **env)
        out, err = process.communicate(timeout=PATIENCE_SECONDS)
        assert process.returncode == 0, err
        words = [line.split() for line in out.splitlines()]
        return [float(w[3]) for w in words], [float(w[-2].rstrip("%")) for w in words], out

    losses, padding, out = trained()
    assert len(door.seen(LIST)) == 3  # each epoch is drawn by the losses of the one before
    assert losses == sorted(losses, reverse=True) and losses[-1] < losses[0] / 2
    assert max(padding) < 25 < min(trained("--buckets", 1)[1])
    assert trained(RANKPOOL_SOCKET="")[2] == out
