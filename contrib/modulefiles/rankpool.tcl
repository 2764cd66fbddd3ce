#%Module
# Environment Modules: rankpool/0.1.0. The prefix is that of "make install"; users load an MPI of their choice beside it.
set version [file tail [module-info name]]
set prefix /opt/rankpool/$version

proc ModulesHelp { } {
    puts stderr "rankpool feeds deep-learning training from the memory of all nodes of a job."
    puts stderr "See \"rankpool --help\", \"man rankpool-run\", and \"rankpool sbatch --help\" for a batch script."
}
module-whatis "rankpool $version: a cache in the memory of all nodes, staged ahead of use, for PyTorch training under Slurm"

# man finds share/man beside bin.
prepend-path PATH $prefix/bin
prepend-path PYTHONPATH $prefix/share/rankpool/python
