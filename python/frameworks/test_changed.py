"""PyTorch's imagenet example and torchvision's reference script, with three lines changed in
each."""

import difflib
import shutil
from pathlib import Path

import pytest
from conftest import HERE, SAMPLES, counted, make_images, stream

EPOCHS, RANKS = 2, 2
SAMPLER = (
    "train_sampler = torch.utils.data.distributed.DistributedSampler(dataset)\n",
    "train_sampler = rankpool.DistributedSampler(dataset)\n",
)
IMAGENET = [
    ("import torch\n", "import torch\nimport rankpool\n"),
    ("train_dataset = datasets.ImageFolder(\n", "train_dataset = rankpool.ImageFolder(\n"),
    tuple(line.replace("dataset", "train_dataset") for line in SAMPLER),
]
TORCHVISION = [
    ("import torch\n", "import torch\nimport rankpool\n"),
    ("dataset = torchvision.datasets.ImageFolder(\n            traindir,\n",
     "dataset = rankpool.ImageFolder(\n            traindir,\n"),
    SAMPLER,
]  # fmt: skip


@pytest.fixture
def scripts(request, tmp_path):
    """scripts(option, lines) returns the script that an option names, as it is and with lines
    changed."""

    def scripts(option, lines):
        path = request.config.getoption(option)
        assert path, f"say where the script is: make test-frameworks {option[2:].upper()}=FILE"
        theirs = ours = Path(path).read_text()
        for old, new in lines:
            assert ours.count(old) == 1, f"{path} has not once {old!r}"
            ours = ours.replace(old, new)
        changed = [
            line for line in difflib.ndiff(theirs.splitlines(), ours.splitlines()) if line[0] == "+"
        ]
        assert len(changed) == len(lines)
        for name, text in (("theirs", theirs), ("ours", ours)):
            (tmp_path / name).mkdir()
            for module in Path(path).parent.glob("*.py"):
                shutil.copy(module, tmp_path / name)
            (tmp_path / name / "main.py").write_text(text)
        return tmp_path / "theirs" / "main.py", tmp_path / "ours" / "main.py"

    return scripts


def same_streams(trained, unchanged, changed, root, ranks=RANKS, draws=SAMPLES["train"]):
    """Checks that both commands train on the same samples, `draws` in each epoch, and that the
    cache serves all of them; returns the samples."""
    expected = stream(trained("unchanged", unchanged, ranks))
    assert {len(ids) for ids in expected.values()} == {EPOCHS * draws // ranks}
    assert len(expected) == ranks
    assert stream(trained("files", changed, ranks)) == expected
    cached = trained("cached", changed, ranks, root)
    assert stream(cached) == expected
    assert counted(cached, "draws", "fallback_reads") == [EPOCHS * draws, 0]
    return expected


def test_imagenet(scripts, images, trained):
    args = ["--arch", "shufflenet_v2_x0_5", "--batch-size", 5, "--workers", 1]
    args += ["--dist-url", "env://", "--dist-backend", "gloo", "--world-size", RANKS, "--rank", -1]
    unchanged, changed = (
        [HERE / "own_folder.py", script, images, *args]
        for script in scripts("--imagenet", IMAGENET)
    )
    root, epochs = images / "train", ["--epochs", EPOCHS]
    expected = same_streams(trained, [*unchanged, *epochs], [*changed, *epochs], root)
    # Its checkpoints are of whole epochs.
    trained("resumed", [*changed, "--epochs", 1], RANKS, root)
    again = [*changed, *epochs, "--resume", "checkpoint.pth.tar"]
    assert stream(trained("resumed", again, RANKS, root)) == expected


def test_imagenet_without_distribution(scripts, images, trained):
    """It draws with shuffle=True, and no line changes for that."""
    args = ["--arch", "shufflenet_v2_x0_5", "--batch-size", 5, "--workers", 1, "--seed", 1]
    unchanged, changed = (
        [HERE / "own_folder.py", script, images, *args, "--epochs", EPOCHS]
        for script in scripts("--imagenet", IMAGENET[:2])
    )
    same_streams(trained, unchanged, changed, images / "train", 1)


def torchvision_commands(scripts, images, lines, *options):
    args = ["--data-path", images, "--device", "cpu", "--model", "shufflenet_v2_x0_5"]
    args += ["--workers", 1, "--train-crop-size", 32, "--val-crop-size", 32]
    args += ["--val-resize-size", 32, "--auto-augment", "ta_wide", "--random-erase", 0.1]
    return [
        [HERE / "without_gpu.py", script, *args, "--epochs", EPOCHS, *options]
        for script in scripts("--torchvision", lines)
    ]


def test_torchvision_draws_with_its_own_sampler(scripts, tmp_path, trained):
    """Each sample three times, of which it keeps a multiple of 256 draws."""
    root = make_images(tmp_path / "images", {"train": 300, "val": 8})
    unchanged, changed = torchvision_commands(
        scripts, root, TORCHVISION[:2], "--ra-sampler", "--batch-size", 32
    )
    same_streams(trained, unchanged, changed, root / "train", draws=256)


def test_torchvision(scripts, images, trained):
    unchanged, changed = torchvision_commands(scripts, images, TORCHVISION, "--batch-size", 5)
    expected = same_streams(trained, unchanged, changed, images / "train")
    # Its checkpoints are of whole epochs.
    changed += ["--output-dir", "states"]
    trained("resumed", [*changed, "--epochs", 1], RANKS, images / "train")
    resumed = trained(
        "resumed", [*changed, "--resume", "states/checkpoint.pth"], RANKS, images / "train"
    )
    assert stream(resumed) == expected
