"""Live is what is simulated: the ids that training is served are those that `rankpool simulate` says."""

import json
import subprocess

import numpy
import pytest
from dataset import make_tree
from run import RANKPOOL, ROOT

SAMPLES, EPOCHS = 320, 4  # of the recorded trace
GLOBAL_BATCH = 16


@pytest.fixture(scope="module")
def tree(tmp_path_factory):
    """A data set of files of one size, as the simulator has them unless it is told."""
    root = tmp_path_factory.mktemp("traced") / "tree"
    image = next(make_tree(tmp_path_factory.mktemp("image") / "tree", 1).glob("*/*.png")).read_bytes()
    (root / "a").mkdir(parents=True)
    for i in range(SAMPLES):
        (root / "a" / f"{i:05}.png").write_bytes(image)
    return root


@pytest.fixture(scope="module")
def trace(tmp_path_factory):
    path = tmp_path_factory.mktemp("trace") / "losses.npy"
    numpy.save(path, numpy.load(ROOT / "benchmarks" / "traces" / "fashion-losses.npy")[:EPOCHS, :SAMPLES])
    return path


def simulated(trace, system, capacity, ranks):
    """Returns the digest of the ids that the simulator says."""
    command = [
        RANKPOOL, "simulate", "--losses", trace, "--systems", system, "--capacity", capacity, "--ranks", ranks,
        "--batch-size", GLOBAL_BATCH // ranks, "--ids-digest", "--json",
    ]  # fmt: skip
    done = subprocess.run([str(word) for word in command], capture_output=True, text=True, check=True)
    (row,) = json.loads(done.stdout)
    return row["ids_digest"]


def training(trace, ranks, *args):
    return [
        "--epochs", EPOCHS, "--batch-size", GLOBAL_BATCH // ranks, "--sampler", "system", "--losses", trace,
        "--ids-digest", *args,
    ]  # fmt: skip


def served(result):
    """Returns the digest of the ids that a run was served."""
    assert result.code == 0, result.stderr
    (found,) = [line.split()[1] for line in result.stdout.splitlines() if line.startswith("ids-digest ")]
    return found


@pytest.mark.parametrize("ranks", [1, 2])
@pytest.mark.parametrize("system", ["lru", "coordl", "icache-h", "rankpool", "quiver", "nopfs", "icache"])
def test_live_is_simulated(train, tree, trace, system, ranks):
    result = train(data=tree, ranks=ranks, options=["--system", system], args=training(trace, ranks))
    assert served(result) == simulated(trace, system, 0.2, ranks)


def test_substitutes_are_announced_and_counted(train, tree, trace):
    result = train(data=tree, options=["--system", "quiver"], args=training(trace, 1))
    assert "--system quiver serves other samples than those drawn" in result.stderr
    for e in result.epochs:
        sources = "hits_local", "hits_remote", "substituted", "storage_reads", "fallback_reads"
        assert sum(e[source] for source in sources) == e["draws"] == SAMPLES, e
    assert sum(e["substituted"] for e in result.epochs) > 0


def test_with_pytorch(train, tree, trace):
    result = train(data=tree, torch=True, options=["--system", "icache-h"], args=training(trace, 1))
    assert served(result) == simulated(trace, "icache-h", 0.2, 1)


CHOOSERS = ["quiver", "nopfs", "icache"]


@pytest.mark.parametrize("system", CHOOSERS)
def test_a_killed_rank_changes_nothing(start, tree, trace, tmp_path, system):
    options = ["--system", system, "--record", tmp_path / "record"]
    one = start(data=tree, ranks=2, options=options, args=training(trace, 2), pause=[27])
    one.wait_for_batches(27)
    old = one.ranks()
    one.kill(old[-1:])
    one.wait_for(lambda: not set(old) & set(one.ranks()), "the ranks were gone")
    one.wait_for(lambda: one.ranks() and one.ready(2), "the cache was back")
    one.go(27)
    assert served(one.finish()) == simulated(trace, system, 0.2, 2)
    for record in "record", "record.1":
        replayed = subprocess.run([RANKPOOL, "replay", tmp_path / record], capture_output=True, text=True)
        assert "identical: " in replayed.stdout, replayed.stdout + replayed.stderr


@pytest.mark.parametrize("system", CHOOSERS)
def test_requeued_on_half_the_nodes(train, tree, trace, tmp_path, system):
    options = ["--system", system, "--state", tmp_path / "state"]
    checkpoint = tmp_path / "checkpoint"
    train(data=tree, ranks=2, options=options, args=training(trace, 2, "--save", checkpoint, "--stop-after", 27))
    result = train(data=tree, options=options, args=training(trace, 1, "--resume", checkpoint))
    assert served(result) == simulated(trace, system, 0.2, 2)
    other = train(data=tree, memory="10%", options=options, args=training(trace, 1, "--resume", checkpoint))
    assert other.code != 0 and "and --memory as a share" in other.stderr


def test_the_digest_goes_on_over_a_resume(train, tree, trace, tmp_path):
    options = ["--system", "icache-h", "--state", tmp_path / "state"]
    checkpoint = ["--save", tmp_path / "checkpoint"]
    train(data=tree, options=options, args=training(trace, 1, *checkpoint, "--stop-after", 27))
    result = train(data=tree, ranks=2, options=options, args=training(trace, 2, "--resume", tmp_path / "checkpoint"))
    assert served(result) == simulated(trace, "icache-h", 0.2, 1)
