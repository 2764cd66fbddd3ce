"""A small data set for tests: files in class folders, and the sample index of them."""

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


def write_index(path, root, files, offsets=None, sizes=None):
    """Writes the index of files (in order of ids) as docs/wire/README.md says."""
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

    column("Q", sizes or [s.st_size for s in stats])
    column("q", [s.st_mtime_ns for s in stats])
    column("I", [folders.index(os.path.dirname(r)) for r in relative])
    column("I", [folders.index(os.path.dirname(r)) for r in relative])
    column("I", ends)
    if offsets:
        column("Q", offsets)
    folders_at = 64 + len(body)
    body += b"".join(struct.pack("<I", len(f)) + f for f in folders)
    names_at = 64 + len(body)
    body += names
    root_at = 64 + len(body)
    header = struct.pack(
        "<8sQIIQQQQQ", b"rpindex1", len(files), 1 if offsets else 0, len(folders),
        folders_at, names_at, len(names), root_at, len(root),
    )  # fmt: skip
    with open(path, "wb") as file:
        file.write(header + body + root)
