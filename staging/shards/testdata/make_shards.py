"""Writes random shards into the folder argv[1], and prints as JSON what Python finds in them.

They are read back with tarfile and grouped as WebDataset groups them.
"""

import io
import json
import os
import random
import re
import sys
import tarfile

random = random.Random(7)
folder = sys.argv[1]
found = {}


def data(size):
    return bytes(random.randrange(256) for _ in range(min(size, 64))) * (size // 64 + 1)


def key():
    letters = ["a", "B", "1", "_", "-", "é", "\udcff", " "]
    parts = ["".join(random.choices(letters, k=random.choice([1, 3, 8, 60]))) for _ in range(random.randint(1, 4))]
    dots = random.choice(["", ".v1"])  # dots of folders belong to the key
    return (dots + "/").join(parts)


def write_tar(name, form):
    with tarfile.open(os.path.join(folder, name), "w", format=form, encoding="utf-8", errors="surrogateescape") as tar:
        for _ in range(random.randint(0, 12)):
            base = key()
            for kind in random.sample(["jpg", "JSON", "cls", "seg.png", "txt", ""], random.randint(1, 4)):
                # Kind "" with the dot is a kind; without the dot the file is not a member of a sample.
                info = tarfile.TarInfo(base + random.choice([".", "."] if kind else [".", ""]) + kind)
                size = random.choice([0, 1, 5, 511, 512, 513, 9000, 30000])
                content = b"x%d" % random.randrange(100) if kind == "cls" else data(size)[:size]
                info.size = len(content)
                if form == tarfile.PAX_FORMAT and random.random() < 0.3:
                    info.mtime = 1.5  # brings about a pax header
                tar.addfile(info, io.BytesIO(content))
            if random.random() < 0.3:
                info = tarfile.TarInfo(key() + ".d")
                info.type = random.choice([tarfile.DIRTYPE, tarfile.SYMTYPE, tarfile.FIFOTYPE])
                info.linkname = "x.jpg" if info.type == tarfile.SYMTYPE else ""
                tar.addfile(info)


def read_tar(name):
    groups, last = [], None
    with tarfile.open(os.path.join(folder, name), encoding="utf-8", errors="surrogateescape") as tar:
        for info in tar:
            match = re.match(r"^((?:.*/|)[^.]+)[.]([^/]*)$", info.name)  # webdataset.tariterators.base_plus_ext
            if info.isreg() and match:
                if match.group(1) != last:  # webdataset.tariterators.group_by_keys
                    last = match.group(1)
                    groups.append([])
                groups[-1].append([match.group(2).lower(), info.offset_data, info.size])
    return groups


for number in range(40):
    form = [tarfile.USTAR_FORMAT, tarfile.GNU_FORMAT, tarfile.PAX_FORMAT][number % 3]
    name = f"{number}.tar"
    while True:
        try:
            write_tar(name, form)
        except (ValueError, UnicodeError):  # a name that ustar cannot hold
            continue
        groups = read_tar(name)
        if all(len({kind for kind, _, _ in group}) == len(group) for group in groups):
            break
    found[name] = groups

json.dump(found, sys.stdout)
