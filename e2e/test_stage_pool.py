"""Samples that are staged into the memory of a running cache are hits of the first epoch, and
nothing else changes."""

import json
import os
import signal
import subprocess

import pytest
import run
from dataset import EPOCHS, GLOBAL_BATCH, SAMPLES

SHARE = SAMPLES // 5


def reads(result):
    return [e["storage_reads"] for e in result.epochs]


@pytest.fixture
def important(tmp_path):
    """The arguments that stage a fifth of the samples."""
    path = tmp_path / "scores.txt"
    path.write_text("".join(f"{(7 * i) % SAMPLES}\n" for i in range(SAMPLES)))
    return ["--top", "20%", "--importance", path]


@pytest.mark.parametrize("sampler, mpi", [("torch", "openmpi"), ("pads", "mpich")])
def test_staged_before_training(start, train, reference, important, tree, sampler, mpi):
    """Every trainer's command stages first; the cache is that of the run."""
    args = ["--epochs", EPOCHS, "--sampler", sampler]
    cold = train(ranks=2, mpi=mpi, memory="30%", args=args).check(EPOCHS, SAMPLES)
    stage = [
        run.RANKPOOL, "stage", "--mode", "pool", "--data", tree, "--ranks", 2, "--json", *important,
    ]
    script = 'while [ "$1" != -- ]; do words="$words $1"; shift; done; shift; $words > staged-$RANK || exit; exec "$@"'
    command = ["sh", "-c", script, "sh", *stage, "--", *run.training(args, trainers=2)]
    one = start(ranks=2, mpi=mpi, memory="30%", command=command, options=["--record", "run.rec"])
    result = one.finish().check(EPOCHS, SAMPLES)
    assert result.digest == cold.digest == reference(sampler).digest
    staged = [json.loads(one.text(f"staged-{trainer}")) for trainer in range(2)]
    for said in staged:  # each stages into both ranks: what the other began is there
        assert said["failed"] == 0 and said["no_room"] == 0 and len(said["ranks"]) == 2
        assert said["copied"] + said["skipped"] == said["total_items"] == SHARE
    assert sum(said["copied"] for said in staged) == SHARE
    hits = [e["hits_local"] + e["hits_remote"] for e in result.epochs]
    assert hits[0] > 0 and reads(result)[0] < reads(cold)[0]
    if sampler == "torch":
        # What the next epoch draws first is staged for it while this one ends, and may be a hit
        # here.
        assert SHARE <= hits[0] <= SHARE + GLOBAL_BATCH and result.epochs[0]["fallback_reads"] == 0
    replay = subprocess.run(
        [str(run.RANKPOOL), "replay", str(one.folder / "run.rec"), "--json"], capture_output=True,
        text=True,
    )
    assert replay.returncode == 0 and json.loads(replay.stdout)["identical"], replay.stderr


def test_ranks_started_by_hand(tree, tmp_path):
    """Two ranks under mpirun, and stage beside them; memory that is full is no failure."""
    env = {**os.environ, **run.MPIRUN_ENV}
    session = tmp_path / "s"
    serve = [
        run.RANKPOOL, "serve", "--data", tree, "--session", session, "--memory", "20%", "--window",
        "1MiB",
    ]
    launch = ["mpirun.openmpi", "--oversubscribe", "-n", "2", *serve]
    with subprocess.Popen([str(word) for word in launch], env=env, stderr=subprocess.PIPE) as ranks:
        stage = [
            run.RANKPOOL, "stage", "--mode", "pool", "--data", "tree", "--session", session,
            "--ranks", 2,
        ]
        said = subprocess.run(
            [str(word) for word in [*stage, "--json"]], capture_output=True, text=True, check=False
        )
        ranks.send_signal(signal.SIGTERM)
        ranks.communicate(timeout=run.PATIENCE_SECONDS)
    assert said.returncode == 0, said.stderr
    report = json.loads(said.stdout)
    assert (
        report["copied"] + report["no_room"] == report["total_items"] == SAMPLES
        and report["no_room"] > 0
    )
    assert 0.15 * report["total_bytes"] < report["bytes"] <= 0.25 * report["total_bytes"]
    assert [rank["rank"] for rank in report["ranks"]] == [0, 1] and all(
        rank["copied"] for rank in report["ranks"]
    )
