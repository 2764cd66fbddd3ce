"""The batch script of README.md runs as it stands there, but for the size of the job, the machine's
modules, and the training."""

import re

from run import ROOT


def replaced(script, pattern, by):
    """Returns script with the one match of pattern replaced."""
    new, times = re.subn(pattern, lambda _: by, script, flags=re.MULTILINE)
    assert times == 1, (
        f"README.md's batch script has {times} of {pattern!r}, which this test replaces:\n{script}"
    )
    return new


def test_batch_script(submit, words, same_stream, tree):
    (script,) = re.findall(
        r"^```bash\n(#!/bin/bash\n.*?)^```",
        (ROOT / "README.md").read_text(),
        re.MULTILINE | re.DOTALL,
    )
    _, train = words(4, torch=True)
    script = replaced(script, r"--ntasks-per-node=\d+", "--ntasks-per-node=1")
    script = replaced(script, r"--cpus-per-task=\d+", "--cpus-per-task=2")
    script = replaced(script, r"--mem=\S+", "--mem=3500M")
    script = replaced(script, r"--time=\S+", "--time=5")
    script = replaced(script, r"^module load .*$", ": no modules here")
    script = replaced(script, r"--data \S+", f"--data {tree}")
    script = replaced(script, r"--memory \S+", "--memory 20%")
    script = replaced(script, r"--log \S+", "--log run.jsonl")
    script = replaced(script, r"python (\S*/)?train\.py", train)
    result = same_stream(submit(script))
    assert result.stdout.splitlines()[0].startswith("epoch 0 accuracy")
