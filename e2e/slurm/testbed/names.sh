# Names of everything that a testbed makes, from its number in RANKPOOL_TESTBED (0 to 99, default
# 0). Sourced by up.sh and down.sh.
id=${RANKPOOL_TESTBED:-0}
nodes=${RANKPOOL_TESTBED_NODES:-4}
case $id in
[0-9] | [1-9][0-9]) ;;
*) echo "RANKPOOL_TESTBED is \"$id\", and must be a number from 0 to 99" >&2; exit 2 ;;
esac
run=/tmp/rankpool-testbed-$(id -u)-$id # its path is short: sockets lie in it
port=$((16800 + 20 * id))              # slurmctld's; those of the slurmd follow
subnet=10.76.$id                       # of the nodes, in namespaces
bridge=rpbed$id                        # nodes' links and namespaces are rpbed0-1, rpbed0-2, …
export SLURM_CONF="$run/slurm.conf"
PATH=$PATH:/usr/sbin:/sbin
