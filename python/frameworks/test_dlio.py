"""DLIO, the benchmark of MLPerf Storage, with rankpool_dlio.Loader; see make test-dlio."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from conftest import RANKPOOL, ROOT

EPOCHS, FILES, BATCH = 2, 24, 3
DLIO = Path(sys.executable).with_name("dlio_benchmark")
COUNTS = {
    "framework": "pytorch",
    "reader.data_loader": "pytorch",
    "reader.batch_size": BATCH,
    "reader.batch_size_eval": BATCH,
    "dataset.num_files_train": FILES,
    "dataset.num_files_eval": FILES // 2,
    "dataset.num_samples_per_file": 1,
    "dataset.record_length": 20_000,
    "train.epochs": EPOCHS,
    "train.computation_time": 0.01,
    "workflow.checkpoint": False,
    "output.folder": "output",
}
PLUGGED_IN = {
    "reader.data_loader_classname": "rankpool_dlio.Loader",
    "reader.data_loader_sampler": "index",
}


def dlio(folder, before, settings):
    """Runs DLIO in a folder with settings of its workload; `before` are the words of a launcher."""
    given = [f"++workload.{key}={value}" for key, value in {**COUNTS, **settings}.items()]
    words = [*before, DLIO, "workload=resnet50_h100", *given]
    environment = {
        **os.environ,
        "PYTHONPATH": f"{ROOT / 'python'}:{ROOT / 'benchmarks'}",
        "OMPI_ALLOW_RUN_AS_ROOT": "1",
        "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1",
    }
    return subprocess.run(
        [str(word) for word in words],
        cwd=folder,
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )


@pytest.fixture(scope="session")
def data(tmp_path_factory):
    """data(format) has DLIO generate a data set; returns the settings that name it."""
    made = {}

    def data(format):
        if format not in made:
            folder = tmp_path_factory.mktemp(format)
            made[format] = {"dataset.data_folder": folder / "data", "dataset.format": format}
            only = {"workflow.generate_data": True, "workflow.train": False}
            done = dlio(folder, [], {**made[format], **only})
            assert done.returncode == 0, done.stdout
            assert len(list((folder / "data" / "train").iterdir())) == FILES
        return made[format]

    return data


def serving(settings, *folders):
    """Returns the words of a `rankpool run` that serves some of the data's folders."""
    root = settings["dataset.data_folder"]
    given = [word for folder in folders for word in ("--data", root / folder)]
    return [RANKPOOL, "run", *given, "--log", "run.jsonl", "--tune", "progress=0", "--"]


def check(done, tmp_path, draws):
    """Checks that DLIO trained to its end, and that all it trained on came from the cache."""
    assert done.returncode == 0, done.stdout
    summary = json.loads((tmp_path / "output" / "summary.json").read_text())
    assert len(summary["metric"]["train_au_percentage"]) == EPOCHS
    events = [json.loads(line) for line in (tmp_path / "run.jsonl").read_text().splitlines()]
    epochs = [event for event in events if event["event"] in ("epoch", "pass")]
    assert sum(event["draws"] for event in epochs) == draws, events


@pytest.mark.parametrize("format, threads", [("jpeg", 2), ("npz", 0), ("png", 0)])
def test_training(data, tmp_path, format, threads):
    settings = {**data(format), **PLUGGED_IN, "reader.read_threads": threads}
    check(dlio(tmp_path, serving(settings, "train"), settings), tmp_path, EPOCHS * FILES)


def test_spawned_workers_and_an_evaluation(data, tmp_path):
    settings = {
        **data("npz"),
        **PLUGGED_IN,
        "reader.read_threads": 1,
        "reader.multiprocessing_context": "spawn",
        "workflow.evaluation": True,
    }
    done = dlio(tmp_path, serving(settings, "train", "valid"), settings)
    check(done, tmp_path, EPOCHS * (FILES + FILES // 2))


def test_two_ranks_of_mpi(data, tmp_path):
    """DLIO's ranks are MPI's; 24 files are four steps of two ranks with three files each."""
    settings = {**data("jpeg"), **PLUGGED_IN, "reader.read_threads": 1}
    before = [*serving(settings, "train"), "mpirun", "--oversubscribe", "-n", 2]
    check(dlio(tmp_path, before, settings), tmp_path, EPOCHS * FILES)


@pytest.mark.parametrize(
    "wrong, says",
    [
        ({"dataset.num_files_train": FILES - 1}, f"set num_files_train={FILES}"),
        ({"dataset.num_samples_per_file": 2}, "num_samples_per_file must be 1, not 2"),
    ],
)
def test_another_workload_is_refused(data, tmp_path, wrong, says):
    settings = {**data("npz"), **PLUGGED_IN, "reader.read_threads": 0, **wrong}
    done = dlio(tmp_path, serving(settings, "train"), settings)
    assert done.returncode != 0
    assert says in done.stdout


def test_a_folder_that_is_not_served(data, tmp_path):
    settings = {**data("npz"), **PLUGGED_IN, "reader.read_threads": 0}
    done = dlio(tmp_path, serving(settings, "valid"), settings)
    assert done.returncode != 0
    assert "data/train: give it to `rankpool run --data`" in done.stdout
