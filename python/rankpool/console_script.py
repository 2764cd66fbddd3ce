"""The programs `rankpool` and `rankpool-lab`, which the wheel of `make wheel` contains."""

import os
import sys


def main() -> None:
    """Replaces this process with the program of the name that it was started by."""
    name = os.path.basename(sys.argv[0])
    # Within `rankpool run`, a copy of this package without programs comes first on the path.
    for folder in sys.path:
        path = os.path.join(folder, "rankpool", "bin", name)
        if os.path.isfile(path):
            os.execv(path, [path, *sys.argv[1:]])
    sys.exit(
        f"{name}: {os.path.dirname(__file__)}/bin/{name} does not exist: install the wheel "
        "of `make wheel`, not the sources"
    )
