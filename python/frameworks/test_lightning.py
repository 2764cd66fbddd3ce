"""Lightning: the cache on, resumed in mid-epoch, two ranks."""

import pytest
from conftest import ROOT, SAMPLES, draws, stream

SCRIPT = ROOT / "python" / "examples" / "lightning_train.py"
EPOCHS, GLOBAL_BATCH = 2, 4
BATCHES = SAMPLES["train"] // GLOBAL_BATCH
STOP = BATCHES + 2  # in mid-epoch


@pytest.mark.parametrize("ranks", [1, 2])
def test_the_stream_is_the_same_with_the_cache_and_after_a_resume(images, trained, ranks):
    root = images / "train"
    command = [SCRIPT, root, "--epochs", EPOCHS, "--batch-size", GLOBAL_BATCH // ranks]
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
    command += ["--checkpoint", "model.ckpt"]
    trained("resumed", [*command, "--max-steps", STOP], ranks, root)
    trained("resumed", command, ranks, root)
    assert stream(cached.parent / "resumed") == files
