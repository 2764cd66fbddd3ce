"""Training on a data set in tar shards and TFRecord files equals training on the same samples in
files."""

import io
import json
import struct
import sys
import tarfile

import pytest
import run
from dataset import EPOCHS, GLOBAL_BATCH, SAMPLES

sys.path.insert(0, str(run.ROOT / "python"))
from rankpool import checksums  # noqa: E402

PER_SHARD = 50


def shards_of(tree, root, write):
    """Writes the files of each class folder of tree, in order, into shards, with write(path without
    suffix, files)."""
    for folder in sorted(tree.iterdir()):
        files = sorted(folder.iterdir())
        (root / folder.name).mkdir(parents=True)
        for first in range(0, len(files), PER_SHARD):
            write(root / folder.name / f"shard-{first:05}", files[first : first + PER_SHARD])
    return root


def write_tar(path, files):
    with tarfile.open(f"{path}.tar", "w", format=tarfile.PAX_FORMAT) as tar:
        for file in files:
            tar.add(file, file.name)


def write_records(path, files):
    def checked(data):
        return data + struct.pack("<I", checksums.masked_crc32c(data))

    records = (
        checked(struct.pack("<Q", f.stat().st_size)) + checked(f.read_bytes()) for f in files
    )
    path.with_suffix(".tfrecord").write_bytes(b"".join(records))


@pytest.mark.parametrize("write", [write_tar, write_records])
@pytest.mark.parametrize(
    "ranks, workers", [(1, 0), (2, 0), pytest.param(1, 2, marks=pytest.mark.full)]
)
def test_the_stream_is_that_of_the_files(
    train, reference, losses, tree, tmp_path, write, ranks, workers
):
    data = shards_of(tree, tmp_path / "shards", write)
    args = [
        "--epochs", EPOCHS, "--sampler", "pads",
        *(["--workers", workers, *losses] if workers else []),
    ]
    result = train(
        data=data, ranks=ranks, args=args, torch=workers > 0, options=run.PATIENT
    ).check(EPOCHS, SAMPLES)
    assert result.digest == reference("pads").digest
    assert result.summary["fallback_reads"] == 0


@pytest.mark.parametrize("write", [write_tar, write_records])
def test_without_a_rank_the_clients_read_the_same(start, reference, tree, tmp_path, write):
    data = shards_of(tree, tmp_path / "shards", write)
    train = start(data=data, args=["--epochs", EPOCHS, "--sampler", "pads"], pause=[3])
    train.wait_for_batches(3)
    train.kill(train.ranks())
    train.go(3)
    result = train.finish().check(EPOCHS, SAMPLES)
    assert result.digest == reference("pads").digest


MEMBERS = """
import json, os, sys, rankpool
data = rankpool.Dataset()
sampler = rankpool.BatchSampler(data, batch_size=int(sys.argv[1]), sampler="torch")
with open("seen-" + os.environ["RANK"], "w") as seen:
    for batch in data.batches(sampler):
        for id, label, members in zip(batch.ids, batch.labels, batch.members):
            hexes = {kind: bytes(view).hex() for kind, view in members.items()}
            print(json.dumps([id, label, hexes]), file=seen)
"""


def test_members_and_class_numbers(start, tmp_path):
    """Each sample has its members, as tarfile finds them, and the label in its .cls member."""
    (tmp_path / "data").mkdir()
    want = []
    for shard in range(2):
        with tarfile.open(tmp_path / "data" / f"{shard}.tar", "w") as tar:
            for i in range(30):
                members = {
                    "jpg": bytes([i]) * (i * 37), "json": b'{"i": %d}' % i, "cls": b"%d" % (i % 7),
                }
                for kind, content in members.items():
                    info = tarfile.TarInfo(f"{'long' * 40}/{shard}-{i}.{kind}")
                    info.size = len(content)
                    tar.addfile(info, io.BytesIO(content))
                want.append(
                    [len(want), i % 7, {kind: content.hex() for kind, content in members.items()}]
                )
    command = [sys.executable, "-c", MEMBERS, GLOBAL_BATCH // 2]
    for memory in "20%", "100%":
        one = start(data=tmp_path / "data", ranks=2, memory=memory, command=command)
        assert one.finish().code == 0, one.text("stderr")
        lines = (one.text("seen-0") + one.text("seen-1")).splitlines()
        assert sorted(map(json.loads, lines)) == want


def test_a_damaged_record_is_never_delivered(train, tree, tmp_path):
    data = shards_of(tree, tmp_path / "shards", write_records)
    shard = data / "b" / "shard-00000.tfrecord"
    content = bytearray(shard.read_bytes())
    content[100] ^= 1
    shard.write_bytes(content)
    result = train(data=data, args=["--epochs", 1, "--sampler", "torch"])
    assert result.code not in (0, None)
    assert (
        "shard-00000.tfrecord" in result.stderr
        and "the checksum of its data is wrong" in result.stderr
    )
