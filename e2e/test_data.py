"""The forms in which a data set may be named, the names that files may have, and the loaders that
may read it."""

import os
import shutil
import subprocess
import sys

import pytest
import run
from dataset import EPOCHS, GLOBAL_BATCH, SAMPLES, make_tree


@pytest.fixture
def parts(tree, tmp_path):
    """A folder with the data set twice: to train on and, smaller, to test with."""
    shutil.copytree(tree, tmp_path / "both" / "train")
    make_tree(tmp_path / "both" / "test", 50)
    return tmp_path / "both"


def test_two_data_sets_and_accuracy(train, losses, reference, parts):
    """PyTorch tests on the second one."""
    args = ["--epochs", EPOCHS, "--sampler", "pads", *losses]
    result = train(data=parts, ranks=2, args=args, torch=True).check(EPOCHS, SAMPLES)
    assert result.digest == reference("pads").digest
    accuracy = [epoch["metrics"]["accuracy"] for epoch in result.epochs]
    assert len(accuracy) == EPOCHS
    of_50_samples = [round(a * 50) / 50 for a in accuracy]
    assert of_50_samples == pytest.approx(accuracy, abs=1e-4)


@pytest.mark.parametrize("form", ["tree", "named", "manifests"])
def test_two_data_sets(train, reference, parts, form):
    data = parts
    if form == "named":
        data = [f"train={parts}/train", f"val={parts}/test"]
    if form == "manifests":
        for name in "train", "test":
            index = [
                run.RANKPOOL, "index", "--quiet", parts / name, "-o",
                parts.parent / f"{name}.parquet",
            ]
            subprocess.run(index, check=True)
        data = [f"{parts.parent}/train.parquet", f"{parts.parent}/test.parquet"]
    result = train(data=data, ranks=2, args=["--epochs", EPOCHS, "--sampler", "pads"]).check(
        EPOCHS, SAMPLES
    )
    assert result.digest == reference("pads").digest
    passes = [event for event in result.events if event["event"] == "pass"]
    assert [event["draws"] for event in passes] == [50] * EPOCHS


def test_names_of_files(train, tmp_path):
    odd = [
        b"a b", b"it's", b'"quoted"', b"new\nline", b"\\n", b"caf\xe9", "café".encode(), b"$HOME;*",
        b"-v", b"\x01",
    ]
    make_tree(tmp_path / "plain", len(odd))
    files = sorted((tmp_path / "plain").glob("*/*.png"))
    root = os.path.join(os.fsencode(tmp_path), b"an odd'\nroot=\xe9")
    for i, name in enumerate(odd):
        folder = os.path.join(root, odd[-1 - i], b"deeper" if i % 2 else b"")
        os.makedirs(folder)
        shutil.copy(files[i], os.path.join(folder, name + b".png"))
    result = train(data=os.fsdecode(root), ranks=2, args=["--sampler", "torch", "--epochs", EPOCHS])
    assert result.code == 0, result.stderr
    assert result.digest == run.plain(
        os.fsdecode(root), "--world-size", 2, "--batch-size", 12, "--epochs", EPOCHS
    )


def loaded(train, mode, *names, **way):
    script = [
        sys.executable, run.ROOT / "e2e" / "loader_modes.py", mode, EPOCHS, GLOBAL_BATCH, *names,
    ]
    result = train(command=script, options=run.PATIENT, **way).check(EPOCHS, SAMPLES)
    assert result.summary["fallback_reads"] == 0
    return [line.split()[1] for line in result.stdout.splitlines() if line.startswith("digest ")]


FULL = pytest.mark.full


@pytest.mark.parametrize(
    "mode",
    [
        "in process", "fork",
        *(pytest.param(m, marks=FULL) for m in ("spawn", "persistent", "persistent spawn")),
    ],
)
def test_loader(train, reference, mode):
    assert loaded(train, mode) == [reference("torch").digest]


@pytest.mark.parametrize("mode", [pytest.param("in process", marks=FULL), "persistent"])
def test_two_loaders(train, reference, tree, mode):
    data = [f"train={tree}", f"val={tree}"]
    assert loaded(train, mode, "train", "val", data=data) == [reference("torch").digest] * 2
