-- Lmod: rankpool/0.1.0.lua. The prefix is that of "make install"; users load an MPI of their choice beside it.
local prefix = pathJoin("/opt/rankpool", myModuleVersion())

help([[rankpool feeds deep-learning training from the memory of all nodes of a job.
See "rankpool --help", "man rankpool-run", and "rankpool sbatch --help" for a batch script.]])
whatis("Name: rankpool")
whatis("Version: " .. myModuleVersion())
whatis("Category: deep learning, I/O")
whatis("Description: a cache in the memory of all nodes, staged ahead of use, for PyTorch training under Slurm")

prepend_path("PATH", pathJoin(prefix, "bin")) -- man finds share/man beside it
prepend_path("PYTHONPATH", pathJoin(prefix, "share/rankpool/python"))
