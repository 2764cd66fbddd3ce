"""What "make run" does: trains on images on emulated slow storage, with plain files and with
rankpool, prints how long the epochs take, and draws it.

    first_run.py DATA OUT  # OUT gets run.jsonl and run.svg
"""

import json
import os
import signal
import subprocess
import sys
import time
import tomllib
import warnings
from multiprocessing import Value
from pathlib import Path

HERE = Path(__file__).parent
ROOT = HERE.parent
STORAGE = HERE / "slow-storage.toml"
EPOCHS = 3
WORKERS = (0, 2, 4)  # of the loaders that are tried with plain files
BATCH = 250


# --- a training ---


def train(root, workers, epochs, with_rankpool, open_rate):
    """Trains, and prints a line with the seconds of each epoch; a rate above 0 limits opens."""
    warnings.filterwarnings("ignore", "This DataLoader will create")  # more workers than cores
    import torch
    from torch import nn
    from torch.utils.data import DataLoader, DistributedSampler
    from torchvision import transforms
    from torchvision.datasets import ImageFolder

    if with_rankpool:  # all that differs
        from rankpool import DistributedSampler, ImageFolder

    torch.manual_seed(0)
    torch.set_num_threads(1)
    prepare = [transforms.Grayscale(), transforms.RandomHorizontalFlip(), transforms.ToTensor()]
    data = ImageFolder(root, transforms.Compose(prepare))
    if open_rate:
        data.loader = Limited(data.loader, open_rate)
    sampler = DistributedSampler(data, num_replicas=1, rank=0)
    loader = DataLoader(
        data, BATCH, sampler=sampler, num_workers=workers, persistent_workers=workers > 0
    )
    model = nn.Sequential(nn.Flatten(), nn.Linear(784, 64), nn.ReLU(), nn.Linear(64, 10))
    optimizer = torch.optim.SGD(model.parameters(), 0.1, momentum=0.9)
    for epoch in range(epochs):
        sampler.set_epoch(epoch)
        began, right = time.monotonic(), 0
        for images, targets in loader:
            answers = model(images)
            optimizer.zero_grad()
            nn.functional.cross_entropy(answers, targets).backward()
            optimizer.step()
            right += int((answers.argmax(1) == targets).sum())
        row = {"seconds": time.monotonic() - began, "accuracy": right / len(data)}
        print(json.dumps(row), flush=True)


class Limited:
    """Reads files, and opens at most a given number a second, over all workers together."""

    def __init__(self, loader, rate):
        self.loader, self.each, self.free_at = loader, 1 / rate, Value("d", 0)

    def __call__(self, path):
        with self.free_at.get_lock():
            now = time.monotonic()
            begin = self.free_at.value = max(now, self.free_at.value) + self.each
        time.sleep(begin - now)
        return self.loader(path)


# --- both of them, one after the other ---


def seconds(root, workers, epochs, *flags, run=()):
    """Trains in a process of its own, and returns how long each epoch took."""
    command = [*run, sys.executable, __file__, "--train", root, workers, epochs, *flags]
    env = {**os.environ, "PYTHONPATH": str(ROOT / "python")}
    done = subprocess.run(
        [str(word) for word in command], env=env, stdout=subprocess.PIPE, check=True, text=True
    )
    rows = [json.loads(line) for line in done.stdout.splitlines() if line.startswith("{")]
    times = [row["seconds"] for row in rows]
    name = "rankpool" if run else "local files" if "local" in flags else "plain files"
    told = " ".join(f"{one:6.1f}" for one in times)
    print(f"{name:>12}, {workers} workers: {told} s, accuracy {rows[-1]['accuracy']:.2f}", flush=True)
    print("".join(f"{line}\n" for line in done.stdout.splitlines() if line[:1] != "{"), end="")
    return times


def mount(data, at):
    """Mounts the slow storage; returns its process, None where FUSE is not allowed."""
    at.mkdir(exist_ok=True)
    command = [ROOT / "bin/rankpool-lab", "slowfs", "--config", STORAGE, data, at]
    storage = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    if storage.stdout.readline().startswith("mounted"):
        return storage
    print("FUSE cannot be used here:", storage.stderr.read().strip())
    print("The two trainings open files at a limited rate instead, without latencies.")
    return None


def main(data, out):
    limits = tomllib.loads(STORAGE.read_text())
    rate, bandwidth = limits["open_rate"], limits["bandwidth"]
    sizes = [path.stat().st_size for path in data.glob("*/*")]
    images = len(sizes)
    local = seconds(data, 2, 1, "local")[0]
    storage = mount(data, out / "slow")
    root, flags, limit = out / "slow", [], []
    if storage is None:
        root, flags, limit = data, [rate], ["--max-opens", str(rate)]
    try:
        tried = {workers: seconds(root, workers, 1, *flags)[0] for workers in WORKERS}
        best = min(tried, key=tried.get)
        plain = seconds(root, best, EPOCHS, *flags)
        log = out / "run.jsonl"
        log.unlink(missing_ok=True)
        run = [ROOT / "bin/rankpool", "run", "--data", root, "--log", log, *limit, "--"]
        pooled = seconds(root, 2, EPOCHS, "rankpool", run=run)
    finally:
        if storage is not None:
            storage.send_signal(signal.SIGINT)
            storage.wait()
    opens, transfer = images / rate, sum(sizes) / bandwidth
    faster, fastest = min(plain) / min(pooled[1:]), min(pooled[1:])
    told = f"""
The storage is emulated: {rate:,} opens and {bandwidth / 1e9} GB a second, nothing in the page
cache, as if the data exceeded the node's memory (scripts/slow-storage.toml). From it an epoch takes
at least max(computing {local:.1f} s, opens {opens:.1f} s, bytes {transfer:.3f} s), from
memory {local:.1f} s. The fastest with plain files took {min(plain):.1f} s; with
rankpool, after its first, {fastest:.1f} s: {faster:.1f} times as fast.
The picture is {out / 'run.svg'}. What training waited for: bin/rankpool report {log}"""
    print(told)
    (out / "run.svg").write_text(picture(plain, pooled, images, rate, opens))


def picture(plain, pooled, images, rate, opens):
    """Returns an SVG of the seconds of epochs, with a line for what storage needs at least."""
    scale = 520 / max(*plain, *pooled, opens)
    parts = [
        '<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 760 400" font-family="sans-serif" '
        'font-size="21"><rect width="760" height="400" fill="white"/>'
        f'<text x="20" y="36" font-weight="bold">Seconds of an epoch: {images:,} images, '
        f"{rate:,} opens a second</text>"
    ]
    for side, (name, color, times) in enumerate(
        [("plain files", "#8a8a8a", plain), ("rankpool", "#0072b2", pooled)]
    ):
        for epoch, one in enumerate(times):
            y = 62 + 150 * side + 42 * epoch
            label = f"{name} {epoch + 1}" if epoch == 0 else f"{epoch + 1}"
            parts.append(
                f'<text x="150" y="{y + 24}" text-anchor="end">{label}</text>'
                f'<rect x="162" y="{y}" width="{one * scale:.0f}" height="34" fill="{color}"/>'
                f'<text x="{170 + one * scale:.0f}" y="{y + 24}">{one:.1f}</text>'
            )
    x = 162 + opens * scale
    parts.append(
        f'<line x1="{x:.0f}" x2="{x:.0f}" y1="54" y2="350" stroke="#d55e00" stroke-width="2" '
        'stroke-dasharray="6 4"/>'
        f'<text x="{x:.0f}" y="376" text-anchor="end" fill="#b34700">the least from storage: '
        f"{opens:.1f} s</text></svg>\n"
    )
    return "\n".join(parts)


if __name__ == "__main__":
    if sys.argv[1] == "--train":
        folder, workers, epochs, *flags = sys.argv[2:]
        rates = [float(flag) for flag in flags if flag.isdigit()]
        train(folder, int(workers), int(epochs), "rankpool" in flags, sum(rates))
    else:
        main(Path(sys.argv[1]), Path(sys.argv[2]))
