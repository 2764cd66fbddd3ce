import faulthandler
import gc
import os
import warnings

import pytest

import rankpool
from fakedoor import Data, Door
from rankpool import batch_sampler, connection, waiting

DEADLINE_SECONDS = 300  # a test that hangs ends the run, which prints all stacks
stderr = pytest.StashKey[int]()  # the real one, also while pytest captures output


def pytest_configure(config):
    with config.pluginmanager.getplugin("capturemanager").global_and_fixture_disabled():
        config.stash[stderr] = os.dup(2)


@pytest.fixture(autouse=True)
def deadline(pytestconfig):
    faulthandler.dump_traceback_later(DEADLINE_SECONDS, exit=True, file=pytestconfig.stash[stderr])
    yield
    faulthandler.cancel_dump_traceback_later()


def pytest_collection_finish():
    gc.freeze()  # what is imported: the fixture below looks at the rest


@pytest.fixture(autouse=True)
def garbage():
    """Is collected between tests only. An error of a worker leaves torch's iterator in a cycle, and
    its __del__ waits 5 s for each worker: a thread of the door that does so answers nobody."""
    gc.disable()
    yield
    gc.collect()
    gc.enable()


@pytest.fixture
def door(tmp_path, monkeypatch):
    """A door with data sets "train" (20 samples) and "test" (7 samples)."""
    train = Data(str(tmp_path), "train")
    test = Data(str(tmp_path), "test", samples=7, size=lambda i: 50 + i)
    path = str(tmp_path / "door.sock")
    for name in ("RANKPOOL_SESSION", "RANK", "WORLD_SIZE", "SLURM_NODEID"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("RANKPOOL_SOCKET", path)
    monkeypatch.setenv("PYTHONPATH", os.path.dirname(os.path.dirname(rankpool.__file__)))
    monkeypatch.setattr(connection, "RETRY_SECONDS", 0.0)
    monkeypatch.setattr(waiting, "PAUSE_SECONDS", 0.001)
    # tests count requests
    monkeypatch.setattr(connection.Connection, "_watch", lambda link: None)
    served = Door(path, [train, test])
    yield served
    served.goes.set()
    monkeypatch.setattr(connection, "CLOSE_SECONDS", 0.0)
    connection._close_all()
    served.kill()
    assert served.faults == []


@pytest.fixture(autouse=True)
def strict_warnings():
    with warnings.catch_warnings():
        warnings.simplefilter("error", UserWarning)
        warnings.filterwarnings("ignore", message="The given (buffer|NumPy array) is not writable")
        # NumPy 2, of a file that Python 2 wrote
        warnings.filterwarnings("ignore", message="Reading `.npy` or `.npz` file required")
        # on a machine with few cores
        warnings.filterwarnings("ignore", message="This DataLoader will create")
        yield
