#!/bin/bash
# GPU workers as a job array, one GPU for each array task: `sbatch --array=0-7 ops/slurm/worker.sh`. See README.md in this folder.
#SBATCH --job-name=shardsift-worker
#SBATCH --nodes=1
#SBATCH --ntasks=1
#SBATCH --gpus-per-node=1
#SBATCH --cpus-per-task=8
#SBATCH --mem=32G
#SBATCH --time=04:00:00
#SBATCH --output=shardsift-%A_%a.log
#SBATCH --open-mode=append
# Back into the queue when the node fails or the job is preempted.
#SBATCH --requeue
# One minute before the time limit. Without B:, the signal goes to the step that srun starts, and not to this shell.
#SBATCH --signal=TERM@60

set -euo pipefail

# REDIS_URL, REDIS_PASSWORD_FILE, HF_TOKEN_PATH, … in a file that only you can read. Not in this script, which Slurm stores.
set -a
# shellcheck source=/dev/null
. "${SHARDSIFT_ENV:-$HOME/.config/shardsift/worker.env}"
set +a
export SHARDSIFT_DEVICE=cuda
PATH="${SHARDSIFT_VENV:-$HOME/shardsift/.venv}/bin:$PATH"

# Slurm sets CUDA_VISIBLE_DEVICES, so `worker start` uses the GPUs of this job: with --gpus-per-node=8 it runs eight workers.
note=$(mktemp -d)
srun --cpus-per-task="$SLURM_CPUS_PER_TASK" worker start --exit-when-idle 10m --on-idle "touch '$note/idle'"

# The worker was told to stop because of the time limit, and work is left: the job goes back into the queue. After `scancel` this
# shell is gone, and after an error `set -e` has ended it: then the job stays out.
if [ ! -e "$note/idle" ]; then
  scontrol requeue "$SLURM_JOB_ID"
fi
