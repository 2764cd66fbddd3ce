"""A newcomer harms no training: a second process with the same RANK, or another spec."""

import subprocess
import sys

import pytest
from dataset import BATCHES, EPOCHS, GLOBAL_BATCH, SAMPLES
from run import PATIENCE_SECONDS, ROOT

TRAINER = ROOT / "e2e" / "trainer.py"


def trainer_of(one, rank):
    """Returns the process of a trainer, and its environment."""
    (found,) = (
        (pid, dict(v.split("=", 1) for v in env if "=" in v))
        for pid, (env, argv) in one.processes().items()
        if str(TRAINER) in argv and f"RANK={rank}" in env
    )
    return found


@pytest.mark.parametrize("rank", [0, 1])
@pytest.mark.parametrize(
    "args, sentence",
    [
        ("0, 'pads'", "trainer {rank} is process {pid} on this node already"),
        ("5, 'pads'", "is being trained on with seed 0, but trainer {rank} requests 5"),
        (
            "0, 'sequential'",
            'is being trained on with sampler "pads", but trainer {rank} requests "sequential"',
        ),
    ],
)
def test_a_second_process_of_the_same_rank(start, reference, rank, args, sentence):
    """It comes in mid-epoch and is told why it cannot train; training continues as if it had not
    come."""
    one = start(ranks=2, args=["--epochs", EPOCHS], pause=[BATCHES + 5])
    one.wait_for_batches(BATCHES + 5)
    pid, environment = trainer_of(one, rank)
    script = f"import rankpool; list(rankpool.BatchSampler(rankpool.Dataset(), {GLOBAL_BATCH // 2}, {args}))"
    command = [sys.executable, "-c", script]
    newcomer = subprocess.run(
        command, env=environment, capture_output=True, text=True, timeout=PATIENCE_SECONDS
    )
    assert newcomer.returncode == 1 and sentence.format(rank=rank, pid=pid) in newcomer.stderr, (
        newcomer.stderr
    )
    one.go(BATCHES + 5)
    assert one.finish().check(EPOCHS, SAMPLES).batches == reference("pads").batches


def test_a_trainer_that_was_started_again(train, reference):
    """As torchrun does: another process with the same RANK after the first has ended, with the same
    cache."""
    again = f"{sys.executable} {TRAINER} --batch-size {GLOBAL_BATCH} --digest-log digest --epochs {EPOCHS} --checkpoint state"
    command = ["sh", "-c", f"{again} --stop-after {BATCHES + 5} && {again}"]
    result = train(command=command)
    assert result.code == 0, result.stderr
    assert result.batches == reference("pads").batches
