"""A run that stopped and the run that resumed it together equal one that did not stop."""

import pytest
from dataset import BATCHES, EPOCHS, SAMPLES


WORKERS = dict(torch=True, args=["--workers", 2])


@pytest.mark.parametrize(
    "sampler, stop, first, second",
    [
        ("torch", 20, dict(), dict(ranks=2)),
        ("pads", 5, dict(), dict()),
        ("pads", 5, dict(ranks=4), dict()),
        pytest.param("pads", 5, dict(torch=True), dict(ranks=2, **WORKERS), marks=pytest.mark.full),
        pytest.param(
            "pads", BATCHES - 1, dict(ranks=2, **WORKERS), dict(ranks=4, mpi="mpich", torch=True),
            marks=pytest.mark.full,
        ),
        ("pads", BATCHES - 1, dict(ranks=2), dict(ranks=4, mpi="mpich")),
        ("pads", BATCHES, dict(), dict(ranks=2)),
        ("pads", BATCHES + 7, dict(ranks=2, mpi="mpich"), dict(ranks=2, trainers_per_rank=2)),
        ("pads", 2 * BATCHES, dict(ranks=2), dict()),
    ],
)
def test_stopped_and_resumed(train, reference, tmp_path, sampler, stop, first, second):
    state, checkpoint = ["--state", tmp_path / "state"], tmp_path / "checkpoint"
    args = ["--epochs", EPOCHS, "--sampler", sampler, "--save", checkpoint]

    def part(way, *more):
        result = train(**{**way, "args": [*args, *way.get("args", []), *more]}, options=state)
        assert result.code == 0, result.stderr
        return result

    one = part(first, "--stop-after", stop)
    two = part(second, "--resume", checkpoint)
    assert len(one.batches) == stop
    assert one.batches + two.batches == reference(sampler).batches
    drawn = sum(event["draws"] for event in one.epochs + two.epochs)
    assert drawn == EPOCHS * SAMPLES


def test_resumed_from_the_checkpoint_of_an_epoch(train, reference, tmp_path):
    """The first run continues after its last checkpoint, like a run that is killed between two."""
    state, checkpoint = ["--state", tmp_path / "state"], tmp_path / "checkpoint"
    args = ["--sampler", "pads", "--save", checkpoint]
    train(ranks=2, args=[*args, "--epochs", 1], options=state)
    result = train(ranks=2, args=[*args, "--epochs", EPOCHS, "--resume", checkpoint], options=state)
    assert result.code == 0, result.stderr
    assert result.batches == reference("pads").batches[BATCHES:]
