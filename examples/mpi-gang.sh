#!/bin/sh
# Runs a program of Open MPI as the tasks of a gang, each with the CPU share, the memory limit and the sandbox of its own task:
#
#     weal submit --done-by 1h --tasks 4 --input mpi-gang.sh -- sh mpi-gang.sh ./solve
#
# mpirun would start its helper on each host by ssh. Here the hosts are the tasks, and the helper is started by the task itself: the first
# task runs mpirun and leaves the command in the folder that all tasks share, where the task of that name finds it.
set -eu

# mpirun calls this with a host and a command, and waits until the command has ended.
if [ "$1" = --on ]; then
    host=$2
    shift 2
    echo "$*" >".mpi-$host.new"
    mv ".mpi-$host.new" ".mpi-$host"
    until [ -e ".mpi-$host.ended" ]; do sleep 0.1; done
    exit "$(cat ".mpi-$host.ended")"
fi

cd "$DATA"
own=task-$WEAL_TASK-$ATTEMPT
if [ "$WEAL_TASK" -gt 0 ]; then
    until [ -e ".mpi-$own" ]; do
        if [ -e ".mpi-end.$ATTEMPT" ]; then exit 0; fi
        sleep 0.1
    done
    status=0
    sh -c "$(cat ".mpi-$own")" || status=$?
    echo "$status" >".mpi-$own.ended"
    exit "$status"
fi

i=0
while [ "$i" -lt "$WEAL_TASKS" ]; do
    if [ "$i" = 0 ]; then echo "localhost slots=1"; else echo "task-$i-$ATTEMPT slots=1"; fi
    i=$((i + 1))
done >".mpi-hosts.$ATTEMPT"
# All tasks are on this machine, and each has a /tmp of its own: so they speak by TCP over the loopback, not by shared memory.
status=0
mpirun --hostfile ".mpi-hosts.$ATTEMPT" -n "$WEAL_TASKS" --map-by node --leave-session-attached \
    --mca plm_rsh_agent "sh $DATA/mpi-gang.sh --on" --mca plm_rsh_no_tree_spawn 1 \
    --mca btl self,tcp --mca btl_tcp_if_include lo --mca oob_tcp_if_include lo "$@" || status=$?
touch ".mpi-end.$ATTEMPT"
exit "$status"
