"""The wheel of `make wheel`, installed by pip; neither compiler nor MPI is in the PATH."""

import os
import platform
import struct
import subprocess
import sys
import zipfile

import pytest
import run
from dataset import SAMPLES
from run import EXAMPLES, ROOT

pytestmark = pytest.mark.xdist_group("wheel")


@pytest.fixture(scope="module")
def installed(tmp_path_factory):
    """The folder of programs of a virtual environment that has rankpool and the system's
    PyTorch."""
    subprocess.run(["make", "wheel", f"PYTHON={sys.executable}"], cwd=ROOT, check=True)
    (wheel,) = (ROOT / "build").glob(f"rankpool-*-linux_{platform.machine()}.whl")
    folder = tmp_path_factory.mktemp("wheel") / "venv"
    subprocess.run([sys.executable, "-m", "venv", "--system-site-packages", folder], check=True)
    pip = [folder / "bin" / "pip", "install", "-q", "--no-index", "--no-deps", wheel]
    subprocess.run(pip, env={"PATH": f"{folder}/bin"}, check=True)
    return folder / "bin"


@pytest.mark.full
def test_pip_is_all_that_it_takes(installed, tree, tmp_path, monkeypatch):
    monkeypatch.setenv("PATH", str(installed))
    monkeypatch.delenv("PYTHONPATH", raising=False)
    command = ["rankpool", "run", "--data", tree, "--log", "run.jsonl", "--tune", "progress=0"]
    train = f"rankpool version && exec python {EXAMPLES / 'train.py'} --epochs 2 --sampler torch"
    one = run.Run(tmp_path, [*command, "--", "/bin/sh", "-c", train])
    result = one.finish()
    assert result.code == 0, result.stderr
    assert result.summary["draws"] == 2 * SAMPLES
    assert "epoch 1 accuracy" in result.stdout
    assert one.argv[0] == "rankpool"


@pytest.mark.full
@pytest.mark.parametrize(
    "goarch, machine, number", [("amd64", "x86_64", 62), ("arm64", "aarch64", 183)]
)
def test_wheels_have_the_program_of_their_machine(goarch, machine, number):
    make = ["make", "wheel", f"PYTHON={sys.executable}", f"GOARCH={goarch}"]
    subprocess.run(make, cwd=ROOT, check=True)
    (wheel,) = (ROOT / "build").glob(f"rankpool-*-linux_{machine}.whl")
    for name in "rankpool", "rankpool-lab":
        program = zipfile.ZipFile(wheel).read(f"rankpool/bin/{name}")
        assert program[:4] == b"\x7fELF"
        assert struct.unpack_from("<H", program, 18) == (number,)  # e_machine


@pytest.mark.full
def test_the_client_of_the_wheel_is_importable_alone(installed):
    where = [installed / "python", "-c", "import rankpool; print(rankpool.__file__)"]
    found = subprocess.run(
        where, env={"PATH": str(installed)}, capture_output=True, text=True, check=True
    ).stdout
    assert found.startswith(str(installed.parent))


@pytest.mark.full
def test_sources_without_the_program_say_so(tmp_path):
    env = {**os.environ, "PYTHONPATH": str(ROOT / "python")}
    begin = "import sys; from rankpool.console_script import main; sys.argv[0] = 'rankpool'; main()"
    command = [sys.executable, "-c", begin]
    done = subprocess.run(command, env=env, capture_output=True, text=True)
    assert done.returncode == 1
    assert "does not exist: install the wheel" in done.stderr and "make wheel" in done.stderr
