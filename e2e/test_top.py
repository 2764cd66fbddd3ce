"""rankpool top, metrics and logs of real trainings, and the picture of top in the docs."""

import html
import json
import os
import re
import shlex
import subprocess
import urllib.request
from pathlib import Path

import pytest
import run
from browser import dump_dom, screenshot
from dataset import EPOCHS, SAMPLES
from PIL import Image

SOURCES = {
    "local": "hits_local", "remote": "hits_remote", "storage": "storage_reads",
    "fallback": "fallback_reads",
}
STYLES = {
    1: "font-weight: bold", 2: "color: #8b949e", 31: "color: #ff7b72", 32: "color: #7ee787",
    33: "color: #e3b341", 34: "color: #79c0ff", 36: "color: #56d4dd",
}  # fmt: skip


def top(one, *args, **variables):
    """Runs rankpool top on a run under way, and returns what it prints."""
    command = [one.argv[0], "top", "--once", "--session", one.session(), *args]
    env = {**os.environ, "LC_ALL": "C.UTF-8", **variables}
    done = subprocess.run([str(word) for word in command], capture_output=True, text=True, env=env)
    assert done.returncode == 0, done.stderr
    return done.stdout


def waiting(training):
    """A command that trains, and then waits until the test makes the file "go"."""
    return [
        "sh", "-c", f"{shlex.join(map(str, training))} && while [ ! -e go ]; do sleep 0.05; done",
    ]


def given(node):
    return sum(node[name] for name in SOURCES.values())


def test_top_and_metrics_tell_what_the_run_log_tells(start):
    args = ["--epochs", EPOCHS]
    options = [
        "--metrics", "127.0.0.1:0", "--tune", "log-every=1s", "--log-format", "json", "-v",
    ]
    one = start(ranks=2, command=waiting(run.training(args, 2)), options=options)
    one.wait_for(lambda: one.session() and one.ready(2), "the ranks were ready")
    report = {}

    def all_given():
        report.update(json.loads(top(one, "--json", "--interval", "200ms")))
        return sum(given(node) for node in report["nodes"]) == EPOCHS * SAMPLES

    one.wait_for(all_given, "top told of all samples")
    table = top(one)
    urls = re.findall(
        r'"msg":"metrics are shown".*"rank":(\d).*"url":"([^"]+)"', one.text("stderr")
    )
    texts = {int(rank): urllib.request.urlopen(url).read().decode() for rank, url in urls}
    (one.folder / "go").touch()
    result = one.finish().check(EPOCHS, SAMPLES)

    assert (
        report["ranks"] == 2
        and report["silent"] == []
        and [node["rank"] for node in report["nodes"]] == [0, 1]
    )
    assert re.search(r"2 of 2 ranks  tree epoch 2 ", table), table
    assert len(re.findall(r"^   [01] ", table, re.M)) == 2 and "\x1b" not in table, table
    assert len(texts) == 2, texts
    last = [
        [event for event in result.events if event["event"] == "node" and event["rank"] == rank][-1]
        for rank in (0, 1)
    ]
    for source, name in SOURCES.items():
        total = sum(epoch[name] for epoch in result.epochs)
        assert sum(node[name] for node in report["nodes"]) == total, source
        for rank, node in enumerate(report["nodes"]):
            assert node[name] == last[rank][name], (rank, source)
            (shown,) = re.findall(
                rf'^rankpool_samples_total{{.*rank="{rank}",source="{source}"}} (\S+)$',
                texts[rank], re.M,
            )
            assert float(shown) == node[name], (rank, source)
    for node in report["nodes"]:
        assert (
            node["epoch"] == EPOCHS - 1
            and 0 < node["used_bytes"] <= node["slab_bytes"]
            and node["machine"]["storage_reads"] > 0
        )
        assert (
            node["train_seconds"] > 0
            and 0 <= node["stall_seconds"] <= node["train_seconds"]
            and 0 <= node["ready"] <= 1
        )
    assert sum(node["peer_bytes"] for node in report["nodes"]) > 0
    logged = [json.loads(line) for line in result.stderr.splitlines() if line.startswith("{")]
    ranks = [line for line in logged if "rank" in line]  # the others are of run
    assert {line["rank"] for line in ranks} == {0, 1} and all("host" in line for line in ranks)
    assert all({"time", "level", "msg"} <= line.keys() for line in logged)


def page(ansi):
    """Returns lines with ANSI colours as an HTML page that looks like a terminal."""
    body = html.escape(ansi)
    for number, style in STYLES.items():
        body = body.replace(f"\x1b[{number}m", f'<span style="{style}">')
    body = body.replace("\x1b[m", "</span>")
    assert "\x1b" not in body, "an escape that the page does not know"
    style = "margin: 0; padding: 16px; font: 14px/18px 'DejaVu Sans Mono', monospace; background: #0d1117; color: #e6edf3"
    return f'<!DOCTYPE html><meta charset="utf-8"><title>rankpool top</title><body style="margin: 0"><pre style="{style}">{body}</pre>'


@pytest.fixture
def pictures(tmp_path):
    """The folder of the docs' pictures when RANKPOOL_PICTURES is set, else one that is thrown
    away."""
    return run.ROOT / "docs" / "pictures" if os.environ.get("RANKPOOL_PICTURES") else tmp_path


def test_picture(start, tmp_path, pictures):
    torch = bool(os.environ.get("RANKPOOL_PICTURES"))  # the docs show a training that computes
    one = start(ranks=4, args=["--epochs", 10**6], torch=torch)
    one.wait_for(lambda: one.ready(4), "the ranks were ready")

    def trains():
        nodes = json.loads(top(one, "--json"))["nodes"]
        return len(nodes) == 4 and all(
            n["epoch"] >= 3 and n["rates"] and n["rates"]["local_share"] for n in nodes
        )

    one.wait_for(trains, "all ranks trained")
    frame = top(one, CLICOLOR_FORCE="1").rstrip("\n")
    one.kill([one.process.pid], 15)
    one.finish()

    lines = [re.sub(r"\x1b\[\d*m", "", line) for line in frame.splitlines()]
    path = tmp_path / "top.html"
    path.write_text(page(frame), encoding="utf-8")
    dom = dump_dom(path)
    assert dom.count("<span") > 50 and "rankpool top" in dom and "█" in dom
    pictures.mkdir(exist_ok=True)
    picture = Path(pictures) / "top.png"
    width, height = 32 + round(8.43 * max(map(len, lines))), 32 + 18 * len(lines)
    screenshot(path, picture, width, height)
    with Image.open(picture) as image:
        assert image.size == (width, height)
        colors = {pixel for _, pixel in image.convert("RGB").getcolors(1 << 24)}
    assert {(0x0D, 0x11, 0x17), (0x7E, 0xE7, 0x87), (0x56, 0xD4, 0xDD)} <= colors, (
        "background, local and remote hits"
    )
