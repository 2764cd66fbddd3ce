"""The programs `rankpool` and `rankpool-lab`, which the wheel of `make wheel` contains."""

import os
import sys

FOLDER = os.path.join(os.path.dirname(os.path.abspath(__file__)), "bin")


def main(name: str = "rankpool") -> None:
    """Replaces this process with a program."""
    path = os.path.join(FOLDER, name)
    try:
        os.execv(path, [path, *sys.argv[1:]])
    except FileNotFoundError:
        sys.exit(
            f"{name}: there is no program at {path}: install the wheel of `make wheel`, not the "
            "sources"
        )


def lab() -> None:
    main("rankpool-lab")
