"""Profile training steps with one group of Ray Train workers."""

from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path

import ray.train
import torch
from ray.train.torch import get_device

from equipoise.config import TrainConfig
from equipoise.parallel.node_groups import gather_nodes
from equipoise.profiling.advice import MIN_GAIN, add_advice
from equipoise.profiling.profile_report import TRACE_FILE, ProfileReport
from equipoise.profiling.profile_steps import profile_steps
from equipoise.profiling.proposal_trials import try_proposals
from equipoise.profiling.step_turns import choose_block_steps, time_median
from equipoise.profiling.stepped_training import SteppedTraining, gather_objects
from equipoise.storage.atomic import atomic_write
from equipoise.storage.object_store import parse_location
from equipoise.type_aliases import JsonObject
from equipoise.workloads import Workload, load_workload
from jobs.cluster.wait import wait_for_slots
from jobs.ray_train.trainer import build_trainer, fit_in_thread
from jobs.timing.message_bench import time_levels
from jobs.timing.process_groups import ShrinkingProcessGroup

LINKS_SECONDS = 0.5  # for messages between pairs of workers


@dataclass(frozen=True, kw_only=True)
class ProfileWorkerConfig:
    """What the workers of a profile measure."""

    trial: TrainConfig
    out: str
    """folder or URL for the trace"""
    steps: int
    """steps of the trace"""
    considered: Sequence[str]
    """names of the proposals that need timings of their own"""
    tries: bool
    """whether proposals are tried"""

    @classmethod
    def from_dict(cls, loop_config: JsonObject) -> "ProfileWorkerConfig":
        """Build the configuration from the dictionary that Ray Train passes on."""
        return cls(**loop_config | {"trial": TrainConfig(**loop_config["trial"])})


def profile_on_cluster(config: ProfileWorkerConfig, folder: Path, gpu: bool) -> ProfileReport:
    """Start workers that profile their steps, and return the report; Ray keeps its own files in `folder`."""
    trial = config.trial
    wait_for_slots(trial.workers, trial.threads, gpu)
    trainer = build_trainer(run_profile_worker, asdict(config), trial, folder, gpu=gpu)
    trainer.work, trainer.failure_hint = "profiling", "give a smaller --batch-size if memory ran out, or try again"
    report: ProfileReport = fit_in_thread(trainer)
    return report


def run_profile_worker(loop_config: JsonObject) -> ProfileReport:
    """Profile steps in a worker of Ray Train, write the trace of the first one, and return the report."""
    config = ProfileWorkerConfig.from_dict(loop_config)
    trial, device = config.trial, get_device()
    torch.set_num_threads(trial.threads)
    workload = load_workload(trial)
    group = ShrinkingProcessGroup(device) if trial.workers > 1 else None
    nodes = max(int(str(rank)) for rank in gather_objects(ray.train.get_context().get_node_rank())) + 1
    result = profile_steps(trial, workload, device, config.steps, tuple(config.considered), nodes)
    if result.stepped.training.rank == 0:
        with atomic_write(parse_location(config.out) / TRACE_FILE) as temporary:
            temporary.write_bytes(result.trace)
    links = time_levels(gather_nodes(device), LINKS_SECONDS, device) if group else ()
    report = add_advice(replace(result.report, links=links), max_batch=len(workload.train))
    if not config.tries:
        return report
    report = try_proposals(report, result.stepped, workload, device)
    return try_fewer_workers(report, result.stepped, workload, group) if group else report


def try_fewer_workers(
    report: ProfileReport, stepped: SteppedTraining, workload: Workload, group: ShrinkingProcessGroup
) -> ProfileReport:
    """Return the report with the measured gain of one worker fewer, if that is predicted to gain enough."""
    proposal = next((entry for entry in report.proposals if "workers" in entry.options), None)
    if proposal is None or proposal.gain.value < MIN_GAIN:
        return report
    before = time_median(stepped, choose_block_steps(stepped))
    left = report.config.workers - 1
    tried = proposal
    if group.shrink(left):
        device = stepped.training.device
        fewer = SteppedTraining(replace(report.config, workers=left), workload, device)
        after = time_median(fewer, choose_block_steps(fewer))
        tried = replace(proposal, tried_gain=before / after * left / report.config.workers)
    if group.rank == 0:
        group.end()
    elif group.rank >= left:
        group.wait_for_end()
    proposals = tuple(tried if entry is proposal else entry for entry in report.proposals)
    return replace(report, proposals=proposals)
