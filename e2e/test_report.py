"""rankpool report of real trainings and of an invented one, viewed in a browser, and its picture in
the docs."""

import json
import os
import re
import subprocess
from pathlib import Path

import pytest
import run
from browser import complaints, dump_dom, print_pdf, screenshot
from dataset import EPOCHS, SAMPLES, make_tree
from PIL import Image

SECTIONS = [
    "remarks", "epochs", "sources", "stall", "gpu", "throughput", "latency", "importance",
    "balance",
]  # fmt: skip
# of style.css, in light mode
LOCAL, REMOTE, STORAGE, LINE = (
    (0x0B, 0x3C, 0x6F), (0x4A, 0x98, 0xC9), (0xC9, 0xCB, 0xC4), (0x00, 0x72, 0xB2),
)
PICTURE_BYTES = 300_000

# Put into a page, it writes where its parts are: the box of each section and those of its plots,
# and whether the page is too wide.
MEASURE = """<script>
const edges = r => [r.left, r.top, r.width, r.height];
const box = e => edges(e.getBoundingClientRect());
const letter = e => {
    const to = e.getScreenCTM();
    return parseFloat(getComputedStyle(e).fontSize) * Math.hypot(to.a, to.b);
};
const shown = (s, what) => [...s.querySelectorAll(what)].filter(e => e.getClientRects().length);
const all = {wide: document.documentElement.scrollWidth > innerWidth, sections: {}};
for (const s of document.querySelectorAll("section"))
    all.sections[s.id] = {
        box: box(s),
        plots: shown(s, "figure > svg").map(box),
        text: shown(s, "figure > svg text").map(box),
        letters: shown(s, "figure > svg text").map(letter),
    };
const out = document.createElement("pre");
out.id = "measured";
out.textContent = JSON.stringify(all);
document.body.append(out);
</script>"""


def report(folder, *logs):
    """Makes the page for run logs, and returns its path."""
    page = Path(folder) / "report.html"
    command = [run.RANKPOOL, "report", *logs, "-o", page]
    done = subprocess.run([str(word) for word in command], capture_output=True, text=True)
    assert (done.returncode, done.stdout, done.stderr) == (0, "", ""), done
    return page


def measured(page, *options):
    """Returns what MEASURE finds in a browser."""
    probe = page.with_name("probe.html")
    probe.write_text(
        page.read_text(encoding="utf-8").replace("</body>", MEASURE + "</body>"), encoding="utf-8"
    )
    page = dump_dom(probe, *options)
    return json.loads(re.search(r'<pre id="measured">(.*)</pre>', page).group(1))


def colors(picture, left_out=0.0):
    """Returns the colours that cover more than the share `left_out` of a picture."""
    with Image.open(picture) as image:
        pixels = image.width * image.height
        return {
            color for n, color in image.convert("RGB").getcolors(1 << 24) if n > left_out * pixels
        }


def check(page, plots):
    """Asserts what holds for every page; `plots` has how many plots each section shows, 0 where it
    says what is missing."""
    assert complaints(page) == []
    seen = measured(page)
    assert list(seen["sections"]) == SECTIONS and not seen["wide"]
    for name, section in seen["sections"].items():
        assert section["box"][3] > 30, f"{name} is not seen"
        if name in plots:
            assert len(section["plots"]) == plots[name], name
        for left, _, width, height in section["plots"]:
            assert left >= 0 and width > 500 and height > 90, (
                f"a plot of {name} is {width} by {height}"
            )
        for left, top, width, height in section["text"]:
            x, y, w, h = section["box"]
            assert (
                width > 2
                and x - 1 <= left
                and left + width <= x + w + 1
                and y <= top
                and top + height <= y + h
            ), f"text of {name} is cut"
    pdf = page.with_suffix(".pdf")
    print_pdf(page, pdf)
    return len(re.findall(rb"/Type\s*/Page\b", pdf.read_bytes()))


def test_report_of_a_training(start, tmp_path):
    one = start(ranks=2, args=["--epochs", EPOCHS], options=["--tune", "log-every=1s"])
    result = one.finish().check(EPOCHS, SAMPLES)
    page = report(tmp_path, one.folder / "run.jsonl")
    one_each = dict.fromkeys(["sources", "stall", "throughput", "latency", "importance"], 1)
    assert check(page, {**one_each, "balance": 2}) > 1
    text = page.read_text(encoding="utf-8")
    hits = sum(e["hits_local"] + e["hits_remote"] for e in result.epochs)
    assert f"2 ranks of one node trained on tree: {EPOCHS} epochs finished" in text
    assert (
        f"Of {EPOCHS * SAMPLES:,} samples, {100 * hits / (EPOCHS * SAMPLES):.1f} % came from the "
        "nodes' memory"
        in text.replace("&#39;", "'")
    )
    assert "Remarks" in text and "could not be read" not in text
    for rank in (0, 1):  # the table of nodes shows what each was given
        last = [e for e in result.events if e["event"] == "node" and e["rank"] == rank][-1]
        given = sum(
            last[name] for name in ("hits_local", "hits_remote", "storage_reads", "fallback_reads")
        )
        assert re.search(
            rf'<tr><th scope="row">{rank}</th><td>[^<]*</td><td>{given:,}</td>', text
        ), (rank, given)


@pytest.fixture(scope="module")
def cluster(tmp_path_factory):
    """The log of an invented training: eight nodes with GPUs, and failures."""
    log = tmp_path_factory.mktemp("cluster") / "run.jsonl"
    with open(log, "wb") as out:
        command, env = (
            ["go", "run", "./cmd/internal/runlog/logmaker"],
            {**os.environ, "CGO_ENABLED": "0"},
        )
        subprocess.run(command, cwd=run.ROOT, env=env, stdout=out, check=True)
    return log


@pytest.mark.xdist_group("cluster")
def test_report_of_a_cluster(cluster, tmp_path):
    page = report(tmp_path, cluster)
    assert check(page, {name: {"balance": 2}.get(name, 1) for name in SECTIONS[2:]}) > 2
    phone = measured(page, "--window-size=390,844")
    assert not phone["wide"]
    for name, section in phone["sections"].items():
        assert all(size >= 6 for size in section["letters"]), f"labels of {name} are too small"
    light, dark = tmp_path / "light.png", tmp_path / "dark.png"
    screenshot(page, light, 1000, 2400)
    assert {(0xFF, 0xFF, 0xFF), STORAGE, REMOTE, LOCAL} <= colors(light, 0.001) and LINE in colors(
        light
    )
    night = tmp_path / "night.html"
    night.write_text(
        page.read_text(encoding="utf-8").replace(
            "@media (prefers-color-scheme: dark)", "@media all"
        ),
        encoding="utf-8",
    )
    screenshot(night, dark, 1000, 2400)
    assert {(0x16, 0x18, 0x1B), (0x86, 0xC5, 0xEC), (0x2F, 0x75, 0xB8)} <= colors(dark, 0.001)


@pytest.mark.xdist_group("cluster")
def test_report_of_half_a_log(cluster, tmp_path):
    """A log without nodes and GPUs, whose last line a killed rank cut off: the page names what is
    missing."""
    old = tmp_path / "old.jsonl"
    lines = [line for line in cluster.read_text().splitlines() if '"event":"epoch"' in line][:1]
    old.write_text(lines[0] + "\n" + lines[0][:50])
    page = report(tmp_path, old)
    assert check(page, dict.fromkeys(SECTIONS[2:], 0)) >= 1
    text = page.read_text(encoding="utf-8")
    assert text.count('class="missing"') == 7 and "one line of the log could not be read" in text


def test_complaints_are_heard(tmp_path):
    page = tmp_path / "bad.html"
    page.write_text("<!DOCTYPE html><title>bad</title><script>fails()</script>")
    assert len(complaints(page)) == 1


def test_picture(start, tmp_path):
    """A training of four ranks, of which one is killed; with RANKPOOL_PICTURES it is long enough
    for the docs."""
    folder = os.environ.get("RANKPOOL_PICTURES")
    epochs, samples = (8, 6_000) if folder else (4, 720)
    tree = make_tree(tmp_path / "train", samples)
    # the docs show a training that computes
    middle, torch = samples // 24 * epochs // 2, bool(folder)
    options = ["--tune", "log-every=1s"]
    one = start(
        tree, ranks=4, memory="40%", args=["--epochs", epochs], options=options, torch=torch,
        pause=[middle],
    )
    one.wait_for_batches(middle)
    one.wait_for(
        lambda: '"event":"node"' in one.text("run.jsonl"), "the log had the ranks' first lines"
    )
    (*_, victim) = one.ranks()
    one.kill([victim])
    one.wait_for(
        lambda: victim not in one.ranks() and len(one.ranks()) == 4 and one.ready(4),
        "the cache was back",
    )
    one.go(middle)
    one.finish().check(epochs, samples)
    page = report(tmp_path, one.folder / "run.jsonl")
    assert re.search(
        r"restarted at 0:\d\d:\d\d, in epoch \d+\.", page.read_text(encoding="utf-8")
    )
    whole, picture = tmp_path / "whole.png", Path(folder or tmp_path).resolve() / "report.png"
    screenshot(page, whole, 900, 1640)
    with Image.open(whole) as image:
        assert image.size == (900, 1640)
        image.convert("RGB").quantize(128).save(picture, optimize=True)
    assert picture.stat().st_size < PICTURE_BYTES
    assert {(0xFF, 0xFF, 0xFF), STORAGE, LOCAL} <= colors(whole, 0.001)
