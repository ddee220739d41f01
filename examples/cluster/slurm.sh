#!/bin/bash
# One training over 4 machines with 2 ranks each: sbatch examples/cluster/slurm.sh
# The folder of the run and the data are on a file system that all machines see.
#SBATCH --job-name=tarn
#SBATCH --nodes=4
#SBATCH --ntasks-per-node=1
#SBATCH --cpus-per-task=32
#SBATCH --time=24:00:00
#SBATCH --signal=INT@120
set -euo pipefail

head=$(scontrol show hostnames "$SLURM_JOB_NODELIST" | head -n 1)
export GLOO_SOCKET_IFNAME=${GLOO_SOCKET_IFNAME:-eth0}

# A rank that dies is started again, with all others, from the last checkpoint.
srun torchrun \
  --nnodes "$SLURM_NNODES" --nproc-per-node 2 --max-restarts 3 \
  --rdzv-backend c10d --rdzv-endpoint "$head:29500" --rdzv-id "$SLURM_JOB_ID" \
  -m tarn.train \
  --data "${DATA:?want DATA, a text}" --out "${OUT:?want OUT, a folder}" \
  --preset small --batch 64 --shard-optimizer --resume
