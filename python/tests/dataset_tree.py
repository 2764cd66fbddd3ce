"""A small data set for tests: files in class folders, and their sample index."""

import hashlib
import os
import struct


def make_tree(root, samples=20, classes=2, size=lambda i: 100 + i):
    """Writes sample i as bytes of value i into the folder of its class; returns the files by id."""
    files = []
    for label in range(classes):
        folder = os.path.join(root, f"c{label}")
        os.makedirs(folder, exist_ok=True)
        for i in range(label * samples // classes, (label + 1) * samples // classes):
            path = os.path.join(folder, f"s{i:03}")
            with open(path, "wb") as file:
                file.write(bytes([i % 251]) * size(i))
            files.append(path)
    return files


def write_index(
    path, root, files, offsets=None, sizes=None, formats=None, members=None, labels=None,
    classes=None, flags=0,
):
    """Writes the index of files (in order of ids) as docs/wire/README.md says, and returns its
    identity and times.

    formats apply to samples that have offsets; members has a list of (kind, offset, size) for each
    sample. The digests are not rankpool's, but clients only compare them. labels are the folders'
    numbers, and classes their names, unless given; flags are further flags.
    """
    root, names, ends = os.fsencode(root), b"", []
    relative = [os.fsencode(os.path.relpath(f, os.fsdecode(root))) for f in files]
    folders = sorted({os.path.dirname(r) for r in relative})
    for r in relative:
        names += os.path.basename(r)
        ends.append(len(names))
    stats = [os.stat(f) for f in files]
    body = b""

    def column(code, values):
        nonlocal body
        body += struct.pack(f"<{len(values)}{code}", *values)
        body += bytes(-len(body) % 8)

    def narrow(code, values, base=0, unit=1):
        nonlocal body
        body += struct.pack("<qQII", base, unit, struct.calcsize(code), 0)
        column(code, [(value - base) // unit for value in values])

    times = [s.st_mtime_ns for s in stats]
    narrow("I", sizes or [s.st_size for s in stats])
    narrow("Q", times, base=min(times))
    in_folder = [folders.index(os.path.dirname(r)) for r in relative]
    narrow("H", labels or in_folder)
    narrow("B", in_folder)
    column("I", ends)
    if offsets:
        narrow("I", offsets)
        column("B", formats or [1] * len(files))
    kinds = []
    if members:
        rows = [member for sample in members for member in sample]
        kinds = sorted({kind for kind, _, _ in rows})
        column("I", [sum(map(len, members[: i + 1])) for i in range(len(files))])
        narrow("Q", [offset for _, offset, _ in rows])
        narrow("Q", [size for _, _, size in rows])
        narrow("B", [kinds.index(kind) for kind, _, _ in rows])
    folders_at = 128 + len(body)
    body += b"".join(struct.pack("<I", len(f)) + f for f in folders)
    if members:
        body += struct.pack("<I", len(kinds)) + b"".join(
            struct.pack("<I", len(k)) + k.encode() for k in kinds
        )
    names_at = 128 + len(body)
    body += names
    root_at = 128 + len(body)
    classes = classes or [os.fsencode(f) for f in folders]
    identity = hashlib.md5(
        repr((relative, [s.st_size for s in stats], offsets, sizes, members)).encode()
    ).digest()
    times = hashlib.md5(repr(times).encode()).digest()
    header = struct.pack(
        "<8sQIIQQQQQQQ16s16x16s", b"rpindex4", len(files),
        bool(offsets) + 12 * bool(members) + flags, len(folders),
        folders_at, names_at, len(names), root_at, len(root), root_at + len(root), len(classes),
        identity, times,
    )  # fmt: skip
    texts = b"".join(struct.pack("<I", len(c)) + c for c in classes)
    with open(path, "wb") as file:
        file.write(header + body + root + texts)
    return identity.hex(), times.hex()
