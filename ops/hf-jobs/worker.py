# /// script
# requires-python = ">=3.11"
# dependencies = []
# ///
"""All GPU workers of one Hugging Face Job. See README.md in this folder.

    hf jobs uv run --flavor l4x1 --timeout 12h --secrets HF_TOKEN --secrets REDIS_URL \
      --with 'shardsift[worker] @ git+https://git.example.com/shardsift.git' ops/hf-jobs/worker.py

Further arguments are options of `worker start`. The job ends, and costs nothing more, after ten minutes without work.
"""

import os
import sys

os.environ.setdefault("SHARDSIFT_DEVICE", "cuda")
command = [sys.executable, "-P", "-m", "shardsift", "worker", "start", "--exit-when-idle", "10m", *sys.argv[1:]]
os.execv(command[0], command)  # the worker takes the place of this process, and so gets the signals of the job
