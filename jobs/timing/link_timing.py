"""Time the links of a cluster with one group of Ray Train workers."""

from collections.abc import Sequence
from pathlib import Path

import torch
from ray.train.torch import get_device

from equipoise.config import TrainConfig
from equipoise.planning.exchanges.link_report import LinkReport
from equipoise.type_aliases import JsonObject
from jobs.cluster.wait import wait_for_slots
from jobs.ray_train.trainer import build_trainer, fit_in_thread
from jobs.timing.sum_bench import measure_links


def time_links(workers: int, sizes: Sequence[int], seconds: float, folder: Path, gpu: bool) -> LinkReport:
    """Start workers that time sums of these sizes for about `seconds`; Ray keeps its own files in `folder`."""
    config = TrainConfig(workers=workers)
    wait_for_slots(workers, config.threads, gpu)
    loop_config = {"sizes": list(sizes), "seconds": seconds}
    report: LinkReport = fit_in_thread(build_trainer(run_link_worker, loop_config, config, folder, gpu=gpu))
    return report


def run_link_worker(loop_config: JsonObject) -> LinkReport:
    """Time sums and messages in a worker of Ray Train, and return the report."""
    torch.set_num_threads(1)
    return measure_links(loop_config["sizes"], loop_config["seconds"], get_device())
