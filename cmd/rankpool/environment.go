package main

// aboutEnvironment is a section of rankpool(1).
const aboutEnvironment = `

# ENVIRONMENT

Variables that rankpool reads, and that "run" sets for the training command where it says so:

**RANKPOOL_SESSION**
:   The session folder of the cache on this node, where "top" and the client find the
    ranks. Set by "run".

**RANKPOOL_SOCKET**
:   The door (socket) of this trainer's rank. Set by "run"; the Python client prefers it to
    RANKPOOL_SESSION.

**RANKPOOL_JOB**
:   The name of a training, where several share a cache. Set by "join --job" and "run --trainings".

**RANKPOOL_TRAINING**
:   The number of a training, from 0 on. Set by "run --trainings".

**RANKPOOL_TRAININGS**
:   How many trainings there are. Set by "run --trainings".

**RANKPOOL_PYTHON**
:   "no" leaves PYTHONPATH unchanged; otherwise "run" prepends its own version of the Python client.

**RANKPOOL_MPI_LIBRARY**
:   The MPI library: a path, or a name that the loader looks up. Set by "run" for its ranks.

**RANKPOOL_OPTIONS**
:   The options of a rank. Set by "run" for its ranks.

**RANKPOOL_BATCH_TIMEOUT**
:   Seconds that the Python client waits for a batch from the cache before it reads storage
    (default 30).

**RANKPOOL_PLAN_TIMEOUT**
:   Seconds that the Python client waits for the plan of an epoch while the cache is down
    (default 600).

**MASTER_ADDR**, **MASTER_PORT**
:   Kept if set; otherwise set by "run", as are **RANK**, **WORLD_SIZE**, **LOCAL_RANK**,
    **LOCAL_WORLD_SIZE** and **OMP_NUM_THREADS**.

**SLURM_***
:   The job, its nodes, tasks, memory, GPUs and end, as Slurm describes them.

**XDG_CACHE_HOME**
:   Where manifests of folders scanned earlier are cached (default ~/.cache).
`
