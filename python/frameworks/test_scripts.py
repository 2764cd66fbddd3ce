"""The example scripts of frameworks: the cache on, resumed in mid-epoch, two ranks."""

import pytest
from conftest import ROOT, SAMPLES, draws, stream

EPOCHS, GLOBAL_BATCH = 2, 4
BATCHES = SAMPLES["train"] // GLOBAL_BATCH
STOP = BATCHES + 2  # in mid-epoch
# Each script's options for where its checkpoints are and when to end, and how many batches it
# fetches ahead of the training.
SCRIPTS = {
    "lightning": ("--checkpoint", "model.ckpt", "--max-steps", 0),
    "accelerate": ("--checkpoint", "state", "--stop-after", 0),
    "huggingface": ("--checkpoints", "states", "--max-steps", 0),
    "timm": ("--checkpoint", "model.pt", "--stop-after", 1),
}


@pytest.mark.parametrize("ranks", [1, 2])
@pytest.mark.parametrize("name", SCRIPTS)
def test_the_stream_is_the_same_with_the_cache_and_after_a_resume(images, trained, name, ranks):
    root, script = images / "train", ROOT / "python" / "examples" / f"{name}_train.py"
    command = [script, root, "--epochs", EPOCHS, "--batch-size", GLOBAL_BATCH // ranks]
    files = stream(trained("files", command, ranks))
    assert {len(ids) for ids in files.values()} == {EPOCHS * SAMPLES["train"] // ranks} and len(
        files
    ) == ranks
    part = SAMPLES["train"] // ranks
    for at in range(0, EPOCHS * part, part):
        assert sorted(id for ids in files.values() for id in ids[at : at + part]) == list(
            range(SAMPLES["train"])
        )
    cached = trained("cached", command, ranks, root)
    assert stream(cached) == files
    assert draws(cached) == EPOCHS * SAMPLES["train"]
    checkpoint, path, end, ahead = SCRIPTS[name]
    command += [checkpoint, path]
    trained("resumed", [*command, end, STOP], ranks, root)
    trained("resumed", command, ranks, root)
    trained_before, fetched_before = ((STOP + n) * GLOBAL_BATCH // ranks for n in (0, ahead))
    assert stream(cached.parent / "resumed") == {
        rank: ids[:fetched_before] + ids[trained_before:] for rank, ids in files.items()
    }
