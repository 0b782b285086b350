"""Time the links of a cluster with one group of Ray Train workers."""

from dataclasses import asdict, dataclass
from pathlib import Path

import torch
from ray.train.torch import get_device

from equipoise.planning.exchanges.link_report import LinkReport
from equipoise.type_aliases import JsonObject
from jobs.cluster.wait import wait_for_slots
from jobs.ray_train.trainer import build_trainer, fit_in_thread
from jobs.timing.sum_bench import measure_links


@dataclass(frozen=True, kw_only=True)
class LinkWorkerConfig:
    """What the workers that time links measure, and how many of them there are."""

    workers: int
    sizes: list[int]
    """sizes of the tensors in bytes"""
    seconds: float
    """time for all measurements"""
    threads: int = 1
    """CPUs of a worker"""


def time_links(config: LinkWorkerConfig, folder: Path, gpu: bool) -> LinkReport:
    """Start workers that time links, and return their report; Ray keeps its own files in `folder`."""
    wait_for_slots(config.workers, config.threads, gpu)
    trainer = build_trainer(run_link_worker, asdict(config), config, folder, gpu=gpu)
    trainer.work, trainer.failure_hint = "timing sums", "give smaller --sizes if memory ran out, or try again"
    report: LinkReport = fit_in_thread(trainer)
    return report


def run_link_worker(loop_config: JsonObject) -> LinkReport:
    """Time sums and messages in a worker of Ray Train, and return the report."""
    config = LinkWorkerConfig(**loop_config)
    torch.set_num_threads(config.threads)
    return measure_links(config.sizes, config.seconds, get_device())
