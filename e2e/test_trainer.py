"""trainer.py, which most tests train with, sees and prints the same as train.py."""

import pytest
from dataset import BATCHES, EPOCHS, SAMPLES

ARGS = ["--epochs", EPOCHS, "--sampler", "pads"]


@pytest.mark.parametrize(
    "way",
    [pytest.param(dict(), marks=pytest.mark.full), dict(ranks=2, trainers_per_rank=2)],
)  # fmt: skip
def test_same_stream(train, reference, way):
    result = train(torch=True, args=[*ARGS], **way).check(EPOCHS, SAMPLES)
    assert result.digest == reference("pads").digest and result.batches == reference("pads").batches


def test_stopped_and_resumed(train, reference, tmp_path):
    state, args = ["--state", tmp_path / "state"], [*ARGS, "--save", tmp_path / "checkpoint"]
    one = train(ranks=2, args=[*args, "--stop-after", BATCHES + 7], options=state)
    two = train(ranks=4, args=[*args, "--resume", tmp_path / "checkpoint"], options=state)
    assert one.batches + two.batches == reference("pads").batches, one.stderr + two.stderr
    assert "stopped in epoch 1 after batch 6" in one.stdout
