"""A second tier below memory changes where bytes come from, and nothing else."""

import os

import pytest
from dataset import EPOCHS, SAMPLES

WAYS = {
    "1 rank": dict(),
    "2 ranks": dict(ranks=2, args=["--workers", 2]),
    "2 ranks, 2 trainers each": dict(ranks=2, trainers_per_rank=2, mpi="mpich"),
}  # fmt: skip


def reads(result):
    return sum(e["storage_reads"] for e in result.epochs)


@pytest.mark.parametrize("way, sampler", zip(WAYS, ["pads", "torch", "pads"]))
def test_hits_come_from_the_tier(train, reference, losses, tmp_path, way, sampler):
    args = ["--epochs", EPOCHS, "--sampler", sampler, *losses, *WAYS[way].get("args", [])]
    what = {**WAYS[way], "memory": "10%", "args": args}
    without = train(**what).check(EPOCHS, SAMPLES)
    result = train(**what, options=["--tier", f"{tmp_path}:30%"]).check(EPOCHS, SAMPLES)
    assert result.digest == without.digest == reference(sampler).digest
    assert reads(result) < reads(without)
    assert result.summary["tier_hits"] == sum(e["tier_hits"] for e in result.epochs) > 0
    assert all(e["tier_hits"] <= e["hits_local"] + e["hits_remote"] for e in result.epochs)
    assert without.summary["tier_hits"] == 0 and result.summary["fallback_reads"] == 0
    assert not [name for name in os.listdir(tmp_path) if "tier" in name]
    assert "of hits from tier" in result.stderr + result.stdout


def test_nothing_is_read_twice_where_all_fits(train, reference, losses, tmp_path):
    args = ["--epochs", EPOCHS, "--sampler", "torch", *losses]
    result = train(memory="20%", args=args, options=["--tier", f"{tmp_path}:100%"]).check(EPOCHS, SAMPLES)
    assert result.digest == reference("torch").digest
    assert [e["storage_reads"] for e in result.epochs] == [SAMPLES, 0, 0]


@pytest.mark.parametrize(
    "tier, sentence",
    [
        ("{}/missing:30%", "no such file or directory"),
        ("{}/file:30%", "not a directory"),
        ("{}:900TiB", "free, and the tier is to have 900 TiB"),
        ("/proc:30%", "free, and the tier is to have"),
    ],
)
def test_tier_that_cannot_be_used(train, reference, losses, tmp_path, tier, sentence):
    (tmp_path / "file").write_text("")
    args = ["--epochs", EPOCHS, "--sampler", "pads", *losses]
    result = train(memory="10%", args=args, options=["--tier", tier.format(tmp_path)]).check(EPOCHS, SAMPLES)
    assert result.digest == reference("pads").digest
    assert result.stderr.count("there is no tier on this node; training goes on without it") == 1
    assert sentence in result.stderr and result.summary["tier_hits"] == 0


def test_rank_that_dies_leaves_nothing_in_the_tier(start, reference, losses, tmp_path):
    folder = tmp_path / "tier"
    folder.mkdir()
    args = ["--epochs", EPOCHS, "--sampler", "pads", *losses]
    job = start(memory="10%", args=args, options=["--tier", f"{folder}:50%"])
    job.wait_for_batches(20)
    job.kill(job.ranks())
    result = job.finish().check(EPOCHS, SAMPLES)
    assert result.digest == reference("pads").digest
    assert os.listdir(folder) == []
