"""Live runs do what is simulated: training is served the ids that the simulator computes."""

import json
import os
import subprocess
import sys
from functools import partial
from pathlib import Path

import numpy
import pytest
from dataset import make_tree
from run import HERE, LAB, RANKPOOL, ROOT

SAMPLES, EPOCHS = 320, 4  # of the recorded trace
GLOBAL_BATCH = 16
OPTIONS = {"impact": "max_warm_up_epochs=2"}
# where training pauses: in the second epoch; right after a batch that was evaluated
STOPS = {"impact": 50}
FULL = partial(pytest.param, marks=pytest.mark.full)


@pytest.fixture(scope="module")
def tree(tmp_path_factory):
    """A data set of files of one size, as the simulator has them by default."""
    root = tmp_path_factory.mktemp("traced") / "tree"
    image = next(
        make_tree(tmp_path_factory.mktemp("image") / "tree", 1).glob("*/*.png")
    ).read_bytes()
    for i, label in enumerate(recorded("labels")):
        (root / f"{label}").mkdir(parents=True, exist_ok=True)
        (root / f"{label}" / f"{i:05}.png").write_bytes(image)
    return root


def recorded(what, epochs=EPOCHS):
    """Returns losses, labels or embeddings of the trace in the order of classes, as a tree has its
    samples."""
    folder = ROOT / "benchmarks" / "traces"
    labels = numpy.load(folder / "fashion-labels.npy")[:SAMPLES]
    order = numpy.argsort(labels, kind="stable")
    if what == "labels":
        return labels[order]
    found = numpy.load(folder / f"fashion-{what}.npy")[:epochs, :SAMPLES]
    return numpy.ascontiguousarray(found[:, order])


@pytest.fixture(scope="module")
def trace(tmp_path_factory):
    folder = tmp_path_factory.mktemp("trace")
    for what in "losses", "labels", "embeddings":
        numpy.save(folder / f"{what}.npy", recorded(what))
    return folder / "losses.npy"


def being(system, *more):
    """Returns the options of a run that runs this system with these options, each NAME=VALUE."""
    own = [OPTIONS[system]] if system in OPTIONS else []
    return ["--system", ",".join([system, *own, *more])]


def simulated(trace, system, capacity, ranks):
    """Returns the digest of the ids that the simulator draws."""
    return simulation(trace, system, capacity, ranks)["ids_digest"]


def simulation(trace, system, capacity, ranks, trainers=1, seed=0, more=()):
    """Returns what the simulator counts in all epochs, and the digest of the ids that it draws."""
    command = [
        LAB, "simulate", "--losses", trace, "--systems", system, "--skip-epochs", 0,
        "--capacity", capacity, "--ranks", ranks, "--trainers-per-rank", trainers,
        "--batch-size", GLOBAL_BATCH // ranks // trainers, "--ids-digest", "--json", "--seed", seed,
        *more,
    ]  # fmt: skip
    if system in OPTIONS:
        command += ["--set", f"{system}.{OPTIONS[system]}"]
    if system.startswith("spidercache"):
        for what in "labels", "embeddings":
            command += [f"--{what}", trace.with_name(f"{what}.npy")]
    done = subprocess.run(
        [str(word) for word in command], capture_output=True, text=True, check=True
    )
    (row,) = json.loads(done.stdout)
    return row


def training(trace, ranks, *args):
    return [
        "--epochs", EPOCHS, "--batch-size", GLOBAL_BATCH // ranks, "--sampler", "system",
        "--losses", trace, "--embeddings", trace.with_name("embeddings.npy"), "--ids-digest", *args,
    ]  # fmt: skip


def served(result):
    """Returns the digest of the ids that a run was served."""
    assert result.code == 0, result.stderr
    (found,) = [
        line.split()[1] for line in result.stdout.splitlines() if line.startswith("ids-digest ")
    ]
    return found


SYSTEMS = [
    "lru", "coordl", "icache-h", "rankpool", "quiver", "nopfs", "icache", "shade", "impact",
    "spidercache", "spidercache-imp",
]  # fmt: skip
BY_RANK = ["lru", "coordl", "icache-h", "rankpool", "shade"]


@pytest.mark.parametrize("ranks", [FULL(1), 2, FULL(3), FULL(4)])
@pytest.mark.parametrize("system", SYSTEMS)
def test_live_is_simulated(train, tree, trace, system, ranks):
    result = train(data=tree, ranks=ranks, options=being(system), args=training(trace, ranks))
    want = simulation(trace, system, 0.2, ranks)
    assert served(result) == want["ids_digest"]
    size = next(tree.glob("*/*.png")).stat().st_size
    for e in result.epochs:
        adds_up(e, size)
    total = {count: sum(e.get(count, 0) for e in result.epochs) for count in COUNTS}
    assert want["draws"] == sum(want[source] for source in SOURCES if source in want)
    assert total["draws"] == want["draws"]
    # free memory keeps more than is accounted for, so that less is read; but what the simulator
    # decides for all ranks together, three ranks decide for a third of the memory each
    alone = ranks > 2 and system in BY_RANK
    assert total["storage_reads"] <= want["storage_reads"] * (1.05 if alone else 1)
    for counts in total, want:
        counts["served another"] = counts["substituted"] + counts["substitute_reads"]
    assert total["served another"] == want["served another"]
    evaluated = [e["evaluated"] for e in result.epochs if e.get("evaluated", 0)]
    assert (sum(evaluated) > 0) == (system == "impact") == (want["evaluated"] > 0)
    batch = GLOBAL_BATCH // ranks * ranks
    for n in evaluated:  # in whole global batches, the same in each epoch
        assert n % batch == 0 <= n - want["evaluated"] / len(evaluated) < batch


@pytest.mark.parametrize("ranks", [FULL(1), 2, FULL(4)])
@pytest.mark.parametrize("options", [{}, {"reads": 0}, {"reads": 0.4, "room": 0.3, "draws": 0.7}])
def test_thrifty_is_simulated(train, tree, trace, ranks, options):
    sampler = ",".join(["thrifty", *(f"{k}={v}" for k, v in options.items())])
    args = training(trace, ranks, "--sampler", sampler)
    result = train(data=tree, ranks=ranks, options=being("rankpool"), args=args)
    more = ["--sampler", "thrifty", *(f"--set=rankpool.{k}={v}" for k, v in options.items())]
    want = simulation(trace, "rankpool", 0.2, ranks, more=more)
    assert served(result) == want["ids_digest"]
    # scores arrive at other times, so that predictions may differ
    assert sum(e["storage_reads"] for e in result.epochs) <= 1.02 * want["storage_reads"]
    if not options:  # which rankpool alone takes
        assert simulation(trace, "min", 0.2, ranks, more=more)["ids_digest"] == want["ids_digest"]


@pytest.mark.parametrize("ranks", [FULL(1), 2])
@pytest.mark.parametrize("system", [s if s in ("quiver", "shade") else FULL(s) for s in SYSTEMS])
def test_each_of_two_trainings_is_simulated(train, tree, trace, system, ranks):
    """They share a memory that each has a book of, and have other seeds."""
    words = map(str, [sys.executable, HERE / "trainer.py", *training(trace, ranks)])
    result = train(
        data=tree, ranks=ranks, options=[*being(system), "--trainings", 2],
        command=["sh", "-c", f"exec {' '.join(words)} --seed $RANKPOOL_TRAINING"],
    )  # fmt: skip
    assert result.code == 0, result.stderr
    for number in 0, 1:
        want = simulation(trace, system, 0.2, ranks, seed=number)
        assert f"[{number}] ids-digest {want['ids_digest']}\n" in result.stdout
        jobs = [e for e in result.events if e["event"] == "job"]
        epochs = [e for e in jobs if e["job"] == f"training-{number}"]
        assert sum(e["draws"] for e in epochs) == want["draws"]
        for e in epochs:
            adds_up(e, next(tree.glob("*/*.png")).stat().st_size)


SOURCES = "hits_local", "hits_remote", "substituted", "storage_reads", "fallback_reads"
COUNTS = *SOURCES, "draws", "substitute_reads", "evaluated"


def adds_up(e, size):
    """Asserts that each draw of an epoch has one source, and each byte a read; samples have one
    size."""
    e = dict.fromkeys(("substituted", "substitute_reads", "evaluated", "evaluated_reads"), 0) | e
    drawn = sum(e[source] for source in SOURCES)
    assert drawn == e["draws"] < SAMPLES + GLOBAL_BATCH, e  # the last global batch may be padded
    reads = e["storage_reads"] + e["fallback_reads"]
    assert e["substitute_reads"] <= reads and e["evaluated_reads"] <= e["evaluated"], e
    assert e["storage_bytes"] == size * (reads + e["evaluated_reads"]), e


def test_bytes_read_are_those_that_storage_counts(tree, trace, tmp_path):
    """Each rank's reads, for all of compare's systems."""
    slow, out = tmp_path / "slow.toml", tmp_path / "out"
    slow.write_text('read_latency = "100us"\n')
    command = [
        LAB, "compare", "--data", tree, "--ranks", 2, "--memory", "20%", "--slowfs", slow,
        "--set", f"impact.{OPTIONS['impact']}", "-o", out,
        "--", sys.executable, HERE / "trainer.py", *training(trace, 2),
    ]  # fmt: skip
    done = subprocess.run([str(word) for word in command], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    compared = sorted(out.glob("*/seed-0"))
    assert len(compared) == 9
    for folder in compared:
        counted = json.loads((folder / "result.json").read_text())["storage_bytes"]
        events = [json.loads(line) for line in (folder / "run.jsonl").read_text().splitlines()]
        epochs = [event for event in events if event["event"] == "epoch"]
        nodes = {event["rank"]: event for event in events if event["event"] == "node"}
        assert len(nodes) == 2
        assert sum(node["machine"]["storage_bytes"] for node in nodes.values()) == counted
        assert 0 < sum(e["storage_bytes"] for e in epochs) <= counted


@pytest.mark.parametrize("system", ["quiver", "spidercache"])
def test_substitutes_are_announced_and_counted(train, tree, trace, system):
    result = train(data=tree, options=["--system", system], args=training(trace, 1))
    assert f"--system {system} serves other samples than those drawn" in result.stderr
    if system == "quiver":  # which serves the substitutes that it fetches
        assert sum(e.get("substitute_reads", 0) for e in result.epochs) > 0
    assert sum(e.get("substituted", 0) for e in result.epochs) > 0


@pytest.mark.parametrize("system", [FULL("icache-h"), FULL("impact"), "spidercache"])
def test_with_pytorch(train, tree, trace, system):
    result = train(data=tree, torch=True, options=being(system), args=training(trace, 1))
    assert served(result) == simulated(trace, system, 0.2, 1)


def test_what_the_last_layer_is_given_is_an_embedding(train, tree):
    args = ["--epochs", 3, "--batch-size", GLOBAL_BATCH, "--sampler", "system", "--ids-digest"]
    options = ["--system", "spidercache,alpha=0.5"]
    result = train(data=tree, torch=True, options=options, args=args)
    assert served(result)
    assert sum(e.get("substituted", 0) for e in result.epochs) > 0


def test_a_script_without_embeddings_is_refused(train, tree, trace):
    args = training(trace, 1)
    at = args.index("--embeddings")
    result = train(data=tree, options=being("spidercache"), args=args[:at] + args[at + 2 :])
    assert result.code != 0
    assert "spidercache scores samples by their embeddings: give their length" in result.stderr


# A memory of 64 of the 320 samples has 16 in S: these are one global batch of each epoch after the
# two warm-up epochs. Those later epochs draw about half of the samples, in whole global batches.
def test_what_is_evaluated_is_trained_on_by_nobody(train, tree, trace):
    args = training(trace, 1)
    result = train(data=tree, options=being("impact"), args=args)
    assert "--system impact serves other samples than those drawn" in result.stderr
    assert served(result) == simulated(trace, "impact", 0.2, 1)
    assert [e["draws"] for e in result.epochs] == [SAMPLES, SAMPLES, 160, 176]
    assert [e.get("evaluated", 0) for e in result.epochs] == [0, 0, 16, 16]
    refused = train(data=tree, options=being("impact"), args=[*args, "--trains-on-all"])
    assert refused.code != 0
    assert "impact has batches that are evaluated and not trained on: use " in refused.stderr


CHOOSERS = [*map(FULL, ["quiver", "nopfs", "icache", "shade", "impact"]), "spidercache"]


@pytest.mark.parametrize("system", CHOOSERS)
def test_a_killed_rank_changes_nothing(start, tree, trace, system):
    stop = STOPS.get(system, 27)
    one = start(data=tree, ranks=2, options=being(system), args=training(trace, 2), pause=[stop])
    one.wait_for_batches(stop)
    old = one.ranks()
    one.kill(old[-1:])
    one.wait_for(lambda: not set(old) & set(one.ranks()), "the ranks were gone")
    one.wait_for(lambda: one.ranks() and one.ready(2), "the cache was back")
    one.go(stop)
    assert served(one.finish()) == simulated(trace, system, 0.2, 2)


MEASURED_EPOCHS = 9
MEASURED = [0.3, 0.5, 0.7, 0.6, 0.4, 0.2, 0.5, 0.6, 0.6]


@pytest.mark.parametrize(
    "system, options, fault",
    [
        ("shade", [], "killed"), FULL("shade", [], "requeued"), FULL("shade", [], ""),
        ("spidercache", ["r_end=0.1", "alpha=0.7"], "requeued"),
        FULL("spidercache", ["r_end=0.1", "alpha=0.7"], "killed"),
        FULL("spidercache", ["r_end=0.1", "alpha=0.7"], ""),
    ],
)  # fmt: skip
def test_measured_accuracies_count(start, train, tree, tmp_path, system, options, fault):
    """Epochs are chosen by the accuracies that one trainer reports, also after a rank was killed,
    and in a training that continues on half as many nodes."""
    trace, measured = tmp_path / "losses.npy", tmp_path / "measured.npy"
    for what in "losses", "labels", "embeddings":
        numpy.save(tmp_path / f"{what}.npy", recorded(what, MEASURED_EPOCHS))
    numpy.save(measured, numpy.array(MEASURED, "float32"))

    def args(ranks, *more):
        return [*training(trace, ranks), "--epochs", MEASURED_EPOCHS, *more]

    told, stop = ["--accuracies", measured], 6 * SAMPLES // GLOBAL_BATCH + 3
    run = {"data": tree, "memory": "10%", "options": being(system, *options)}
    if fault == "killed":
        one = start(**run, ranks=2, args=args(2, *told), pause=[stop])
        one.wait_for_batches(stop)
        old = one.ranks()
        one.kill(old[-1:])
        one.wait_for(lambda: not set(old) & set(one.ranks()), "the ranks were gone")
        one.wait_for(lambda: one.ranks() and one.ready(2), "the cache was back")
        one.go(stop)
        result = one.finish()
    else:
        if fault == "requeued":
            run["options"] += ["--state", tmp_path / "state"]
            train(
                **run, ranks=2,
                args=args(2, *told, "--save", tmp_path / "saved", "--stop-after", stop),
            )  # fmt: skip
            told += ["--resume", tmp_path / "saved"]
        ranks = 1 if fault else 2
        result = train(**run, ranks=ranks, args=args(ranks, *told))
    more = [word for option in options for word in ("--set", f"{system}.{option}")]
    want = simulation(trace, system, 0.1, 2, more=[*more, "--accuracies", measured])
    assert served(result) == want["ids_digest"]
    assert simulation(trace, system, 0.1, 2, more=more)["ids_digest"] != want["ids_digest"]


@pytest.mark.parametrize("system", CHOOSERS)
def test_requeued_on_half_the_nodes(train, tree, trace, tmp_path, system):
    options = [*being(system), "--state", tmp_path / "state"]
    checkpoint = tmp_path / "checkpoint"
    stopped = ["--save", checkpoint, "--stop-after", STOPS.get(system, 27)]
    train(data=tree, ranks=2, options=options, args=training(trace, 2, *stopped))
    result = train(data=tree, options=options, args=training(trace, 1, "--resume", checkpoint))
    assert served(result) == simulated(trace, system, 0.2, 2)
    other = train(
        data=tree, memory="10%", options=options, args=training(trace, 1, "--resume", checkpoint)
    )
    assert other.code != 0 and "and --memory as a share" in other.stderr


@pytest.mark.parametrize("system", [*map(FULL, ["lru", "nopfs", "shade", "spidercache"]), "quiver"])
def test_requeued_with_padding(train, tmp_path, system):
    """103 samples cannot be divided evenly among 4 trainers, or the 2 that continue."""
    tree, trace = small(tmp_path, 103)
    options = [*being(system), "--state", tmp_path / "state"]
    checkpoint = tmp_path / "checkpoint"
    for ranks, trainers, stop in (2, 2, 9), (2, 1, 6), (1, 1, None):
        args = training(trace, ranks * trainers, "--save", checkpoint)
        if checkpoint.exists():
            args += ["--resume", checkpoint]
        if stop:
            args += ["--stop-after", stop]
        result = train(
            data=tree, memory="40%", ranks=ranks, trainers_per_rank=trainers, options=options,
            args=args,
        )
    want = simulation(trace, system, 0.4, 2, 2)
    assert want["draws"] > EPOCHS * 103, "nothing is padded"
    assert served(result) == want["ids_digest"]


@pytest.mark.parametrize("system", ["icache", "impact"])
@pytest.mark.parametrize("ranks", [FULL(1), 2])
def test_packages_change_nothing(train, tree, trace, tmp_path, system, ranks):
    folder = tmp_path / "packages"
    folder.mkdir()
    options = being(system, f"packages={folder}:16MiB")
    result = train(data=tree, ranks=ranks, options=options, args=training(trace, ranks))
    want = simulation(trace, system, 0.2, ranks)
    assert served(result) == want["ids_digest"]
    count = result.summary
    assert 0 < count["package_reads"] <= count["package_writes"] <= want["packages"]
    size = next(tree.glob("*/*.png")).stat().st_size
    assert count["package_read_bytes"] % size == 0 < count["package_read_bytes"]
    assert count["package_read_bytes"] <= count["package_write_bytes"]
    assert not list(folder.iterdir()), "a rank left a file"


@pytest.mark.full
@pytest.mark.parametrize("fault", ["killed", "changed", "cut"])
@pytest.mark.parametrize("system", ["icache", "impact"])
def test_packages_under_faults(start, train, tree, trace, tmp_path, system, fault):
    """A rank is killed, or its packages are changed or cut, while training is paused."""
    args = training(trace, 2, "--digest")
    want = train(data=tree, ranks=2, options=being(system), args=args).digest
    folder = tmp_path / "packages"
    folder.mkdir()
    options = being(system, f"packages={folder}:16MiB")
    stop = STOPS.get(system, 27)
    one = start(data=tree, ranks=2, options=options, args=args, pause=[stop])
    one.wait_for_batches(stop)
    old = one.ranks()
    files = [file for rank in old for file in package_files(rank, folder)]
    assert len(files) == 2, "each rank has a file"
    if fault == "killed":
        one.kill(old[-1:])
        one.wait_for(lambda: not set(old) & set(one.ranks()), "the ranks were gone")
        one.wait_for(lambda: one.ranks() and one.ready(2), "the cache was back")
    for file in files:
        if fault == "changed":
            file.write_bytes(b"x" * file.stat().st_size)
        elif fault == "cut":
            os.truncate(file, 0)
    one.go(stop)
    assert one.finish().digest == want
    assert not list(folder.iterdir()), "a rank left a file"


def package_files(pid, folder):
    """Returns the open files of a process that were made in a folder, which lists none of them."""
    found = []
    for file in Path(f"/proc/{pid}/fd").iterdir():
        try:
            if os.readlink(file).startswith(f"{folder}/"):
                found.append(file)
        except OSError:
            pass  # it was closed
    return found


def test_packages_are_refused_where_there_are_none(train, tree, trace, tmp_path):
    for options, why in [
        (being("shade", f"packages={tmp_path}:1MiB"), 'shade has no option "packages"'),
        (being("icache", f"packages={tmp_path}"), "is not DIR:SIZE"),
        (
            [*being("icache", f"packages={tmp_path}:1MiB"), "--tier", f"{tmp_path}:1MiB"],
            "leave --tier out",
        ),
    ]:
        result = train(data=tree, options=options, args=training(trace, 1))
        assert result.code == 2 and why in result.stderr
    missing = being("icache", f"packages={tmp_path}/missing:1MiB")
    result = train(data=tree, options=missing, args=training(trace, 1))
    assert served(result) == simulated(trace, "icache", 0.2, 1)
    assert "this rank has no packages" in result.stderr


def small(folder, samples):
    """Creates a data set of samples of one size, and a trace; returns their paths."""
    image = next(make_tree(folder / "image", 1).glob("*/*.png")).read_bytes()
    for i in range(samples):
        (folder / "tree" / f"{i % 2}").mkdir(parents=True, exist_ok=True)
        (folder / "tree" / f"{i % 2}" / f"{i:05}.png").write_bytes(image)
    rng = numpy.random.default_rng(samples)
    numpy.save(folder / "losses.npy", rng.random((EPOCHS, samples), "float32"))
    numpy.save(folder / "labels.npy", numpy.sort(numpy.arange(samples) % 2))
    numpy.save(folder / "embeddings.npy", rng.random((EPOCHS, samples, 3), "float32"))
    return folder / "tree", folder / "losses.npy"


@pytest.mark.parametrize("system", [*map(FULL, ["shade", "icache"]), "spidercache"])
@pytest.mark.parametrize("samples", [9, FULL(43)])
def test_few_samples(train, tmp_path, system, samples):
    """Fewer than a global batch, and a short last batch with nothing after the cut."""
    tree, trace = small(tmp_path, samples)
    result = train(data=tree, memory="40%", options=being(system), args=training(trace, 1))
    assert served(result) == simulated(trace, system, 0.4, 1)


def test_the_digest_goes_on_over_a_resume(train, tree, trace, tmp_path):
    options = ["--system", "icache-h", "--state", tmp_path / "state"]
    checkpoint = ["--save", tmp_path / "checkpoint"]
    train(data=tree, options=options, args=training(trace, 1, *checkpoint, "--stop-after", 27))
    result = train(
        data=tree,
        ranks=2,
        options=options,
        args=training(trace, 2, "--resume", tmp_path / "checkpoint"),
    )
    assert served(result) == simulated(trace, "icache-h", 0.2, 1)
