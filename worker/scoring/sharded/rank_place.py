"""Where a rank is in its group: its number, its device, and how it meets the others."""

import os
import sys
from dataclasses import dataclass
from datetime import timedelta

import torch

# Longer than any load: ranks read files at different speeds. The watchdog of a worker ends a rank that hangs much earlier.
_TIMEOUT = timedelta(hours=2)


@dataclass(frozen=True, kw_only=True)
class RankPlace:
    rank: int
    ranks: int
    meeting_file: str  # a file that does not exist yet, in a folder that only this user can read
    device_type: str
    threads: int  # of this rank, on a CPU

    @property
    def device(self) -> torch.device:
        return torch.device("cuda", self.rank) if self.device_type == "cuda" else torch.device(self.device_type)

    def join(self) -> None:
        """Meet the other ranks. Gloo and NCCL connect the processes; gloo is kept from listening to other machines."""
        is_cuda = self.device_type == "cuda"
        if is_cuda:
            torch.cuda.set_device(self.device)
        else:
            torch.set_num_threads(self.threads)
            if sys.platform == "linux":
                os.environ.setdefault("GLOO_SOCKET_IFNAME", "lo")
        torch.distributed.init_process_group(
            "nccl" if is_cuda else "gloo",
            init_method=f"file://{self.meeting_file}",
            rank=self.rank,
            world_size=self.ranks,
            device_id=self.device if is_cuda else None,
            timeout=_TIMEOUT,
        )
