"""A stage of a small pipeline, as a process of its own: `pipeline_lab.py RANK MEETING [FOLDER]`.

It takes ten steps and prints its losses, how its page stood at the end, and whether torch was left as it was.
"""

from __future__ import annotations

import json
import sys
from contextlib import ExitStack
from typing import Any

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import nn
from torch.distributed.pipelining import PipelineStage, Schedule1F1B, ScheduleGPipe, schedules
from torch.distributed.pipelining.schedules import PipelineScheduleSingle

import headwater as hw

NUM_STEPS = 10
NUM_MICRO_BATCHES = 4


def main(rank: int, meeting: str, order: str, folder: str | None = None) -> None:
    torch.set_num_threads(1)
    dist.init_process_group("gloo", init_method=f"file://{meeting}", rank=rank, world_size=2)
    torch.manual_seed(rank)
    layers = nn.Sequential(nn.Linear(32, 32), nn.ReLU(), nn.Linear(32, 32))
    stage = PipelineStage(layers, rank, 2, torch.device("cpu"))
    kind = Schedule1F1B if order == "1f1b" else ScheduleGPipe
    schedule = kind(stage, NUM_MICRO_BATCHES, loss_fn=F.mse_loss)
    optimizer = torch.optim.SGD(layers.parameters(), lr=0.1)
    plain = schedules._wait_batch_p2p
    state = None
    with ExitStack() as stack:
        lends = folder is not None
        lending = stack.enter_context(hw.lend_bubbles(schedule, folder or "", memory_bytes=1000)) if lends else None
        losses = take_steps(schedule, optimizer, rank)
        if lending is not None:
            state = lending.state
    is_restored = schedules._wait_batch_p2p is plain and "step" not in vars(schedule)
    found: dict[str, Any] = {"losses": [float(loss.item()).hex() for loss in losses], "is_restored": is_restored}
    if state is not None:
        found |= {"steps": state.num_steps, "stalls": state.num_stalls, "share": state.share}
    sys.stdout.write(json.dumps(found))
    dist.destroy_process_group()


def take_steps(schedule: PipelineScheduleSingle, optimizer: torch.optim.Optimizer, rank: int) -> list[torch.Tensor]:
    """Return the losses of all micro-batches, where the last stage is."""
    data = torch.Generator().manual_seed(0)
    losses: list[torch.Tensor] = []
    for _ in range(NUM_STEPS):
        x, y = torch.randn(2, 64, 32, generator=data)
        of_step: list[torch.Tensor] = []
        optimizer.zero_grad()
        if rank == 0:
            schedule.step(x)
        else:
            schedule.step(target=y, losses=of_step)
        optimizer.step()
        losses += of_step
    return losses


if __name__ == "__main__":
    main(int(sys.argv[1]), *sys.argv[2:])
