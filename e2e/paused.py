"""Runs a training script and pauses it after the given global batches: paused.py N,N,… SCRIPT
ARGUMENT…

Once batch N of the run is in the digest, training waits for a file "go-N", or for a signal that the
script handles. So a test can disturb a training at the batch it wants, however fast either runs.
"""

import os
import runpy
import select
import signal
import sys

STEP_SECONDS = 0.005  # between two checks for the file


def main():
    at, script = {int(word) for word in sys.argv[1].split(",")}, sys.argv[2]
    sys.argv = sys.argv[2:]
    sys.path[0] = os.path.dirname(os.path.abspath(script))
    sys.path.append(
        os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "python", "examples")
    )
    import digest  # the first trainer's Digest adds up what all have trained on

    pause, add, added = Pause(), digest.Digest.add, 0

    def add_and_pause(self, *batch):
        nonlocal added
        add(self, *batch)
        added += 1
        if added in at:
            pause.until_told(f"go-{added}")

    digest.Digest.add = add_and_pause
    runpy.run_path(script, run_name="__main__")


class Pause:
    """Listens for signals from the start: one that comes before the pause ends it too. SIGCHLD, for
    which torch has a handler, only says that a loader's worker has ended."""

    def __init__(self):
        self._heard, told = os.pipe()
        os.set_blocking(self._heard, False)
        os.set_blocking(told, False)
        signal.set_wakeup_fd(told, warn_on_full_buffer=False)
        self._over = False

    def until_told(self, file):
        while not self._over and not os.path.exists(file):
            if select.select([self._heard], [], [], STEP_SECONDS)[0]:
                numbers = os.read(self._heard, 4096)
                self._over = any(number != signal.SIGCHLD for number in numbers)


if __name__ == "__main__":
    main()
