#!/bin/bash
# Writes slurm.conf, gres.conf, mpi.conf and the nodes' /etc/hosts into the testbed's folder. Called
# by up.sh. Usage: config.sh namespaces|shared
set -eu
. "$(dirname "$0")/names.sh"
mode=$1 host=$(hostname) user=$(id -un) control=127.0.0.1
[ "$mode" = shared ] || control=$subnet.254
{
	cat <<CONF
ClusterName=rankpool$id
SlurmctldHost=$host($control)
SlurmUser=$user
SlurmdUser=$user
SlurmctldPort=$port
# Two testbeds may share /dev/shm, where sessions are called by the job's number.
FirstJobId=$((10000 * id + 1))
# A requeued job is held as long as its old credential is valid.
AuthType=auth/munge
AuthInfo=socket=$run/munge/socket,cred_expire=10
CredType=cred/munge
StateSaveLocation=$run/state
SlurmdSpoolDir=$run/spool/%n
# PMIx makes a folder by the step's name below TmpFS: all virtual nodes have the same /tmp.
TmpFS=$run/tmp/%n
SlurmctldPidFile=$run/slurmctld.pid
SlurmdPidFile=$run/slurmd.%n.pid
SlurmctldLogFile=$run/log/slurmctld
SlurmdLogFile=$run/log/%n
# Neither cgroups nor systemd nor CAP_SYS_RESOURCE is needed.
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
JobAcctGatherType=jobacct_gather/none
PropagateResourceLimits=NONE
SwitchType=switch/none
MpiDefault=none
ReturnToService=2
SlurmctldTimeout=30
SlurmdTimeout=20
InactiveLimit=0
KillWait=25
MinJobAge=600
JobRequeue=1
# salloc without a command gives a shell on the first node, in a step of its own.
LaunchParameters=use_interactive_step
SchedulerType=sched/backfill
SchedulerParameters=batch_sched_delay=0,sched_interval=2,sched_min_interval=0,bf_interval=2
SelectType=select/cons_tres
SelectTypeParameters=CR_Core_Memory
DefMemPerCPU=900
GresTypes=gpu
# A node claims more CPUs than the machine has.
SlurmdParameters=config_overrides
# A job of "urgent" takes the nodes of those of "debug", which are told by their --signal, else by
# SIGTERM.
PreemptType=preempt/partition_prio
PreemptMode=REQUEUE
SlurmctldParameters=preempt_send_user_signal
CONF
	for i in $(seq "$nodes"); do
		if [ "$mode" = shared ]; then
			at="NodeHostname=$host NodeAddr=127.0.0.1 Port=$((port + i))"
		else
			at="NodeHostname=node$i NodeAddr=$subnet.$i Port=$((port + 1))"
		fi
		echo "NodeName=node$i $at CPUs=4 Sockets=1 CoresPerSocket=4 ThreadsPerCore=1" \
			"RealMemory=4000 Gres=gpu:4 State=UNKNOWN"
	done
	echo "PartitionName=debug Nodes=ALL Default=YES MaxTime=30 State=UP PriorityTier=1" \
		"PreemptMode=REQUEUE GraceTime=60"
	echo "PartitionName=urgent Nodes=ALL MaxTime=30 State=UP PriorityTier=10 PreemptMode=OFF"
} >"$run/slurm.conf"
# Character devices that every machine has stand for the GPUs, so that CUDA_VISIBLE_DEVICES is set.
for device in null zero full random; do
	echo "NodeName=node[1-$nodes] Name=gpu File=/dev/$device"
done >"$run/gres.conf"
# By default MPI_Init of Open MPI dies in 4 of 1,000 starts: see cacheStepEnv in cmd/rankpool.
# Users' own srun get it from here.
echo "PMIxCollFence=ring" >"$run/mpi.conf"
{
	echo "127.0.0.1 localhost"
	echo "$control $host"
	for i in $(seq "$nodes"); do
		echo "$subnet.$i node$i"
	done
} >"$run/hosts"
