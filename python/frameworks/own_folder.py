"""Runs a script with a working folder for each process, named after its rank: own_folder.py SCRIPT
ARGUMENT… For scripts whose processes all write checkpoints under the same names."""

import os
import runpy
import sys


def main():
    os.makedirs(os.environ["RANK"], exist_ok=True)
    os.chdir(os.environ["RANK"])
    sys.argv = sys.argv[1:]
    sys.path[0] = os.path.dirname(os.path.abspath(sys.argv[0]))
    runpy.run_path(sys.argv[0], run_name="__main__")


if __name__ == "__main__":
    main()
