"""Trains under each of several systems, for the accuracies in results/papers.md.

A task is a data set, made of Fashion-MNIST as Debian's package dataset-fashion-mnist has it, and a
network:

    garments  20,000 images as they are, grey, ten classes; a small convolutional network
    clean     the same, for 12 epochs, in which the learning rate falls to 0
    tail      the same as clean, but of each class .71 times as many as of the one before
    wrong     the same as clean, 10 % of the training labels wrong
    pairs     two garments side by side, each in a colour, on a coloured ground, 100 classes, 10 %
              of the training labels wrong; a small residual network, and augmentation
    sorted    the same, but in the order of classes that a folder has, not packed in random order
    fields    windows of HDF5, see train_fields.py; a regression, for which accuracy is its skill

clean-mlp, tail-mlp and wrong-mlp are the same with a network of fully connected layers.

Each training is one process on one core, and repeats to the last bit. Its result is appended to
benchmarks/results/accuracy.jsonl, with the date and the commit; one that is there is not trained
again. --print shows a summary of that file instead of training; --frontier writes one, accuracy
against reads from storage, to benchmarks/results/frontier.md, with plots beside it.
"""

import argparse
import datetime
import gzip
import json
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
SYSTEMS = (
    "lru", "uniform", "coordl", "nopfs", "quiver", "shade", "icache-h", "icache", "impact",
    "spidercache-imp", "spidercache", "rankpool",
)  # fmt: skip
SAMPLERS = {"uniform": "torch", "chunks": "chunks", "thrifty": "thrifty"}  # of rankpool's own
TASKS = {  # images to train on and to test on, and options of train.py
    "garments": (20000, 10000, ["--epochs", "8"]),
    "clean": (20000, 10000, ["--epochs", "12", "--decay"]),
    "pairs": (5000, 2000, ["--epochs", "10", "--colours", "--lr", "0.02"]),
}
TASKS["sorted"] = TASKS["pairs"]
TASKS["fields"] = (3000, 500, ["--epochs", "8"])
TASKS["tail"] = TASKS["wrong"] = TASKS["clean"]
for name in "clean", "tail", "wrong":
    TASKS[f"{name}-mlp"] = (*TASKS[name][:2], [*TASKS[name][2], "--mlp"])
FRONTIER = """# Accuracy against reads from storage

`python3 benchmarks/accuracy.py --frontier` makes this page of [accuracy.jsonl](accuracy.jsonl).
Reads are those after the first epoch, *a sample* those in an epoch over the samples of the data
set. Accuracies are in %. `uniform` draws permutations, and reads as few as a cache can; differences
to it are by seed, in points. The spread is a standard deviation. `nopfs`, `coordl` and `lru` train
on the same samples as `uniform`: where their accuracy differs, another processor rounded otherwise.
"""
HEAD = "| system | seeds | reads a draw | a sample | samples trained | last epoch | mean of the last 3 | last epoch, less `uniform` | last 3, less `uniform` | last epoch, less `uniform`, by seed |\n"  # noqa: E501
SVG = """<svg xmlns="http://www.w3.org/2000/svg" width="720" height="310" font-size="11"
font-family="sans-serif"><rect width="720" height="310" fill="white"/>
"""
WRONG = 0.1  # share of the labels that are random, of pairs and wrong, to train on
TAIL = 0.71  # images of a class of tail, over those of the class before


def fashion(name):
    """Returns the images and labels of one half of Fashion-MNIST."""
    import numpy

    def read(kind, header):
        with gzip.open(f"/usr/share/datasets/fashion-mnist/{name}-{kind}-ubyte.gz") as file:
            return numpy.frombuffer(file.read(), "u1", offset=header)

    return read("images-idx3", 16).reshape(-1, 28, 28), read("labels-idx1", 8)


def garments(name, n):
    """Yields n images, with their labels."""
    images, labels = fashion(name)
    for image, label in zip(images[:n], labels[:n]):
        yield image, str(label)


def tail(name, n):
    """Yields n images at most, to train on of each class TAIL times as many as of the one before,
    with their labels."""
    counts = [6000 * (TAIL**kind if name == "train" else 1) for kind in range(10)]
    for image, label in garments(name, None):
        counts[int(label)] -= 1
        if counts[int(label)] >= 0 and n > 0:
            n -= 1
            yield image, label


def wrong(name, n):
    """Yields n images, with their labels, of which some to train on are wrong."""
    import numpy

    random = numpy.random.default_rng(5)
    for image, label in garments(name, n):
        lost = name == "train" and random.random() < WRONG
        yield image, str(random.integers(10)) if lost else label


def pairs(name, n):
    """Yields n pairs of random garments, 16 pixels wide each, with their labels."""
    import numpy
    from PIL import Image

    images, labels = fashion(name)
    random = numpy.random.default_rng(name == "train")
    for _ in range(n):
        pair = numpy.empty((20, 36, 3))
        pair[:] = random.integers(0, 128, 3)
        two = random.integers(len(labels), size=2)
        for side, garment in enumerate(two):
            small = Image.fromarray(images[garment]).resize((16, 16), Image.BOX)
            shape = numpy.array(small)[:, :, None] / 255
            top, left = random.integers(5), random.integers(3) + 18 * side
            part = pair[top : top + 16, left : left + 16]
            part[:] = (1 - shape) * part + shape * random.integers(96, 256, 3)
        label = 10 * int(labels[two[0]]) + int(labels[two[1]])
        if name == "train" and random.random() < WRONG:
            label = int(random.integers(100))
        yield pair.astype("u1"), f"{label:02}"


def make_fields(training, testing):
    """Returns manifests of fields, to train on and to test on; makes them if they are not there."""
    folder = ROOT / "build" / f"fields-{training}-{testing}"
    if not folder.exists():
        import train_fields

        new = Path(f"{folder}.new")
        shutil.rmtree(new, ignore_errors=True)
        new.mkdir(parents=True)
        for seed, (split, windows) in enumerate([("train", training), ("test", testing)]):
            train_fields.make(new / f"{split}.h5", windows, seed)
        new.rename(folder)
    for split in "train", "test":
        index = [ROOT / "bin/rankpool", "index", folder / f"{split}.h5", "--python", sys.executable]
        shape = ["--rows", "3", "--stride", "3", "--quiet", "-o", folder / f"{split}.parquet"]
        subprocess.run([*index, *shape], check=True)
    return folder / "train.parquet", folder / "test.parquet"


def make_data(task, training, testing):
    """Returns where a task's images are, to train on and to test on; makes them if they are not
    there."""
    if task == "fields":
        return make_fields(training, testing)
    from PIL import Image

    kinds = {"garments": garments, "clean": garments, "tail": tail, "wrong": wrong}
    make = kinds.get(task.split("-")[0], pairs)
    folder = ROOT / "build" / f"{make.__name__}-{training}-{testing}"
    if not folder.exists():
        new = Path(f"{folder}.new")
        shutil.rmtree(new, ignore_errors=True)
        for split, name, n in ("train", "train", training), ("test", "t10k", testing):
            for i, (image, label) in enumerate(make(name, n)):
                (new / split / label).mkdir(parents=True, exist_ok=True)
                Image.fromarray(image).save(new / split / label / f"{i:05}.png")
        new.rename(folder)
    if task != "pairs":
        return folder / "train", folder / "test"
    pack = [ROOT / "bin/rankpool", "pack", "--order", "random", "--quiet"]
    subprocess.run([*pack, "--data", folder / "train", "--dest", folder / "packed"], check=True)
    return folder / "packed", folder / "test"


def train(args, system, seed, data):
    """Trains once, and returns the result, without what it is of."""
    options = TASKS[args.task][2]
    name, comma, settings = system.partition(",")
    sampler = SAMPLERS.get(name)
    own = ["--sampler", sampler or "system"]
    if name not in ("rankpool", "thrifty"):  # whose weights make the gradient that of uniform draws
        own.append("--plain-mean")
    script = ["train_decoded.py", "--data-name", "train", "--channels", "8"]
    if args.task == "fields":
        script = ["train_fields.py", *(path.with_suffix(".h5") for path in data)]
    with tempfile.TemporaryDirectory() as folder:
        log = os.path.join(folder, "run.jsonl")
        subprocess.run(
            [ROOT / "bin/rankpool", "run", "--data", f"train={data[0]}", "--data",
             f"test={data[1]}", "--memory", args.memory, "--system",
             f"rankpool{comma}{settings}" if sampler else system, "--log", log, "--",
             sys.executable, ROOT / "benchmarks" / script[0], *script[1:], *own, *options,
             "--seed", str(seed)],
            check=True, stdout=subprocess.DEVNULL,
        )  # fmt: skip
        events = [json.loads(line) for line in Path(log).read_text().splitlines()]
    epochs = [e for e in events if e["event"] == "epoch" and e["data"] == "train"]
    later = epochs[1:]  # the first epoch reads all samples

    def sum_of(*names):
        return sum(epoch.get(name, 0) for epoch in epochs for name in names)

    return {
        "accuracy": [round(epoch["metrics"]["accuracy"], 4) for epoch in epochs],
        "draws": sum_of("draws"), "planned_hits": sum_of("planned_hits"),
        "substituted": sum_of("substituted"), "evaluated": sum_of("evaluated"),
        "reads": round(sum(e["storage_reads"] for e in later) / sum(e["draws"] for e in later), 4),
        "drawn": round(statistics.mean(e["draws"] for e in later)),  # in an epoch
    }  # fmt: skip


def identity(result):
    return [result[key] for key in ("task", "images", "memory", "system", "seed")]


def summary(results):
    """Returns what the seeds of the same training have in common."""
    runs = {}
    for result in results:
        runs.setdefault(json.dumps(identity(result)[:-1]), []).append(result)
    rows = []
    for of, all_of in runs.items():
        task, images, memory, system = json.loads(of)
        last = [100 * run["accuracy"][-1] for run in all_of]
        late = [100 * statistics.mean(run["accuracy"][-3:]) for run in all_of]
        best = [100 * max(run["accuracy"]) for run in all_of]
        drawn = sum(run["draws"] for run in all_of)
        # Old results have only what was found, which was nothing in the first epoch, and the draws
        # of all epochs, of which the first has all samples.
        reads = [run.get("reads", 1 - run["planned_hits"] / (run["draws"] - images[0]))
                 for run in all_of]  # fmt: skip
        epochs = [run.get("drawn", (run["draws"] - images[0]) / (len(run["accuracy"]) - 1))
                  for run in all_of]  # fmt: skip
        rows.append({
            "task": task, "system": system, "memory": memory, "images": images[0],
            "seeds": len(all_of),
            "last": statistics.mean(last), "last_deviation": deviation(last),
            "late": statistics.mean(late), "late_deviation": deviation(late),
            "best": statistics.mean(best), "best_deviation": deviation(best),
            "trained": drawn / len(all_of),
            "found": 100 * sum(run["planned_hits"] for run in all_of) / drawn,
            "substituted": 100 * sum(run["substituted"] for run in all_of) / drawn,
            "reads": statistics.mean(reads),
            "reads_a_sample": statistics.mean(
                read * drawn / images[0] for read, drawn in zip(reads, epochs)),
        })  # fmt: skip
    return rows


def deviation(numbers):
    return statistics.stdev(numbers) if len(numbers) > 1 else 0.0


def write_frontier(results):
    """Writes tables of accuracy against reads, and plots, of the tasks and memories of thrifty."""
    text, folder = FRONTIER, ROOT / "benchmarks/results"
    results = [run for run in results if run["images"] == list(TASKS[run["task"]][:2])]
    shown = {(r["task"], r["memory"]) for r in results if r["system"].startswith("thrifty")}
    for task, memory in sorted(shown):
        of = [task, list(TASKS[task][:2]), memory]
        runs = sorted((run for run in results if identity(run)[:3] == of), key=identity)
        plain = {run["seed"]: run["accuracy"] for run in runs if run["system"] == "uniform"}
        rows = sorted(summary(runs), key=lambda row: row["reads"])
        text += f"\n## {task}, {memory} of the data in memory\n\n"
        if len(rows) > 2:
            name = f"frontier-{task}-{memory.rstrip('%')}.svg"
            text += f"![accuracy against reads]({name})\n\n"
            (folder / name).write_text(SVG + plot(rows, f"{task}, {memory} in memory") + "</svg>\n")
        text += f"Trained to {' '.join(max([run['date'], run['commit']] for run in runs))}.\n\n"
        text += HEAD + 10 * "| --- " + "|\n"
        for row in rows:
            pairs = [(run["accuracy"], plain[run["seed"]]) for run in runs
                     if run["system"] == row["system"] and run["seed"] in plain]  # fmt: skip
            less = [[100 * (statistics.mean(a[-n:]) - statistics.mean(b[-n:])) for n in (1, 3)]
                    for a, b in pairs]  # fmt: skip
            text += f"| `{row['system']}` | {row['seeds']} | {row['reads']:.3f}"
            text += f" | {row['reads_a_sample']:.3f} | {row['trained']:,.0f}"
            for part in ("last", "late"):
                text += f" | {row[part]:.2f} ± {row[part + '_deviation']:.2f}"
            for column in zip(*less):
                text += f" | {statistics.mean(column):.2f} ± {deviation(column):.2f}"
            text += " | " + ", ".join(f"{last:.2f}" for last, _ in less) + " |\n"
    (folder / "frontier.md").write_text(text)


def plot(rows, title):
    """Returns the SVG elements of accuracy over reads."""
    low = min(row["late"] - row["late_deviation"] for row in rows)
    high = max(row["late"] + row["late_deviation"] for row in rows)
    scale, labels = 240 / (high - low), []
    svg = f'<text x="40" y="20">{title}: mean accuracy of the last 3 epochs, %, over reads a draw'
    svg += '</text><path d="M40 30v260h610" stroke="grey" fill="none"/>'
    for i in range(11):
        svg += f'<text x="{32 + 60 * i}" y="304">{i / 10}</text>'
        svg += f'<text x="2" y="{44 + 24 * i}">{high - 24 * i / scale:.1f}</text>\n'
    names = {}  # of systems at the same place, such as those with the same draws
    for row in rows:
        x, y = 40 + 600 * row["reads"], 40 + scale * (high - row["late"])
        bar = scale * row["late_deviation"]
        svg += f'<path d="M{x:.0f} {y - bar:.0f}v{2 * bar:.0f}" stroke="grey"/>'
        names.setdefault((round(x / 3), round(y / 3)), (x, y, []))[2].append(row["system"])
    for x, y, systems in names.values():
        text, at = ", ".join(systems), y
        colour = "crimson" if text.startswith("thrifty") else "black"
        svg += f'<circle cx="{x:.0f}" cy="{y:.0f}" r="3" fill="{colour}"/>'
        offsets = (sign * offset for offset in range(0, 240, 2) for sign in (1, -1))
        while any(a < x + 7 * len(text) and x < a + 7 * n and abs(at - b) < 12
                  for a, b, n in labels):  # fmt: skip
            at = y + next(offsets)
        labels.append((x, at, len(text)))
        svg += f'<text x="{x + 6:.0f}" y="{at + 4:.0f}" fill="{colour}">{text}</text>\n'
    return svg


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--task", choices=TASKS, default="pairs")
    parser.add_argument(
        "--systems", nargs="+", default=SYSTEMS, metavar="NAME[,OPTION=VALUE]",
        help='names of systems; "uniform", "chunks": the samplers torch and chunks, without a '
        "system (default: all but chunks)",
    )  # fmt: skip
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--memory", default="20%")
    parser.add_argument("--images", type=int, nargs=2, metavar=("TRAIN", "TEST"))
    parser.add_argument("--print", action="store_true", help="print a summary of the results, JSON")
    parser.add_argument("--frontier", action="store_true", help="write results/frontier.{md,svg}")
    args = parser.parse_args()
    path = ROOT / "benchmarks/results/accuracy.jsonl"
    results = []
    if path.exists():
        results = [json.loads(line) for line in path.read_text().splitlines()]
    if args.frontier:
        write_frontier(results)
        return
    if args.print:
        wanted = [r for r in summary(results) if r["task"] == args.task]
        print(json.dumps(wanted, indent=0))
        return
    images = args.images or list(TASKS[args.task][:2])
    data = make_data(args.task, *images)
    version = subprocess.check_output([ROOT / "bin/rankpool", "version"], text=True).split()[1]
    known = [identity(result) for result in results]
    for seed in range(args.seeds):
        for system in args.systems:
            of = {"task": args.task, "images": images, "memory": args.memory}
            of = {**of, "system": system, "seed": seed}
            if identity(of) in known:
                continue
            today = datetime.datetime.now(datetime.timezone.utc).date().isoformat()
            result = {**of, **train(args, system, seed, data), "commit": version, "date": today}
            with path.open("a") as file:
                file.write(json.dumps(result) + "\n")
            print(system, seed, result["accuracy"], flush=True)


if __name__ == "__main__":
    main()
