"""Writes a folder of files of one size in a peer's own format: convert.py {mds,litdata} SOURCE
DESTINATION SHARD_BYTES."""

import sys
from pathlib import Path

def to_mds(paths, into, shard_bytes):
    from streaming import MDSWriter

    with MDSWriter(out=into, columns={"data": "bytes"}, size_limit=shard_bytes) as writer:
        for path in paths:
            writer.write({"data": Path(path).read_bytes()})


def content(path):
    return Path(path).read_bytes()


def to_litdata(paths, into, shard_bytes):
    import litdata

    litdata.optimize(
        content,
        paths,
        into,
        chunk_bytes=shard_bytes,
        num_workers=1,
        start_method="fork",
        verbose=False,
    )


def main():
    kind, source, into, shard_bytes = sys.argv[1:]
    paths = sorted(str(path) for path in Path(source).glob("*/*.bin"))
    {"mds": to_mds, "litdata": to_litdata}[kind](paths, into, int(shard_bytes))


if __name__ == "__main__":
    main()
