"""What the cache is worth to a training: this is measured, and memory is divided by it.

A training that is to gain nothing pauses after it was measured without the cache. The pause is so
long that its batches take no less time with the cache, however fast the machine is.
"""

import sys
import time

import pytest
import run
from dataset import EPOCHS, SAMPLES, make_tree
from run import ROOT

TRAINER = ROOT / "e2e" / "trainer.py"
BATCHES = 180  # of an epoch; fewer than 160 are not measured
BATCH = SAMPLES // BATCHES
# of 180 batches a stretch of 8 is measured, from batch 22 on, or 55 with the second data set
STRETCH, MEASURED = 8, 70


def lines(one, name):
    return len(one.text(f"digest-{name}").splitlines())


def wait_for_batch(one, name, batch):
    one.wait_for(lambda: lines(one, name) >= batch, f"{name} trained {batch} batches")


def trainer(name, batch_size, epochs, pauses):
    """The shell command of a trainer on the data set of that name."""
    return (
        f"{sys.executable} {run.HERE / 'paused.py'} {','.join(map(str, pauses))} {TRAINER} "
        f"--data-name {name} --epochs {epochs} --batch-size {batch_size} --sampler torch "
        f"--ahead 2 --digest-log digest-{name}"
    )


def measure_as_idle(one, name, start):
    """Lets a training go on from its pause after batch `start` to the one after it was measured,
    and holds it there until it gains nothing: for the time that took, times the number of batches
    per batch of the stretch, and half as long again."""
    began = time.monotonic()
    one.go(start)
    wait_for_batch(one, name, BATCHES + MEASURED)
    until = time.monotonic() + (time.monotonic() - began) * BATCHES / (STRETCH - 1) * 1.5
    one.wait_for(lambda: time.monotonic() >= until, "the pause was over")
    one.go(BATCHES + MEASURED)


def reads(result, name):
    """The samples read from storage in each epoch."""
    epochs = [e for e in result.events if e["event"] in ("epoch", "pass")]
    return [e["storage_reads"] for e in epochs if e["data"] == name]


def test_data_sets_trade_memory(start, tree, tmp_path, tmp_path_factory):
    """Storage is slow, even for a busy machine. One training waits for storage, the other pauses by
    itself: from then on the data set of the first is in memory as a whole, and the other gets what
    is left. Both train on the batches that they would have alone, without a cache."""
    other = make_tree(tmp_path / "other", BATCHES)
    epochs = EPOCHS + 1
    waits = trainer("waits", BATCH, epochs, [BATCHES, 2 * BATCHES])
    idle = trainer("idle", 1, epochs, [BATCHES, BATCHES + MEASURED, 2 * BATCHES])
    one = start(
        data=[f"waits={tree}", f"idle={other}"], memory="80%",
        options=["--max-opens", 50, "--tune", "benefit=always", "--verbose"],
        command=["sh", "-c", f"{waits} & {idle}; code=$?; wait $! && exit $code"],
    )  # fmt: skip
    for name in "waits", "idle":
        wait_for_batch(one, name, BATCHES)
    measure_as_idle(one, "idle", BATCHES)
    for name in "waits", "idle":
        wait_for_batch(one, name, 2 * BATCHES)
    told = "memory is divided by what the cache is worth"
    one.wait_for(lambda: one.text("stderr").count(told) >= 2, "memory was divided")
    one.go(2 * BATCHES)
    result = one.finish()
    assert result.code == 0, result.stderr
    (warned,) = [line for line in result.stderr.splitlines() if "gains nothing" in line]
    assert "data: idle" in warned
    waits, idle = reads(result, "waits"), reads(result, "idle")
    assert waits[0] == SAMPLES and waits[1] > SAMPLES / 10 and waits[3] == 0, waits
    assert idle[0] == BATCHES and idle[3] > idle[1] and idle[3] < BATCHES, idle
    for name, data, batch, samples in ("waits", tree, BATCH, SAMPLES), ("idle", other, 1, BATCHES):
        args = ["--epochs", epochs, "--sampler", "torch", "--batch-size", batch]
        alone = run.start(tmp_path_factory.mktemp(name), data, memory="0", args=args)
        batches = alone.finish().check(epochs, samples).batches
        assert one.text(f"digest-{name}").splitlines() == batches


@pytest.mark.parametrize("ranks", [1, 2])
def test_benefit(tmp_path_factory, tree, ranks):
    """Measuring changes no stream. Each rank measures once: in the second epoch, or in a later one
    if that epoch's batches were not completed in order there. The run log has the results in the
    epochs in which ranks measured."""
    epochs = 7  # the 8th would be measured again
    batch = 2  # 180 batches an epoch: fewer than 160 are not measured
    streams = {}
    for benefit in "never", "always":
        one = run.start(
            tmp_path_factory.mktemp(benefit), tree, ranks, memory="50%",
            args=["--epochs", epochs, "--batch-size", batch // ranks],
            options=["--tune", f"benefit={benefit}"],
        )  # fmt: skip
        result = one.finish().check(epochs, SAMPLES)
        streams[benefit] = result.batches
        measured = [
            e["epoch"]
            for e in result.events
            if e["event"] == "epoch" and e.get("batch_seconds", 0) > 0
        ]
        most = ranks if benefit == "always" else 0
        assert min(most, 1) <= len(measured) <= most and 0 not in measured, result.events
    assert streams["never"] == streams["always"]
