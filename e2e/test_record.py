"""A recorded run replays to identical commands, also one whose ranks were killed."""

import json
import subprocess

import pytest
import run
from dataset import BATCHES, EPOCHS, SAMPLES
from test_faults import kill_ranks


def replay(one, code=0, name="run.rec"):
    """Replays a run's recording and returns what the replay prints, and its warnings."""
    command = [run.RANKPOOL, "replay", one.folder / name, "--json"]
    done = subprocess.run(
        [str(word) for word in command], capture_output=True, text=True, check=False
    )
    assert done.returncode == code, done.stdout + done.stderr
    return json.loads(done.stdout), done.stderr


@pytest.mark.parametrize(
    "sampler, mpi",
    [
        ("torch", "openmpi"), ("pads", "mpich"),
        pytest.param("torch", "mpich", marks=pytest.mark.full),
        pytest.param("pads", "openmpi", marks=pytest.mark.full),
    ],
)  # fmt: skip
def test_recorded_run(start, reference, mpi, sampler):
    args = ["--epochs", EPOCHS, "--sampler", sampler]
    one = start(ranks=2, mpi=mpi, args=args, options=["--record", "run.rec"])
    assert one.finish().check(EPOCHS, SAMPLES).batches == reference(sampler).batches
    said, warnings = replay(one)
    assert said["identical"] and said["ranks"] == 2 and not warnings
    assert [row["rank"] for row in said["rows"]] == [0, 1]
    for row in said["rows"]:
        assert (
            row["epochs"] >= EPOCHS
            and row["events"] > EPOCHS * BATCHES
            and row["commands"] > EPOCHS * BATCHES
        )


def written(path):
    """Whether a recording has more than its header: its first chunk, compressed by gzip, is
    there."""
    return path.exists() and b"\x1f\x8b" in path.read_bytes()


def test_recorded_ranks_killed(start):
    """Both lives of both ranks are replayed, the first as far as it was recorded."""
    args = ["--epochs", EPOCHS, "--sampler", "pads"]
    one = start(ranks=2, args=args, options=["--record", "run.rec"], pause=[BATCHES + 5])
    one.wait_for_batches(BATCHES + 5)
    # ranks write once a second, and what a killed one has not written is lost
    for name in ("run.rec", "run.rec.1"):
        one.wait_for(
            lambda path=one.folder / name: written(path), "each rank had written to its recording"
        )
    kill_ranks(one, BATCHES + 5)
    one.finish().check(EPOCHS, SAMPLES)
    said, warnings = replay(one)
    assert said["identical"]
    assert {(row["rank"], row["start"]) for row in said["rows"]} >= {(0, 2), (1, 2)}
    assert any(f"{name}: start 1 is incomplete" in warnings for name in ("run.rec", "run.rec.1"))


def test_recording_of_a_rank_is_gone(start):
    one = start(ranks=2, args=["--epochs", 1], options=["--record", "run.rec"])
    one.finish().check(1, SAMPLES)
    (one.folder / "run.rec.1").unlink()
    said, warnings = replay(one)
    assert (
        said["identical"]
        and len(said["rows"]) == 1
        and "run.rec.1 is ignored: not found" in warnings
    )


def test_damaged_recording(start):
    one = start(args=["--epochs", 1], options=["--record", "run.rec"])
    one.finish().check(1, SAMPLES)
    damaged = bytearray((one.folder / "run.rec").read_bytes())
    damaged[len(damaged) // 2] ^= 1
    (one.folder / "run.rec").write_bytes(damaged)
    command = [run.RANKPOOL, "replay", one.folder / "run.rec"]
    done = subprocess.run(
        [str(word) for word in command], capture_output=True, text=True, check=False
    )
    assert (
        done.returncode == 1 and "is damaged" in done.stderr and len(done.stderr.splitlines()) == 1
    )
