"""Samples that are made of pieces of files: training gets what the library reads by itself."""

import json
import os
import shutil
import subprocess
import sys
from zlib import crc32

import h5py
import numpy
import pytest
from run import EXAMPLES, HERE, LAB, PATIENT, RANKPOOL, ROOT

ROWS, WINDOW = 600, 3
SAMPLES = ROWS - WINDOW + 1


def write(path, kind):
    """Writes a file of arrays, and returns the checksum of each window."""
    numbers = numpy.arange(ROWS * 24 * 24, dtype="float32").reshape(ROWS, 24, 24) % 977
    with h5py.File(path, "w", libver="latest" if kind == "latest" else "earliest") as file:
        if kind == "contiguous":
            file["x"] = numbers
        else:
            chunks = (2, 24, 24) if kind == "shared" else (1, 24, 24)
            file.create_dataset("x", data=numbers, chunks=chunks, compression="gzip", shuffle=True)
    return {crc32(numbers[i : i + WINDOW].tobytes()) for i in range(SAMPLES)}


def index(path, *args):
    manifest = path.with_suffix(".parquet")
    command = [RANKPOOL, "index", path, "--rows", WINDOW, "-o", manifest, *args]
    command += ["--python", sys.executable]
    done = subprocess.run(list(map(str, command)), capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return manifest


def trained(folder, world):
    """Returns the sorted checksums of each epoch, of all trainers."""
    epochs = {}
    for rank in range(world):
        for line in (folder / f"log.{rank}").read_text().splitlines():
            epoch, *sums = map(int, line.split())
            epochs.setdefault(epoch, []).extend(sums)
    return [sorted(epochs[epoch]) for epoch in sorted(epochs)]


def command(path, workers=0):
    script = HERE / "pieces.py"
    return list(map(str, (sys.executable, script, path, WINDOW, workers, "log")))


@pytest.mark.parametrize(
    "kind, ranks, workers", [
        ("chunked", 1, 0), ("latest", 2, 2),
        pytest.param("contiguous", 2, 0, marks=pytest.mark.full),
        pytest.param("shared", 1, 1, marks=pytest.mark.full),
    ],
)  # fmt: skip
def test_windows_of_hdf5(start, tmp_path, kind, ranks, workers):
    path = tmp_path / "data.h5"
    sums = write(path, kind)
    one = start(index(path), ranks=ranks, command=command(path, workers), options=PATIENT)
    result = one.finish()
    assert result.code == 0, result.stderr
    for epoch in trained(one.folder, ranks):
        assert len(epoch) == SAMPLES and set(epoch) == sums
    found = result.summary
    assert found["fallback_reads"] == 0 and "unplanned_bytes" not in found, found
    if kind != "latest":
        return
    events = [json.loads(line) for line in one.text("run.jsonl").splitlines()]
    reads = [event["storage_bytes"] for event in events if event["event"] == "epoch"]
    data_sets = reads[-1] / path.stat().st_size
    read = simulated(tmp_path, ranks)
    # pieces differ in size here, and a trainer of the real cache holds batches
    assert 0.9 < data_sets / read["rankpool"] < 1.05 and 2.4 < read["lru"], (reads, read)


def simulated(folder, ranks):
    """Returns how many data sets systems read in the last epoch when training is simulated."""
    numpy.save(folder / "losses.npy", numpy.zeros((3, SAMPLES), "f4"))
    command = [LAB, "simulate", "--losses", folder / "losses.npy", "--windows", WINDOW, "--json",
               "--systems", "rankpool,lru", "--sampler", "torch", "--capacity", "20%",
               "--ranks", ranks, "--batch-size", 16, "--skip-epochs", 2]  # fmt: skip
    done = subprocess.run(list(map(str, command)), capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return {row["system"]: row["data_sets_read"] for row in json.loads(done.stdout)}


def test_a_rank_dies(start, tmp_path):
    path = tmp_path / "data.h5"
    sums = write(path, "chunked")
    one = start(
        index(path), ranks=2, command=command(path), options=PATIENT, env={"PAUSE_AT": "5"}
    )
    one.wait_for(lambda: any(
        line.startswith("1") for line in one.text("log.0").splitlines()[-1:]
    ), "epoch 1")
    one.kill(one.ranks()[:1])
    (one.folder / "go").touch()
    result = one.finish()
    assert result.code == 0, result.stderr
    for epoch in trained(one.folder, 2):
        assert len(epoch) == SAMPLES and set(epoch) == sums
    assert "unplanned_bytes" not in result.summary


def test_rows_of_numpy_files(start, tmp_path):
    """A folder with nothing but .npy files has their rows."""
    rows = numpy.zeros(ROWS, [("image", "u1", (99,)), ("label", "<i4")])
    rows["label"] = range(ROWS)
    folder, manifest = tmp_path / "data", tmp_path / "data.parquet"
    folder.mkdir()
    numpy.save(folder / "0.npy", rows[:100])
    numpy.save(folder / "1.npy", rows[100:])
    result = start(folder, command=command(folder), options=PATIENT).finish()
    assert result.code != 0 and f"rankpool index {folder} --rows ROWS" in result.stderr
    argv = [RANKPOOL, "index", folder, "-o", manifest, "--python", sys.executable]
    assert subprocess.run(argv).returncode == 0
    script = [sys.executable, HERE / "pieces.py", folder, 1, 2, "log"]
    one = start(manifest, ranks=2, command=list(map(str, script)), options=PATIENT)
    result = one.finish()
    assert result.code == 0, result.stderr
    sums = sorted(crc32(row.tobytes()) for row in rows)
    assert trained(one.folder, 2) == [sums] * 3
    assert result.summary["fallback_reads"] == 0 and "unplanned_bytes" not in result.summary


def test_numpy_files_in_class_folders(start, tmp_path):
    """Each is a sample, also one without rows."""
    arrays = [numpy.ones((4, 3)), numpy.ones((4, 3)).T, numpy.float32(3), numpy.array([None, "x"])]
    folder = tmp_path / "data"
    for i, array in enumerate(arrays):
        os.makedirs(folder / "ab"[i % 2], exist_ok=True)
        numpy.save(folder / "ab"[i % 2] / f"{i}.npy", array)
    script = (
        "import functools, numpy, rankpool\n"
        "load = functools.partial(numpy.load, allow_pickle=True)\n"
        f"data = rankpool.DatasetFolder({str(folder)!r}, load, ('.npy',))\n"
        "print([(one.tolist(), label) for one, label in data])\n"
    )
    result = start(folder, command=[sys.executable, "-c", script], options=PATIENT).finish()
    assert result.code == 0, result.stderr
    assert f"{[(arrays[i].tolist(), i % 2) for i in (0, 2, 1, 3)]}\n" in result.stdout
    assert "not serve" not in result.stderr


def test_what_is_refused(start, tmp_path):
    path = tmp_path / "data.h5"
    write(path, "chunked")
    manifest = index(path)
    for argv, want in (
        (["pack", "--data", manifest, "--dest", tmp_path / "shards"], "samples are made of pieces"),
        (["stage", "--data", manifest, "--dest", tmp_path / "to"], "samples are made of pieces"),
    ):
        done = subprocess.run([str(w) for w in [RANKPOOL, *argv]], capture_output=True, text=True)
        assert done.returncode != 0 and want in done.stderr, done.stderr
    lister = tmp_path / "python3"  # without NumPy, which only the interpreter's own folders have
    lister.write_text(f"#!/bin/sh\nexec {sys.executable} -S \"$@\"\n")
    lister.chmod(0o755)
    argv = [RANKPOOL, "index", path, "--quiet", "-o", tmp_path / "again.parquet", "--python"]
    quiet = [subprocess.run([*argv, p], capture_output=True, text=True)
             for p in (sys.executable, lister)]  # fmt: skip
    assert (quiet[0].returncode, quiet[0].stdout, quiet[0].stderr) == (0, "", "")
    assert quiet[1].returncode == 1 and "has no NumPy" in quiet[1].stderr
    assert "Traceback" not in quiet[1].stderr
    path_to_it = {**os.environ, "PATH": f"{tmp_path}:{os.environ['PATH']}"}
    subprocess.run(argv[:-1], check=True, env=path_to_it)  # by /usr/bin/python3
    items = "import rankpool; data = rankpool.Dataset(); print(len(data)); data[0]"
    result = start(manifest, command=[sys.executable, "-c", items], options=PATIENT).finish()
    assert result.code != 0 and f"{SAMPLES}\n" in result.stdout
    assert "are made of pieces of files: use rankpool.Arrays" in result.stderr
    one = start(manifest, command=command(path), options=[*PATIENT, "--system", "shade"])
    result = one.finish()
    assert result.code != 0 and "made of pieces that they share" in result.stderr, result.stderr


@pytest.mark.parametrize("name", ["waves.h5", pytest.param("waves.zarr", marks=pytest.mark.full)])
def test_the_example(start, tmp_path, name):
    path, script = tmp_path / name, EXAMPLES / "windows.py"
    command = [sys.executable, str(script), str(path)]
    client = {**os.environ, "PYTHONPATH": str(ROOT / "python")}
    subprocess.run([*command, "--make", "160"], check=True, env=client)
    files = subprocess.run(command, check=True, env=client, capture_output=True, text=True)
    result = start(index(path), command=command, options=PATIENT).finish()
    assert result.code == 0, result.stderr
    assert result.stdout.startswith(files.stdout)  # then comes the table of epochs
    errors = [float(line.split()[-1]) for line in files.stdout.splitlines()]
    assert len(errors) == 3 and errors[2] < 0.5 * errors[0]
    assert "unplanned_bytes" not in result.summary


def test_a_learned_data_set(start, tmp_path):
    """The first job reads files, the second what the first one's samples read."""
    path, learned = tmp_path / "data" / "data.h5", tmp_path / "learned"
    path.parent.mkdir()
    x = numpy.random.default_rng(0).normal(size=(300, 64, 64)).astype("float32")
    with h5py.File(path, "w") as file:
        file.create_dataset("x", data=x, chunks=(1, 16, 64))
    sums = {crc32(x[i : i + WINDOW].tobytes()) for i in range(len(x) - WINDOW + 1)}
    script = [sys.executable, str(HERE / "learned.py"), str(path), str(WINDOW), "2", str(learned)]
    client = {**os.environ, "PYTHONPATH": str(ROOT / "python")}
    subprocess.run([*script, tmp_path / "log"], check=True, env=client)
    want = trained(tmp_path, 1)
    assert [set(epoch) for epoch in want] == [sums] * 3
    manifest = tmp_path / "learned.parquet"
    listed = [sys.executable, "-m", "rankpool.learning", learned]
    table = subprocess.run(listed, check=True, env=client, capture_output=True).stdout
    subprocess.run([RANKPOOL, "index", "--pieces", "-", "-o", manifest], check=True, input=table)
    one = start(manifest, ranks=2, command=[*script, "log"], window="8MiB", options=PATIENT)
    result = one.finish()
    assert result.code == 0, result.stderr
    assert trained(one.folder, 2) == want
    events = [json.loads(line) for line in one.text("run.jsonl").splitlines()]
    reads = [event["storage_bytes"] for event in events if event["event"] == "epoch"]
    assert reads[-1] < 1.9 * path.stat().st_size
    assert "unplanned_bytes" not in result.summary, result.summary


@pytest.mark.parametrize(
    "ranks, workers", [(2, 2), pytest.param(1, 0, marks=pytest.mark.full)]
)
def test_a_data_set_that_is_learned_in_the_first_epoch(start, tmp_path, ranks, workers):
    path, learned = tmp_path / "data" / "data.h5", tmp_path / "learned"
    path.parent.mkdir()
    x = numpy.random.default_rng(0).normal(size=(300, 64, 64)).astype("float32")
    with h5py.File(path, "w") as file:
        file.create_dataset("x", data=x, chunks=(1, 16, 64))
    script = [sys.executable, str(HERE / "learned.py"), str(path), str(WINDOW), workers, learned]
    client = {**os.environ, "PYTHONPATH": str(ROOT / "python")}
    subprocess.run([*map(str, script), tmp_path / "log"], check=True, env=client)
    want, manifest = trained(tmp_path, 1), tmp_path / "blocks.parquet"
    shutil.rmtree(learned)
    listed = [sys.executable, "-m", "rankpool.learning", path.parent, "--blocks", "16384"]
    table = subprocess.run(listed, check=True, env=client, capture_output=True).stdout
    subprocess.run([RANKPOOL, "index", "--pieces", "-", "-o", manifest], check=True, input=table)
    for planned in (2, 3):  # epochs: in a second job, which reads through a link, all
        one = start(
            manifest, ranks=ranks, command=[*script, "log"], window="8MiB", options=PATIENT
        )
        result = one.finish()
        assert result.code == 0, result.stderr
        assert trained(one.folder, ranks) == want
        events = [json.loads(line) for line in one.text("run.jsonl").splitlines()]
        epochs = [event for event in events if event["event"] == "epoch"]
        assert len(epochs) == planned, result.stderr
        assert 0 < epochs[-1]["storage_bytes"] < 2.2 * path.stat().st_size
        if planned == 2:
            (tmp_path / "link").symlink_to(path.parent)
            script[2] = str(tmp_path / "link" / path.name)
        assert epochs[-1]["fallback_reads"] == 0
        assert "unplanned_bytes" not in result.summary, result.summary
