"""The batch scripts of README.md and docs/jobs.md run as they are, except for the size of the job,
the machine's modules, and the training."""

import re

import run
from dataset import EPOCHS, GLOBAL_BATCH
from run import ROOT


def script_of(document, words=""):
    """Returns the one batch script of a document that contains some words."""
    scripts = re.findall(
        r"^```bash\n(#!/bin/bash\n.*?)^```", (ROOT / document).read_text(), re.MULTILINE | re.DOTALL
    )
    (script,) = (script for script in scripts if words in script)
    return script


def replaced(script, pattern, by):
    """Returns script with the one match of pattern replaced."""
    new, times = re.subn(pattern, lambda _: by, script, flags=re.MULTILINE)
    assert times == 1, (
        f"the batch script has {times} of {pattern!r}, which this test replaces:\n{script}"
    )
    return new


def test_batch_script(submit, words, same_stream, tree):
    _, train = words(4, torch=True)
    script = replaced(script_of("README.md"), r"--ntasks-per-node=\d+", "--ntasks-per-node=1")
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


def test_sweep(submit, tree):
    """Four trainings with their own seeds share one cache; each draws what it would draw alone."""
    args = ["--epochs", EPOCHS, "--batch-size", GLOBAL_BATCH]
    train = run.training(["--epochs", EPOCHS, "--sampler", "torch", "--seed", "$seed"])
    train[train.index("--digest-log") + 1] = "digest-$seed"
    script = script_of("docs/jobs.md", "rankpool join")
    script = replaced(script, r"--cpus-per-task=\d+", "--cpus-per-task=1 --mem=3500M")
    script = replaced(script, r"--data \S+", f"--data {tree}")
    script = replaced(script, r"--memory \S+", "--memory 20%")
    script = replaced(script, r"--log \S+", "--log run.jsonl")
    script = replaced(script, r"python train\.py --seed \$seed", " ".join(map(str, train)))
    job = submit(script)
    result = job.finish()
    assert result.code == 0, result.stderr
    for seed in range(4):
        output = job.text(f"seed-{seed}.out")
        digest = run.plain(tree, *args, "--seed", seed)
        assert f"digest {digest}\n" in output, f"seed {seed}: {output}\n{result.stderr}"
    epochs = [(e["job"], e["epoch"]) for e in result.events if e["event"] == "job"]
    assert sorted(epochs) == [(f"seed-{s}", e) for s in range(4) for e in range(EPOCHS)]
