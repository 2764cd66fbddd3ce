import io
import json
import os
import signal
import struct
import sys
import tarfile
from pathlib import Path

import pytest

from dataset_tree import make_tree, write_index
from rankpool import RankpoolError, SampleError, checksums
from rankpool.index import Index

WIRE = Path(__file__).parents[2] / "docs" / "wire"


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
    write_index(
        tmp_path / "idx", str(tmp_path / "d"), [shard, shard], offsets=[4, 11], sizes=[4, 2]
    )
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


def test_a_pipe_in_the_place_of_a_file_is_an_error(tmp_path):
    """Nobody writes to it, and the reader would wait for that."""

    def wake(number, frame):
        raise TimeoutError("the read waits")

    files = make_tree(str(tmp_path / "d"), samples=1)
    write_index(tmp_path / "idx", str(tmp_path / "d"), files)
    os.remove(files[0])
    os.mkfifo(files[0])
    before = signal.signal(signal.SIGALRM, wake)
    signal.alarm(10)
    try:
        with pytest.raises(SampleError, match="the file was changed after it was indexed"):
            Index(tmp_path / "idx").read(0)
    finally:
        signal.alarm(0)
        signal.signal(signal.SIGALRM, before)


@pytest.mark.parametrize("content", [b"", b"rpindex3" + bytes(120)])
def test_what_is_no_index_is_refused(tmp_path, content):
    (tmp_path / "idx").write_bytes(content)
    with pytest.raises(RankpoolError, match="is not a sample index"):
        Index(tmp_path / "idx")


def test_the_golden_index():
    """The index that the Go side writes (docs/wire/index_golden.bin), against its content as
    JSON."""
    wire = Path(__file__).parents[2] / "docs" / "wire"
    golden = json.loads((wire / "index_golden.json").read_text())
    index = Index(wire / "index_golden.bin")
    assert len(index) == len(golden["samples"]) == 9
    assert index.classes == golden["classes"] == ["cat", "dög"]
    assert (index.identity, index.times) == (golden["digest"], golden["times"])
    for sample in golden["samples"]:
        i = sample["id"]
        assert os.fsdecode(index.path(i)) == sample["path"]
        assert (index.sizes[i], index.mtimes[i]) == (sample["size"], sample["mtime_ns"])
        assert (index.labels[i], index.offset(i)) == (sample["label"], sample["offset"])
        assert index.checksum(i) == int(sample["xxh3"] or "0", 16)
        assert index.members(i) == [(m["kind"], m["offset"], m["size"]) for m in sample["members"]]


def tar_index(tmp_path, names, order=None):
    """Makes a shard of two samples with the members `names` and indexes it; returns the index and
    the contents."""
    shard = str(tmp_path / "s.tar")
    contents = {}
    with tarfile.open(shard, "w") as tar:
        for number, name in enumerate(names):
            info = tarfile.TarInfo(name)
            contents[name] = bytes([number]) * (number * 400)
            info.size = len(contents[name])
            tar.addfile(info, io.BytesIO(contents[name]))
    members = {}
    with tarfile.open(shard) as tar:
        for info in tar:
            key, _, kind = info.name.partition(".")
            members.setdefault(key, []).append((kind, info.offset_data, info.size))
    members = [order(m) if order else m for m in members.values()]
    sizes = [sum(size for _, _, size in sample) for sample in members]
    offsets = [sample[0][1] for sample in members]
    write_index(tmp_path / "idx", str(tmp_path), [shard] * 2, offsets, sizes, [2, 2], members)
    return Index(tmp_path / "idx"), contents


@pytest.mark.parametrize("order", [None, lambda members: members[::-1]])
@pytest.mark.parametrize(
    "names",
    [
        ["a.jpg", "a.cls", "a.seg.png", "b.jpg", "b.cls"],
        ["a.jpg", "b.jpg", "b.cls", "a.cls"],
        ["a.jpg", "b.x", "a.cls"],
    ],
)
@pytest.mark.parametrize("far_apart", [False, True])
def test_members_of_a_tar_shard(tmp_path, names, order, far_apart):
    index, contents = far(tmp_path) if far_apart else tar_index(tmp_path, names, order)
    names = list(contents)
    assert index.has_members
    for id, key in enumerate("ab"):
        data = index.read(id)
        want = {name.partition(".")[2]: contents[name] for name in names if name[0] == key}
        assert index.split(id, data) == want
        assert index.split(id, memoryview(data)) == want


def far(tmp_path):
    """Indexes a shard in which the members of a sample are far apart."""
    shard = str(tmp_path / "s.tar")
    with open(shard, "wb") as file:
        file.write(b"A" * 10 + bytes(200_000) + b"C" * 3)
    members = [[("jpg", 0, 10), ("cls", 200_010, 3)], [("x", 200_012, 1)]]
    write_index(
        tmp_path / "idx", str(tmp_path), [shard] * 2, [0, 200_012], [13, 1], [2, 2], members
    )
    return Index(tmp_path / "idx"), {"a.jpg": b"A" * 10, "a.cls": b"CCC", "b.x": b"C"}


def test_a_file_has_one_member(tmp_path):
    for name in ("1.JPG", "2.seg.png", "3"):
        (tmp_path / name).write_bytes(b"x")
    write_index(
        tmp_path / "idx", str(tmp_path),
        [str(tmp_path / name) for name in ("1.JPG", "2.seg.png", "3")],
    )
    index = Index(tmp_path / "idx")
    assert [list(index.split(i, index.read(i)).items()) for i in range(3)] == [
        [("jpg", b"x")], [("png", b"x")], [("", b"x")],
    ]  # fmt: skip


@pytest.mark.parametrize("size", [0, 5, 10_001])
def test_a_record_is_checked(tmp_path, size):
    data = bytes(i * i % 251 for i in range(size))
    shard = tmp_path / "r.tfrecord"
    content = bytes(12) + data + struct.pack("<I", checksums.masked_crc32c(data))
    shard.write_bytes(content)
    write_index(tmp_path / "idx", str(tmp_path), [str(shard)], [12], [size], [3])
    index = Index(tmp_path / "idx")
    assert index.read(0) == data
    assert index.split(0, data) == {"tfrecord": data}
    for place in {12, 12 + size // 2, 12 + size, len(content) - 1}:
        damaged = bytearray(content)
        damaged[place] ^= 16
        shard.write_bytes(damaged)
        os.utime(shard, ns=(0, index.mtimes[0]))
        with pytest.raises(
            SampleError, match="a damaged record: the checksum of its data is wrong"
        ):
            index.read(0)


def test_crc32c():
    """Known values of RFC 3720, B.4."""
    assert [checksums.crc32c(d) for d in (bytes(32), bytes(range(32)), b"")] == [
        0x8A9136AA, 0x46DD794E, 0,
    ]


def golden_sums():
    lines = (WIRE / "xxh3.txt").read_text().splitlines()
    return [(int(n), int(sum, 16)) for n, sum in (line.split() for line in lines if line[0] != "#")]


@pytest.fixture(params=["package", "library"])
def xxh3(request, monkeypatch):
    """XXH3 of the package, if it is there, and of the system's library."""
    if request.param == "library":
        monkeypatch.setitem(sys.modules, "xxhash", None)
    return checksums.find_xxh3()


def test_xxh3(xxh3):
    """The same hashes as the ranks' own library, for every length that the algorithm treats
    separately."""
    for n, sum in golden_sums():
        assert xxh3(bytes((31 * i * i + i) % 251 for i in range(n))) == sum, n


def test_an_index_whose_checksums_nobody_can_check_is_refused(monkeypatch):
    monkeypatch.setitem(sys.modules, "xxhash", None)
    monkeypatch.setattr(checksums.ctypes, "CDLL", lambda name: object())
    with pytest.raises(RankpoolError, match="neither .* nor libxxhash is there .*: pip install"):
        Index(WIRE / "index_golden.bin")


def test_a_file_with_other_bytes_of_the_same_size_and_time_is_an_error(tmp_path, xxh3):
    """Nobody but the trainer reads: the cache is gone."""
    size, sum = golden_sums()[-2]
    path = tmp_path / "a"
    path.write_bytes(bytes((31 * i * i + i) % 251 for i in range(size)))
    write_index(tmp_path / "idx", str(tmp_path), [str(path)])
    index = Index(tmp_path / "idx")
    index._sums, index._xxh3 = [sum], xxh3
    data = bytearray(index.read(0))
    data[size // 2] ^= 1
    path.write_bytes(data)
    os.utime(path, ns=(0, index.mtimes[0]))
    with pytest.raises(
        SampleError, match="other bytes than when it was indexed: their checksum is wrong"
    ):
        index.read(0)
    index._sums = [0]  # not known
    assert index.read(0) == data
