"""torchrun, which Debian 12 lacks: its PyTorch 1.13 does not know how Python 3.11 lists the members of a flag."""

from torch.distributed.elastic.multiprocessing import Std
from torch.distributed.run import main

Std.from_str = staticmethod(lambda text: Std(int(text)))
main()
