"""torchrun, which Debian breaks twice.

PyTorch 1.13 of Debian 12 does not handle how Python 3.11 lists the members of a flag. PyTorch 2.6
of Debian 13 is built without libuv, but torchrun's stores, and those that trainers share with it,
ask for it whatever USE_LIBUV says.
"""

import os
from functools import partialmethod

import torch
from torch.distributed import TCPStore
from torch.distributed.elastic.multiprocessing import Std
from torch.distributed.run import main

if not torch.__version__.startswith("1."):
    TCPStore.__init__ = partialmethod(TCPStore.__init__, use_libuv=False)
    os.environ["TORCH_DISABLE_SHARE_RDZV_TCP_STORE"] = "1"
Std.from_str = staticmethod(lambda text: Std(int(text)))
main()
