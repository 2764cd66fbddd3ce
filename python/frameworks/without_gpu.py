"""Runs on CPUs a script that needs GPUs: without_gpu.py SCRIPT ARGUMENT… NCCL becomes Gloo, and a
GPU the CPU."""

import argparse
import os
import runpy
import sys

import torch
import torch.distributed as dist


def main():
    group, tensor = dist.init_process_group, torch.tensor

    def with_gloo(backend=None, **options):
        return group("gloo", **options)

    def on_the_cpu(data, device=None, **options):
        return tensor(data, **options)

    class Parallel(torch.nn.parallel.DistributedDataParallel):
        def __init__(self, module, device_ids=None):
            super().__init__(module)

    # torchvision's script saves its arguments
    torch.serialization.add_safe_globals([argparse.Namespace])
    torch.cuda.set_device = lambda device: None
    torch.tensor, torch.distributed.init_process_group = on_the_cpu, with_gloo
    torch.nn.parallel.DistributedDataParallel = Parallel
    sys.argv = sys.argv[1:]
    sys.path[0] = os.path.dirname(os.path.abspath(sys.argv[0]))
    runpy.run_path(sys.argv[0], run_name="__main__")


if __name__ == "__main__":
    main()
