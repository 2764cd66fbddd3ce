"""What happens is what was planned: hits, and where they are."""

import sys

import pytest
import run
from dataset import make_tree

LOSSES = run.ROOT / "scheduler" / "testdata" / "fashion-cnn-8k-losses.npy"  # float32 [10, 8000]
SAMPLES, EPOCHS, WARM_UP = 8000, 5, 2
DRAWS = 8192  # 32 whole global batches of 256


@pytest.fixture(scope="module")
def epochs_of(tmp_path_factory):
    """epochs_of(policy) is what the epochs after the warm-up counted, with a cache of 20 % over 4
    ranks."""
    data = make_tree(tmp_path_factory.mktemp("data") / "tiny", SAMPLES, side=8)

    def epochs_of(policy):
        command = [
            sys.executable, run.ROOT / "e2e" / "trainer.py", "--losses", LOSSES, "--epochs", EPOCHS,
        ]
        options = ["--system", f"rankpool,policy={policy}"]
        one = run.start(
            tmp_path_factory.mktemp(policy), data, ranks=4, window="auto", options=options,
            command=command,
        )
        return one.finish().check(EPOCHS, DRAWS).epochs[WARM_UP:]

    return epochs_of


def hits(epoch):
    return epoch["hits_local"] + epoch["hits_remote"]


def test_hits_are_those_planned(epochs_of):
    planned = epochs_of("clairvoyant")
    for epoch in planned:
        # A draw may also find its sample held for another draw of it that is not decided yet: by a
        # batch in the window, or one whose losses are on their way. How many there are depends on
        # how fast the ranks are (1.00 to 1.04 was seen); each holds 3 % of the data.
        assert 0.99 * epoch["planned_hits"] <= hits(epoch) <= 1.1 * epoch["planned_hits"], epoch
        assert epoch["hits_local"] >= 0.95 * hits(epoch), epoch
        assert hits(epoch) >= 0.5 * DRAWS, epoch
    # samples that are held until they are decided come on top
    lru = sum(epoch["planned_hits"] for epoch in epochs_of("lru"))
    assert lru < 0.7 * sum(map(hits, planned))
