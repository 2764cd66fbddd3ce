"""The Spack package of rankpool: packages/rankpool/package.py in a package repository (Spack 1.0
and later)."""

import os

from spack_repo.builtin.build_systems.makefile import MakefilePackage

from spack.package import *


class Rankpool(MakefilePackage):
    """A cache in the memory of all nodes of a job, staged ahead of use, that feeds PyTorch training
    on supercomputers."""

    # There is no address to download from yet: "make dist VERSION=0.1.0" writes
    # build/rankpool-0.1.0.tar.gz, and Spack looks for the file in the current folder.
    manual_download = True

    # It depends on no MPI: it loads that of the user's environment when it runs.

    version("0.1.0")  # add sha256="…" of your file, or install with --no-checksum

    depends_on("go@1.26:", type="build")
    depends_on("gmake", type="build")
    depends_on("python@3.9:", type="run")

    def url_for_version(self, version):
        return f"file://{os.getcwd()}/rankpool-{version}.tar.gz"

    def setup_build_environment(self, env):
        env.set("GOCACHE", join_path(self.stage.path, "go-cache"))  # not in the home of who builds

    build_targets = ["build"]

    @property
    def install_targets(self):
        return ["install", f"PREFIX={self.prefix}"]

    def setup_run_environment(self, env):
        env.prepend_path("PYTHONPATH", join_path(self.prefix, "share", "rankpool", "python"))
