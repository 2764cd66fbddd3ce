"""The program `rankpool`, which the wheel of `make wheel` contains."""

import os
import sys

PATH = os.path.join(os.path.dirname(os.path.abspath(__file__)), "bin", "rankpool")


def main() -> None:
    """Replaces this process with the program."""
    try:
        os.execv(PATH, [PATH, *sys.argv[1:]])
    except FileNotFoundError:
        sys.exit(
            f"rankpool: there is no program at {PATH}: install the wheel of `make wheel`, not the "
            "sources"
        )
