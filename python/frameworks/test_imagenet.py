"""PyTorch's imagenet example, with three lines changed."""

import difflib
from pathlib import Path

import pytest
from conftest import SAMPLES, draws, stream

EPOCHS, RANKS = 2, 2
LINES = [
    ("import torch\n", "import torch\nimport rankpool\n"),
    (
        "        train_dataset = datasets.ImageFolder(\n",
        "        train_dataset = rankpool.ImageFolder(\n",
    ),
    (
        "train_sampler = torch.utils.data.distributed.DistributedSampler(train_dataset)\n",
        "train_sampler = rankpool.DistributedSampler(train_dataset)\n",
    ),
]


@pytest.fixture
def scripts(request, tmp_path):
    """The script as it is, and as changed."""
    path = request.config.getoption("--imagenet")
    assert path, (
        "say where github.com/pytorch/examples is: make test-frameworks IMAGENET=…/imagenet/main.py"
    )
    theirs = ours = Path(path).read_text()
    for old, new in LINES:
        assert ours.count(old) == 1, f"{path} has not one line {old!r}"
        ours = ours.replace(old, new)
    changed = [
        line for line in difflib.ndiff(theirs.splitlines(), ours.splitlines()) if line[0] == "+"
    ]
    assert len(changed) == 3
    for name, text in (("unchanged", theirs), ("changed", ours)):
        (tmp_path / f"{name}.py").write_text(text)
    return tmp_path / "unchanged.py", tmp_path / "changed.py"


def test_the_stream_is_that_of_the_unchanged_script(scripts, images, trained):
    unchanged, changed = scripts
    args = [
        images,
        "--arch",
        "shufflenet_v2_x0_5",
        "--epochs",
        EPOCHS,
        "--batch-size",
        5,
        "--workers",
        1,
    ]
    args += ["--dist-url", "env://", "--dist-backend", "gloo", "--world-size", RANKS]
    args += ["--rank", -1]
    expected = stream(trained("unchanged", [unchanged, *args], RANKS))
    assert {len(ids) for ids in expected.values()} == {EPOCHS * SAMPLES["train"] // RANKS} and len(
        expected
    ) == RANKS
    assert stream(trained("files", [changed, *args], RANKS)) == expected
    cached = trained("cached", [changed, *args], RANKS, images / "train")
    assert stream(cached) == expected
    assert draws(cached) == EPOCHS * SAMPLES["train"]
