"""Runs a training script and writes what its loaders fetch: watch.py LOG SCRIPT ARGUMENT…

A line `FOLDER ID` for each sample, FOLDER the last part of its data set's root, goes to LOG.RANK.
Scripts run with one worker at most, so that the lines are in the order of the draws.
"""

import os
import runpy
import sys

from torch.utils.data import Subset
from torch.utils.data._utils.fetch import _MapDatasetFetcher


def main():
    log = open(f"{sys.argv[1]}.{os.environ.get('RANK', 0)}", "a")
    fetch = _MapDatasetFetcher.fetch

    def watched(self, batch):
        data, ids = self.dataset, [int(id) for id in batch]
        while isinstance(data, Subset):
            data, ids = data.dataset, [data.indices[id] for id in ids]
        log.writelines(f"{os.path.basename(data.root)} {id}\n" for id in ids)
        log.flush()
        return fetch(self, batch)

    _MapDatasetFetcher.fetch = watched
    sys.argv = sys.argv[2:]
    sys.path[0] = os.path.dirname(os.path.abspath(sys.argv[0]))
    runpy.run_path(sys.argv[0], run_name="__main__")


if __name__ == "__main__":
    main()
