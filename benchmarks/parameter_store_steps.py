"""Steps of our training loop between simulated hosts, timed and weighed; `tests.network.gloo_hosts` runs it on each."""

from pathlib import Path
from typing import Any

import torch.distributed as dist

from benchmarks.training_case import LR, MOMENTUM, SEED
from equipoise.config import TrainConfig
from equipoise.training.loop import Training

SENT_BYTES_FILE = Path("/sys/class/net/eth0/statistics/tx_bytes")


def measure_steps(workload: str, batch: int, steps: int, options: dict[str, Any]) -> dict[str, float]:
    """Return the seconds of a step and the bytes that this host sends in one, over a lap that follows another one.

    The second lap ends with an evaluation, whose sum over workers is counted and not timed.
    """
    workers = dist.get_world_size()
    lap_examples = steps * batch * workers
    config = TrainConfig(
        workload=workload,
        workers=workers,
        batch_size=batch,
        lr=LR,
        momentum=MOMENTUM,
        seed=SEED,
        warmup=0,
        augment=False,
        target=2.0,
        max_examples=2 * lap_examples,
        eval_every=lap_examples,
        noise_scale_every=0,
        **options,
    )
    laps = Training(config).laps()
    next(laps)
    dist.barrier()
    before = read_sent_bytes()
    lap = next(laps)
    dist.barrier()
    sent = read_sent_bytes() - before
    assert lap.steps == steps, f"the lap has {lap.steps} steps instead of {steps}"
    return {"seconds": lap.seconds / steps, "sent_bytes": sent / steps, "said_bytes": float(lap.sent_bytes or 0)}


def read_sent_bytes() -> int:
    """Return the bytes that this host has sent so far."""
    return int(SENT_BYTES_FILE.read_text())
