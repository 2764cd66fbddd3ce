"""Training sees the stream that the sampler drew, whatever serves it."""

import pytest
import run
from dataset import EPOCHS, SAMPLES, make_tree

WAYS = {
    "20 %": dict(memory="20%"),
    "100 %": dict(memory="100%"),
    "100 %, workers": dict(memory="100%", torch=True, args=["--workers", 2]),
    "a size": dict(memory="300KiB", args=["--ahead", 1]),  # a window of four batches
    "a size, workers": dict(memory="300KiB", torch=True, args=["--workers", 2]),
    "4 trainers a rank": dict(trainers_per_rank=4),
    "2 ranks": dict(ranks=2),
    "2 ranks, workers": dict(ranks=2, torch=True, args=["--workers", 2]),
    "2 ranks, 2 trainers each": dict(ranks=2, trainers_per_rank=2, memory="100%"),
    "2 ranks, lru": dict(ranks=2, options=["--system", "rankpool,policy=lru"]),
    "2 ranks, no memory": dict(ranks=2, memory="0", mpi="mpich"),
    "2 ranks, no room": dict(ranks=2, memory="0", window="4KiB"),
    "4 ranks": dict(ranks=4),
    "4 ranks, sampler's trainers": dict(
        ranks=4, memory="100%", options=["--system", "rankpool,assign=sampler"],
    ),
    "4 ranks, MPICH": dict(ranks=4, mpi="mpich"),
    "2 ranks, MPICH, 2 trainers each": dict(
        ranks=2, mpi="mpich", trainers_per_rank=2, options=["--system", "rankpool,assign=sampler"],
    ),
}  # fmt: skip


def tier(way):
    """The short suite leaves out what its other ways include."""
    full = way in (
        "a size, workers", "2 ranks, workers", "2 ranks", "2 ranks, 2 trainers each", "4 ranks",
    )  # fmt: skip
    return pytest.param(way, marks=pytest.mark.full if full else ())


def same_stream(train, reference, sampler, args=(), **way):
    result = train(args=["--epochs", EPOCHS, "--sampler", sampler, *args], **way).check(
        EPOCHS, SAMPLES
    )
    assert result.digest == reference(sampler).digest
    return result


@pytest.mark.parametrize("way", map(tier, WAYS))
def test_pads(train, reference, way):
    options = [*WAYS[way].get("options", []), *run.PATIENT]
    result = same_stream(train, reference, "pads", **{**WAYS[way], "options": options})
    assert result.summary["fallback_reads"] == 0 or "no room" in way
    if WAYS[way].get("memory") == "100%":  # what was drawn once is there
        assert result.epochs[-1]["storage_reads"] < result.epochs[0]["storage_reads"] / 4


@pytest.mark.parametrize("way", ["100 %", "4 ranks"])
def test_uniform(train, reference, way):
    same_stream(train, reference, "uniform", **WAYS[way])


@pytest.mark.parametrize("way", ["20 %", "2 ranks, 2 trainers each", "4 ranks, MPICH"])
def test_torch(train, reference, way):
    same_stream(train, reference, "torch", **WAYS[way])


def test_torch_is_plain_pytorch(train, tree, reference):
    plain = run.plain(tree, "--epochs", EPOCHS, "--batch-size", 24)
    assert reference("torch").digest == plain
    assert (
        train(ranks=2, args=["--epochs", EPOCHS, "--sampler", "torch"], torch=True).digest == plain
    )


@pytest.mark.parametrize(
    "ranks, flags",
    [
        pytest.param(1, [], marks=pytest.mark.full),
        pytest.param(1, ["--drop-last"], marks=pytest.mark.full),
        (2, ["--sampler-drop-last"]),
        pytest.param(4, [], marks=pytest.mark.full),
        (4, ["--sampler-drop-last", "--drop-last"]),
    ],
)
def test_torch_is_plain_pytorch_where_sizes_do_not_divide(train, tmp_path, ranks, flags):
    data = make_tree(tmp_path / "odd", 101)
    args = ["--epochs", 2, "--seed", 5, *flags]
    result = train(data=data, ranks=ranks, args=["--sampler", "torch", *args])
    assert result.code == 0, result.stderr
    assert result.digest == run.plain(
        data, "--world-size", ranks, "--batch-size", 24 // ranks, *args
    )
