"""A second tier below memory changes where bytes come from, and nothing else."""

import os

import pytest
from dataset import EPOCHS, GLOBAL_BATCH, SAMPLES, make_tree

WAYS = {
    "1 rank": dict(),
    "2 ranks": dict(ranks=2),
    "2 ranks, 2 trainers each": dict(ranks=2, trainers_per_rank=2, mpi="mpich"),
}  # fmt: skip


def reads(result):
    return sum(e["storage_reads"] for e in result.epochs)


@pytest.mark.parametrize("way, sampler", zip(WAYS, ["pads", "torch", "pads"]))
def test_hits_come_from_the_tier(train, reference, tmp_path, way, sampler):
    args = ["--epochs", EPOCHS, "--sampler", sampler]
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


def test_nothing_is_read_twice_where_all_fits(train, tmp_path):
    samples = 240  # less than may wait to be written (staging/tier): a slow disk refuses none
    tree = make_tree(tmp_path / "tree", samples)
    way = dict(data=tree, args=["--epochs", EPOCHS, "--sampler", "torch", "--ahead", 1])
    result = train(memory="20%", options=["--tier", f"{tmp_path}:100%"], **way).check(EPOCHS, samples)
    assert result.digest == train(memory="0", **way).digest
    read = [e["storage_reads"] for e in result.epochs]  # the second epoch's first may come before the first has ended
    assert sum(read) == samples and read[0] > samples - GLOBAL_BATCH and read[2] == 0, read


@pytest.mark.parametrize(
    "tier, sentence",
    [
        ("{}/missing:30%", "no such file or directory"),
        ("{}/file:30%", "not a directory"),
        ("{}:900TiB", "free, but the tier is to have 900 TiB"),
        ("/proc:30%", "free, but the tier is to have"),
    ],
)
def test_tier_that_cannot_be_used(train, reference, tmp_path, tier, sentence):
    (tmp_path / "file").write_text("")
    args = ["--epochs", EPOCHS, "--sampler", "pads"]
    result = train(memory="10%", args=args, options=["--tier", tier.format(tmp_path)]).check(EPOCHS, SAMPLES)
    assert result.digest == reference("pads").digest
    assert result.stderr.count("there is no tier on this node; training goes on without it") == 1
    assert sentence in result.stderr and result.summary["tier_hits"] == 0


def test_rank_that_dies_leaves_nothing_in_the_tier(start, reference, tmp_path):
    folder = tmp_path / "tier"
    folder.mkdir()
    args = ["--epochs", EPOCHS, "--sampler", "pads"]
    job = start(memory="10%", args=args, options=["--tier", f"{folder}:50%"], pause=[20])
    job.wait_for_batches(20)
    (old,) = job.ranks()
    job.kill([old])
    job.wait_for(lambda: job.ranks() not in ([], [old]) and job.ready(1), "the cache was back")
    job.go(20)
    result = job.finish().check(EPOCHS, SAMPLES)
    assert result.digest == reference("pads").digest
    assert os.listdir(folder) == []
