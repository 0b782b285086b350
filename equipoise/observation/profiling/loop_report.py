"""Report of the profile of an observed loop, from what each worker has measured."""

import statistics
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from equipoise.config import TrainConfig
from equipoise.hardware_facts import HardwareFacts
from equipoise.observation.profiling.loop_marks import EXCHANGE_PART, PART_AFTER_BACKWARD
from equipoise.observation.profiling.loop_profiler import BLOCK_STEPS, WorkerProfile
from equipoise.profiling.advice import add_advice
from equipoise.profiling.profile_report import (
    LayerWork,
    MachineLimits,
    MeasuredSteps,
    ProfileReport,
    Proposal,
    ShortTimings,
    StepParts,
    TimelineSpan,
)
from equipoise.profiling.profile_steps import select_timeline
from equipoise.profiling.sync_points import summarize_calls

TRACED_PARTS = ("hidden_exchange", "exchange_under_data")


@dataclass(frozen=True)
class ProfileRow:
    """What the first worker needs of each to build the report."""

    plain_seconds: list[float]
    marked_seconds: list[float]
    parts: StepParts
    sync_calls: list[list[object]]
    timeline: list[tuple[str, float, float]]
    traced_seconds: float
    traced_steps: int


def build_profile_row(measured: WorkerProfile) -> ProfileRow:
    """Build a worker's row."""
    trace = measured.trace
    return ProfileRow(
        measured.plain_seconds,
        measured.marked_seconds,
        build_step_parts(measured),
        measured.sync_calls,
        select_timeline(trace.summary) if trace else [],
        trace.seconds if trace else statistics.median(measured.marked_seconds),
        measured.traced_steps,
    )


def build_step_parts(measured: WorkerProfile) -> StepParts:
    """Split the seconds of a step on one worker into parts that add up to it."""
    steps = BLOCK_STEPS * len(measured.marked_seconds)
    sync = {part: seconds / steps for part, seconds in measured.sync_seconds.items()}
    names = {"data": "data", "forward": "forward", "backward": "backward", "optimizer": "optimizer"}
    names |= {"exchange": EXCHANGE_PART}
    parts = {name: max(0.0, measured.mean_span(part) - sync.get(part, 0.0)) for name, part in names.items()}
    # what follows a backward pass has its name only later: it is a part of the optimizer, or of data
    late = sync.get(PART_AFTER_BACKWARD, 0.0)
    of_optimizer = min(late, parts["optimizer"])
    parts["optimizer"] -= of_optimizer
    parts["data"] = max(0.0, parts["data"] - (late - of_optimizer))
    seconds, summary = statistics.fmean(measured.marked_seconds), measured.trace.summary if measured.trace else None
    return StepParts(
        seconds=seconds,
        sync=sum(sync.values()),
        other=max(0.0, seconds - sum(parts.values()) - sum(sync.values())),
        hidden_exchange=summary.hidden_exchange if summary else 0.0,
        exchange_under_data=summary.exchange_under_data if summary else 0.0,
        **parts,
    )


def scale_parts(parts: StepParts, scale: float) -> StepParts:
    """Return the parts of a step that takes `scale` times as long; what is known from traced steps stays."""
    return StepParts(
        **{name: seconds if name in TRACED_PARTS else scale * seconds for name, seconds in vars(parts).items()}
    )


def build_loop_report(
    rows: Sequence[ProfileRow],
    own: WorkerProfile,
    limits: MachineLimits | None,
    config: TrainConfig,
    machine: HardwareFacts,
    nodes: int,
) -> ProfileReport:
    """Build the report from the rows of all workers, with the layers and limits of the first one."""
    plain = [max(turn) for turn in zip(*(row.plain_seconds for row in rows), strict=True)]
    marked = [max(turn) for turn in zip(*(row.marked_seconds for row in rows), strict=True)]
    scale = statistics.median(plain) / statistics.fmean(marked)  # marks take time, and blocks differ in pace
    parts = tuple(scale_parts(row.parts, scale) for row in rows)
    steps = MeasuredSteps(
        seconds=statistics.median(plain),
        pace_sd=float(np.std(np.log(plain), ddof=1)),
        marked_seconds=statistics.median(marked),
        traced_seconds=max(row.traced_seconds for row in rows),
        traced_steps=min(row.traced_steps for row in rows),
        parts=parts,
    )
    report = ProfileReport(
        config=config,
        machine=machine,
        nodes=nodes,
        steps=steps,
        layers=tuple(add_layer_seconds(own, parts[0])),
        limits=limits,
        sync_points=summarize_calls([row.sync_calls for row in rows], BLOCK_STEPS * len(marked)),
        timings=ShortTimings(),
        timeline=tuple(
            TimelineSpan(worker=worker, part=part, start=start, seconds=seconds)
            for worker, row in enumerate(rows)
            for part, start, seconds in row.timeline
        ),
    )
    advised = add_advice(report)
    return replace(advised, proposals=tuple(describe_for_loop(proposal) for proposal in advised.proposals))


def add_layer_seconds(own: WorkerProfile, parts: StepParts) -> list[LayerWork]:
    """Return the layers with their seconds in a step, scaled from traced steps, which take longer, to others."""
    summary = own.trace.summary if own.trace else None
    if summary is None or not summary.forward_seconds or not summary.pass_seconds:
        return own.layers
    scale = (parts.forward + parts.backward) / summary.pass_seconds
    return [
        replace(
            layer,
            forward_seconds=scale * summary.forward_seconds.get(layer.name, 0.0),
            backward_seconds=scale * summary.backward_seconds.get(layer.name, 0.0),
        )
        for layer in own.layers
    ]


def describe_for_loop(proposal: Proposal) -> Proposal:
    """Return a proposal with what to change in a loop of one's own, which has no options of ours."""
    options = proposal.options
    if "grad_accumulation" in options:
        return replace(proposal, action=f"step after {options['grad_accumulation']} backward passes", options={})
    if "workers" in options:
        return replace(proposal, action=f"train on {options['workers']} of the workers", options={})
    return proposal
