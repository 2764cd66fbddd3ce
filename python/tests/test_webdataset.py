"""WebDataset over tar shards, with and without a cache."""

import gzip
import io
import os
import shutil
import subprocess
import sys
import tarfile

import pytest
import torch
from torch.utils.data import DataLoader

import rankpool
from dataset_tree import write_index
from rankpool import tarfiles

SAMPLES = 20
GET = 4


@pytest.fixture(autouse=True)
def no_cache(monkeypatch):
    """No cache, unless the fixture door provides one."""
    monkeypatch.setattr("rankpool.messages._said", bytearray(1 << 16))
    for name in ("RANKPOOL_SOCKET", "RANKPOOL_SESSION", "RANK", "WORLD_SIZE", "SLURM_JOB_ID"):
        monkeypatch.delenv(name, raising=False)


def write_shard(path, samples):
    with tarfile.open(path, "w") as archive:
        for name, content in samples:
            member = tarfile.TarInfo(name)
            member.size = len(content)
            archive.addfile(member, io.BytesIO(content))


@pytest.fixture
def shards(tmp_path):
    """A folder of two shards with 20 samples: bin, cls and seg.txt."""
    folder = tmp_path / "shards"
    folder.mkdir()
    for shard in range(2):
        members = []
        for i in range(shard * 10, shard * 10 + 10):
            key = f"deep/{i:04}"
            members += [
                (f"{key}.BIN", bytes([i]) * (i + 1)), (f"{key}.cls", b"%d" % (i % 3)),
                (f"{key}.seg.txt", b"s%d" % i),
            ]
        write_shard(folder / f"a-{shard}.tar", [("__info__", b"x"), *members, ("README", b"none")])
    return str(folder)


class Tars:
    """The shards as the fake door serves them."""

    def __init__(self, root, with_cls=True):
        self.name, self.root, self.index = "tars", root, root + ".idx"
        paths = tarfiles.expand(root)
        self.files, members, self.bytes, self.labels = [], [], [], []
        for path in paths:
            for sample in tarfiles.scan(path):
                content = open(path, "rb").read()
                parts = {kind: content[offset : offset + size] for kind, offset, size in sample}
                self.labels.append(int(parts["cls"]))
                kept = [member for member in sample if with_cls or member[0] != "cls"]
                members.append(kept)
                self.files.append(path)
                self.bytes.append(b"".join(parts[kind] for kind, _, _ in kept))
        offsets = [places[0][1] for places in members]
        rest = offsets, [len(b) for b in self.bytes], [2] * len(members), members, self.labels
        self.identity, self.times = write_index(
            self.index, root, self.files, *rest, [b"x", b"y", b"z"]
        )


def noisy(content):
    return torch.tensor([len(content), content[0], torch.randint(1 << 20, ())])


def text_of(member):
    return member.decode()


def pipeline(urls):
    data = rankpool.WebDataset(urls).map_dict(**{"cls": int, "seg.txt": text_of})
    return data.to_tuple("bin cls", "seg.txt").map_tuple(noisy, None, len)


def rows_of(data, workers, method=None):
    sampler, rows = rankpool.DistributedSampler(data, 1, 0, seed=3), []
    loader = DataLoader(
        data, 4, sampler=sampler, num_workers=workers, multiprocessing_context=method
    )
    for epoch in range(2):
        sampler.set_epoch(epoch)
        for noise, classes, lengths in loader:
            rows += zip(noise.tolist(), classes.tolist(), lengths.tolist())
    return rows


def test_samples_are_those_of_the_members(shards):
    data = rankpool.WebDataset(shards)
    assert len(data) == SAMPLES
    assert data[3] == {"bin": bytes([3]) * 4, "cls": b"0", "seg.txt": b"s3"}
    assert data[-1] == data[19]
    assert data.to_tuple("jpg;bin", "cls")[2] == (b"\2\2\2", b"2")
    assert data.map_dict(cls=int).map(lambda sample: sample["cls"])[4] == 1
    with pytest.raises(IndexError, match="no sample 20 among 20"):
        data[20]
    with pytest.raises(KeyError, match="none of .*jpg"):
        data.to_tuple("jpg")[0]


def test_decode_is_the_packages(shards, monkeypatch):
    """Where the package is missing, one sentence says what to install."""
    monkeypatch.setitem(sys.modules, "webdataset", None)
    with pytest.raises(ImportError, match="webdataset"):
        rankpool.WebDataset(shards).decode("pil")


def test_patterns(shards, tmp_path):
    both = [os.path.join(shards, f"a-{n}.tar") for n in (0, 1)]
    for urls in (
        shards, shards + "/a-{0..1}.tar", shards + "/a-{1,0}.tar", both[::-1], "::".join(both),
    ):
        assert tarfiles.expand(urls) == both
    (
        (tmp_path / "b-08.tar").touch(), (tmp_path / "b-09.tar").touch(),
        (tmp_path / "b-10.tar").touch(),
    )
    assert len(tarfiles.expand(str(tmp_path / "b-{08..10}.tar"))) == 3
    ordered = ["z.tar", "a/0.tar", "a/x/0.tar", "a-b/0.tar"]  # by class, then by folder
    for name in (*ordered, ".trash/old.tar"):
        (tmp_path / "tree" / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / "tree" / name).touch()
    (tmp_path / "tree" / "self").symlink_to(".")  # linked folders are left out
    assert tarfiles.expand(tmp_path / "tree") == [str(tmp_path / "tree" / name) for name in ordered]
    for wrong, error in (
        ("pipe:cat x", ValueError),
        ("http://x/a.tar", ValueError),
        ("{a", ValueError),
        ("none.tar", OSError),
    ):
        with pytest.raises(error):
            tarfiles.expand(wrong)


@pytest.mark.parametrize("pattern", [
    "a-{000..003}", "{1..3}{a,b}", "x{08..10}", "{a,b}/{0..1}.tar", "{1..01}", "{2..0}", "a.tar",
])  # fmt: skip
def test_braces_are_expanded_as_in_a_shell(pattern):
    words = subprocess.run(["bash", "-c", "echo " + pattern], capture_output=True, text=True)
    assert tarfiles.braces(pattern) == words.stdout.split()


@pytest.mark.parametrize(
    "pattern", ["{a,b{1,2}}", "{c..e}", "{0..10..3}", "{{1..3},x}", "{a", "{b}"]
)
def test_other_braces_are_refused(pattern):
    with pytest.raises(ValueError, match="has other braces than those of .*: give a list of paths"):
        tarfiles.braces(pattern)


@pytest.mark.parametrize("path, key, kind", [
    ("a/b.c/1.JPG", "a/b.c/1", "jpg"), ("1.seg.png", "1", "seg.png"), ("1.", "1", ""),
    ("README", "", ""), (".hidden.jpg", "", ""), ("a/.hidden.jpg", "a/", "hidden.jpg"),
    ("./.hidden.jpg", "", ""), ("__a.b__", "", ""), ("__a__/1.jpg", "", ""),
    ("__a/1.jpg", "__a/1", "jpg"),
])  # fmt: skip
def test_names_of_members(path, key, kind):
    """As WebDataset's base_plus_ext and tar_file_iterator, which python/frameworks compares."""
    assert tarfiles.split_name(path) == (key, kind)


def test_neighbours_are_a_sample(tmp_path):
    write_shard(tmp_path / "a.tar", [("1.a", b"x"), ("2.a", b"y"), ("1.b", b"z")])
    data = rankpool.WebDataset(tmp_path)
    assert [data[i] for i in range(3)] == [{"a": b"x"}, {"a": b"y"}, {"b": b"z"}]


@pytest.mark.parametrize("wrong, said", [
    ("two members", "two members 'a' of the sample '1'"), ("within", "cannot be read"),
    ("after a member", "no end mark at byte 2560"), ("gzip", "if it is compressed, unpack it"),
])  # fmt: skip
def test_damaged_shards(tmp_path, wrong, said):
    path = tmp_path / "a.tar"
    write_shard(path, [("1.a", b"x" * 2000), ("1.A" if wrong == "two members" else "1.b", b"y")])
    if wrong == "gzip":
        path.write_bytes(gzip.compress(path.read_bytes()))
    elif wrong != "two members":
        os.truncate(path, 1024 if wrong == "within" else 2560)
    with pytest.raises(ValueError, match=f"the shard {path} .*{said}"):
        rankpool.WebDataset(tmp_path)


@pytest.mark.parametrize(
    "workers, method", [(0, None), (2, "fork"), (1, "spawn"), (1, "forkserver")]
)
@pytest.mark.parametrize("with_cls", [True, False])
def test_tensors_are_the_same_with_the_cache(door, shards, tmp_path, workers, method, with_cls):
    """A pack's manifest does not count the cls that rankpool pack has added to the shards."""
    door.data.append(Tars(shards, with_cls))
    if not with_cls:
        open(os.path.join(shards, "rankpool.parquet"), "w").close()
    expected = rows_of(pipeline(shutil.copytree(shards, tmp_path / "elsewhere")), 0)
    assert len({noise[2] for noise, _, _ in expected}) == 2 * SAMPLES
    assert rows_of(pipeline(shards), workers, method) == expected
    assert sorted(get[2] for get in door.seen(GET)) == sorted(2 * list(range(5)))


def test_only_a_pack_lacks_what_its_shards_have(door, shards):
    door.data.append(Tars(shards, with_cls=False))
    assert set(rankpool.WebDataset(shards)[3]) == {"bin", "seg.txt"}


def test_shards_that_the_cache_does_not_serve_alone_are_read_from_storage(door, shards, capfd):
    door.data.append(Tars(shards))
    data = rankpool.WebDataset([os.path.join(shards, "a-1.tar")])
    assert (len(data), data[0]["cls"]) == (10, b"1")
    assert (
        "is read from storage: the cache serves 2 shards there, and the script names 1"
        in capfd.readouterr().err
    )


def test_importance(door, shards):
    door.data.append(Tars(shards))
    data = pipeline(shards)
    sampler = rankpool.ImportanceSampler(data, "pads")
    for noise, _, _ in DataLoader(data, 4, sampler=sampler):
        sampler.update(noise[:, 0].float())
    assert sampler.state_dict()["batch"] == 0  # of the next epoch
