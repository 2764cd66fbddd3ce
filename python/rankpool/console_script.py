"""The programs `rankpool` and `rankpool-lab`, which the wheel of `make wheel` contains."""

import os
import sys


def main(name: str = "rankpool") -> None:
    """Replaces this process with a program."""
    # Within `rankpool run`, a copy of this package without programs comes first on the path.
    for folder in sys.path:
        path = os.path.join(folder, "rankpool", "bin", name)
        if os.path.isfile(path):
            os.execv(path, [path, *sys.argv[1:]])
    sys.exit(
        f"{name}: {os.path.dirname(__file__)}/bin/{name} does not exist: install the wheel "
        "of `make wheel`, not the sources"
    )


def lab() -> None:
    main("rankpool-lab")
