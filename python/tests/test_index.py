import json
import os
from pathlib import Path

import pytest

from dataset_tree import make_tree, write_index
from rankpool import RankpoolError, SampleError
from rankpool.index import Index


def test_it_finds_each_sample(tmp_path):
    files = make_tree(str(tmp_path / "d"), samples=5)
    write_index(tmp_path / "idx", str(tmp_path / "d"), files)
    index = Index(tmp_path / "idx")
    assert len(index) == 5
    assert [os.fsdecode(index.path(i)) for i in range(5)] == files
    assert index.labels.tolist() == [0, 0, 1, 1, 1]
    for i in range(5):
        assert index.read(i) == bytes([i]) * (100 + i)


def test_files_right_in_the_root_and_names_that_are_not_text(tmp_path):
    path = os.fsdecode(os.fsencode(str(tmp_path)) + b"/\xff\xfe")
    Path(path).write_bytes(b"abc")
    write_index(tmp_path / "idx", str(tmp_path), [path])
    assert Index(tmp_path / "idx").read(0) == b"abc"


def test_samples_inside_a_file(tmp_path):
    (tmp_path / "d").mkdir()
    shard = str(tmp_path / "d" / "shard")
    Path(shard).write_bytes(b"headAAAAmidBB")
    write_index(tmp_path / "idx", str(tmp_path / "d"), [shard, shard], offsets=[4, 11], sizes=[4, 2])
    index = Index(tmp_path / "idx")
    assert [index.read(0), index.read(1)] == [b"AAAA", b"BB"]
    os.truncate(shard, 12)
    os.utime(shard, ns=(0, index.mtimes[1]))
    with pytest.raises(SampleError, match="ends 1 bytes early"):
        index.read(1)


def change_time(file):
    os.utime(file, ns=(0, 1))


def shrink(file):
    stat = os.stat(file)
    os.truncate(file, 3)
    os.utime(file, ns=(0, stat.st_mtime_ns))


@pytest.mark.parametrize(
    "change, reason",
    [
        (os.remove, "No such file or directory"),
        (change_time, "the file was changed after it was indexed"),
        (shrink, "the file has 3 bytes, 101 when it was indexed"),
    ],
)
def test_a_changed_file_is_an_error_never_other_bytes(tmp_path, change, reason):
    files = make_tree(str(tmp_path / "d"), samples=2)
    write_index(tmp_path / "idx", str(tmp_path / "d"), files)
    index = Index(tmp_path / "idx")
    change(files[1])
    with pytest.raises(SampleError) as caught:
        index.read(1)
    assert (caught.value.id, caught.value.path, caught.value.reason) == (1, files[1], reason)


@pytest.mark.parametrize("content", [b"", b"rpindex1", b"rpindex2" + bytes(56)])
def test_what_is_no_index_is_refused(tmp_path, content):
    (tmp_path / "idx").write_bytes(content)
    with pytest.raises(RankpoolError, match="is not a sample index"):
        Index(tmp_path / "idx")


def test_the_golden_index():
    """The index that the Go side writes (docs/wire/index_golden.bin), against its content as JSON."""
    wire = Path(__file__).parents[2] / "docs" / "wire"
    golden = json.loads((wire / "index_golden.json").read_text())
    index = Index(wire / "index_golden.bin")
    assert len(index) == len(golden["samples"]) == 5
    for sample in golden["samples"]:
        i = sample["id"]
        assert os.fsdecode(index.path(i)) == sample["path"]
        assert (index.sizes[i], index.mtimes[i]) == (sample["size"], sample["mtime_ns"])
        assert (index.labels[i], index.offset(i)) == (sample["label"], sample["offset"])
