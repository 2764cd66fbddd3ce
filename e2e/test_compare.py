"""rankpool-lab compare: the same training under several systems, interrupted and continued, and its
page in a browser."""

import json
import os
import signal
import subprocess
import sys
import time

import run
from browser import complaints, dump_dom
from dataset import EPOCHS, SAMPLES

SYSTEMS = ["lru", "min", "icache", "rankpool"]  # ranks cannot run min
TRAINER = [
    sys.executable, run.HERE / "trainer.py", "--epochs", EPOCHS, "--batch-size", 12, "--sampler",
    "system", "--accuracy", "--seed", "{seed}",
]


def compare(tree, out, *options):
    command = [
        run.LAB, "compare", "--systems", ",".join(SYSTEMS), "--data", tree, "-o", out,
        *options, "--", *TRAINER,
    ]
    return [str(word) for word in command]


def train(*args):
    return subprocess.run(
        compare(*args), capture_output=True, text=True, timeout=run.PATIENCE_SECONDS
    )


def results(out):
    return {
        path.parts[-3]: json.loads(path.read_text()) for path in out.glob("*/seed-0/result.json")
    }


def test_compare(tree, tmp_path):
    """With emulated storage: it counts the same reads as the ranks, and nothing of it stays
    mounted."""
    slow = tmp_path / "slow.toml"
    slow.write_text('read_latency = "100us"\n')
    out = tmp_path / "out"
    packages = tmp_path / "packages"
    packages.mkdir()
    options = "--slowfs", slow, "--ranks", 2, "--packages", f"{packages}:16MiB"
    done = train(tree, out, *options)
    assert done.returncode == 0, done.stderr
    rows = [line.split() for line in done.stdout.splitlines()]
    assert [row[0] for row in rows if row and row[0] in SYSTEMS] == [
        "lru", "icache", "rankpool",
    ] * 2
    assert "min: not trained: --system: min is simulated only" in done.stdout
    found = results(out)
    assert sorted(found) == sorted(SYSTEMS) and found["min"]["reason"]
    given = {name: result["of"]["set"] or [] for name, result in found.items()}
    assert [name for name in SYSTEMS if f"packages={packages}:16MiB" in given[name]] == ["icache"]
    for name in ("lru", "icache", "rankpool"):
        events = [
            json.loads(line)
            for line in (out / name / "seed-0" / "run.jsonl").read_text().splitlines()
        ]
        epochs = [event for event in events if event["event"] == "epoch"]
        assert len(epochs) == EPOCHS and (
            name == "icache" or all(e["draws"] == SAMPLES for e in epochs)
        )
        assert any(e.get("package_writes") for e in epochs) == (name == "icache")
        nodes = {event["rank"]: event for event in events if event["event"] == "node"}
        read = sum(node["machine"]["storage_bytes"] for node in nodes.values())
        of_draws = sum(e["storage_bytes"] for e in epochs)
        assert found[name]["storage_bytes"] == read >= of_draws > 0
    page = out / "report.html"
    assert complaints(page) == []
    text = dump_dom(page)
    assert (
        "not trained: --system: min" in text
        and "icache trained on" in text
        and text.count("<circle") == 2 * 3 * EPOCHS
    )
    mounts = open("/proc/self/mounts").read()
    assert "rankpool-compare-" not in mounts

    # A training that ended well is not repeated, and a different comparison is refused.
    again = train(tree, out, *options)
    assert again.returncode == 0 and again.stderr.count("was trained before") == 3, again.stderr
    assert again.stdout == done.stdout
    other = train(tree, out, "--ranks", 1)
    assert other.returncode == 2 and "name another folder with -o" in other.stderr, other.stderr

    # The same logs side by side, by hand.
    logs = [f"{name}={out / name / 'seed-0' / 'run.jsonl'}" for name in ("lru", "rankpool")]
    by_hand = [
        str(run.LAB), "side-by-side", *logs, "-o", str(tmp_path / "both.html"),
    ]
    assert subprocess.run(by_hand).returncode == 0
    assert (
        complaints(tmp_path / "both.html") == []
        and ">rankpool</th>" in (tmp_path / "both.html").read_text()
    )


def test_compare_goes_on(tree, tmp_path):
    """Interrupted in its second training, compare ends with that signal and keeps the first."""
    out = tmp_path / "out"
    command = compare(tree, out, "--seeds", 1)
    with open(tmp_path / "said", "w") as said:
        one = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=said)
        until = time.monotonic() + run.PATIENCE_SECONDS
        while not (out / "icache").exists():
            assert one.poll() is None and time.monotonic() < until, (tmp_path / "said").read_text()
            time.sleep(0.01)
        os.kill(one.pid, signal.SIGTERM)
        assert one.wait(run.PATIENCE_SECONDS) == 128 + signal.SIGTERM, (
            tmp_path / "said"
        ).read_text()
    assert "lru" in results(out) and "icache" not in results(out)
    done = train(tree, out, "--seeds", 1)
    assert done.returncode == 0 and done.stderr.count("was trained before") == 1, done.stderr
    assert set(results(out)) == set(SYSTEMS)
