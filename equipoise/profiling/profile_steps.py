"""Measure the steps of a run: parts, trace, synchronisation points, work by layer, and the timings of predictions."""

import statistics
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np
import torch

from equipoise.config import TrainConfig
from equipoise.hardware import describe_hardware
from equipoise.profiling.advice import CHEAPER_PASSES
from equipoise.profiling.device_reads import DeviceReads
from equipoise.profiling.layer_work import count_layer_work
from equipoise.profiling.machine_limits import measure_machine_limits
from equipoise.profiling.memory.measure_step_memory import measure_step_memory
from equipoise.profiling.profile_report import (
    LayerWork,
    MeasuredSteps,
    PassRatio,
    ProfileReport,
    ShortTimings,
    StepParts,
    SyncPoint,
    TimelineSpan,
)
from equipoise.profiling.step_marks import StepMarks
from equipoise.profiling.step_trace import StepTrace, trace_steps
from equipoise.profiling.step_turns import PassesAlone, choose_block_steps, time_batches, time_pass_ratio, time_slowest
from equipoise.profiling.stepped_training import SteppedTraining, gather_objects, gather_rows
from equipoise.profiling.sync_points import SyncWatch, summarize_calls
from equipoise.profiling.trace_events import TraceSummary
from equipoise.training.comm_benchmark import time_all_reduces
from equipoise.workloads import Workload
from equipoise.workloads.batch import list_tensors

MEASURED_TURNS = 7  # of a block of steps without marks and one with them
SUMS_SECONDS = 1.0  # for sums of several sizes alone
MAX_TRACE_BYTES = 20_000_000
TIMELINE_STEPS, MAX_TIMELINE_SPANS = 2, 400  # drawn of each worker


class MeasuredBlocks(NamedTuple):
    """Blocks of steps without marks and with them, in turns."""

    plain_seconds: list[float]
    """seconds of a step of the slowest worker, by turn"""
    marked_seconds: list[float]
    own_spans: dict[str, float]
    """mean seconds of a plain step on this worker by span: shares of marked blocks, without the fastest and slowest"""
    plain_share: float
    """seconds of a plain step over those of a marked one"""
    sync_watch: SyncWatch
    steps: int
    """marked steps in all"""
    pass_seconds: float
    """seconds of both passes of a step alone, on the slowest worker"""


class ProfileResult(NamedTuple):
    """Report of a profile without advice, the trace of this worker, and the training that was profiled."""

    report: ProfileReport
    trace: bytes
    stepped: SteppedTraining


def profile_steps(
    config: TrainConfig, workload: Workload, device: torch.device, steps: int, considered: tuple[str, ...], nodes: int
) -> ProfileResult:
    """Measure the steps of a run, and trace so many of them. All workers call this and get the same report."""
    config = config.with_defaults(workload.defaults)
    memory = measure_step_memory(config, workload, device, nodes)  # before anything else takes some
    limits = measure_machine_limits(config.precision, device)
    stepped = SteppedTraining(config, workload, device)
    blocks = measure_blocks(stepped)
    trace = trace_within_limit(stepped, -(-steps // stepped.interval) * stepped.interval)
    layers = count_layer_work(config, workload, device)  # on all workers, as a loss may wait for the others
    own_report = ProfileReport(
        config=config,
        machine=describe_hardware(device),
        nodes=nodes,
        steps=summarize_blocks(blocks, trace.steps, trace.trace, device),
        # ranges of the launching thread say nothing about what a GPU does when
        layers=tuple(add_layer_seconds(layers, trace, blocks) if device.type == "cpu" else layers),
        limits=limits,
        sync_points=gather_sync_points(stepped, blocks),
        timings=take_short_timings(stepped, config, workload, considered, blocks.pass_seconds),
        timeline=gather_timeline(trace.trace),
        memory=memory,
    )
    first: Any = gather_objects(own_report)[0]  # its layers and limits for all of them, so that all try the same
    return ProfileResult(first, trace.trace.content, stepped)


def measure_blocks(stepped: SteppedTraining) -> MeasuredBlocks:
    """Take blocks of steps without marks and with them, and passes alone, in turns."""
    count, device = choose_block_steps(stepped), stepped.training.device
    marks = StepMarks(stepped.training)
    sync_watch = SyncWatch(lambda: marks.part)
    passes = PassesAlone(stepped)
    plain, marked, spans = [], [], []
    for _ in range(MEASURED_TURNS):
        plain.append(time_slowest(stepped, count))
        with marks.set_marks(), sync_watch.watch():
            spans.append(stepped.take_block(count))
        marked.append(max(row[0] for row in gather_rows([spans[-1]["lap"]], device)))
        passes.take_turn()
    usual = sorted(range(MEASURED_TURNS), key=lambda turn: marked[turn])[1:-1]
    scale = statistics.median(plain) / statistics.fmean(marked[turn] for turn in usual)
    names = set[str]().union(*spans)
    own = {name: scale * statistics.fmean(spans[turn].get(name, 0.0) for turn in usual) for name in names}
    return MeasuredBlocks(plain, marked, own, scale, sync_watch, MEASURED_TURNS * count, passes.find_slowest_seconds())


class SizedTrace(NamedTuple):
    """Trace of a worker, and how many steps it has."""

    trace: StepTrace
    steps: int


def trace_within_limit(stepped: SteppedTraining, steps: int) -> SizedTrace:
    """Trace so many steps, or as many as keep the traces of all workers below their limit."""
    trace = trace_steps(stepped, steps)
    largest = max(row[0] for row in gather_rows([float(len(trace.content))], stepped.training.device))
    if largest <= MAX_TRACE_BYTES or steps <= stepped.interval:
        return SizedTrace(trace, steps)
    intervals = int(0.8 * steps * MAX_TRACE_BYTES / largest / stepped.interval)
    return trace_within_limit(stepped, max(1, intervals) * stepped.interval)


def summarize_blocks(
    blocks: MeasuredBlocks, traced_steps: int, trace: StepTrace, device: torch.device
) -> MeasuredSteps:
    """Return the seconds of a step and of its parts on all workers."""
    own = split_step(blocks)
    names = [name for name in StepParts.__dataclass_fields__ if name in own]
    summary = trace.summary
    values = [*(own[name] for name in names), summary.hidden_exchange, summary.exchange_under_data, trace.seconds]
    rows = gather_rows(values, device)
    parts = [
        StepParts(**dict(zip(names, row, strict=False)), hidden_exchange=row[len(names)], exchange_under_data=row[-2])
        for row in rows
    ]
    return MeasuredSteps(
        seconds=statistics.median(blocks.plain_seconds),
        pace_sd=float(np.std(np.log(blocks.plain_seconds), ddof=1)),
        marked_seconds=statistics.median(blocks.marked_seconds),
        traced_seconds=max(row[-1] for row in rows),
        traced_steps=traced_steps,
        parts=tuple(parts),
    )


def split_step(blocks: MeasuredBlocks) -> dict[str, float]:
    """Split the seconds of a step on this worker into parts that add up to it."""
    spans = blocks.own_spans
    scale = blocks.plain_share / blocks.steps
    sync = {part: scale * seconds for part, seconds in blocks.sync_watch.seconds_by_part.items()}
    passes = {name: spans.get(name, 0.0) for name in ("forward", "backward")}
    exchange = spans.get("exchange", 0.0) + spans.get("encode", 0.0)
    compute, data = spans.get("compute", 0.0), spans.get("data", 0.0)
    return {
        "seconds": spans["lap"],
        "data": data,
        "exchange": exchange,
        "optimizer": max(0.0, compute - sum(passes.values())),
        "sync": sum(sync.values()),
        "other": max(0.0, spans["lap"] - data - compute - exchange - sync.get(None, 0.0)),
        **{name: max(0.0, seconds - sync.get(name, 0.0)) for name, seconds in passes.items()},
    }


def add_layer_seconds(layers: list[LayerWork], trace: SizedTrace, blocks: MeasuredBlocks) -> list[LayerWork]:
    """Return the layers with their seconds in a step, scaled from traced steps, which take longer, to others."""
    summary = trace.trace.summary
    if not summary.forward_seconds:
        return layers
    own = split_step(blocks)
    scale = (own["forward"] + own["backward"]) / summary.pass_seconds
    return [
        replace(
            layer,
            forward_seconds=scale * summary.forward_seconds.get(layer.name, 0.0),
            backward_seconds=scale * summary.backward_seconds.get(layer.name, 0.0),
        )
        for layer in layers
    ]


def gather_sync_points(stepped: SteppedTraining, blocks: MeasuredBlocks) -> tuple[SyncPoint, ...]:
    """Return the synchronisation points of all workers, on a GPU with those that wait for it."""
    calls: Any = gather_objects([[tuple(place), seconds] for place, seconds in blocks.sync_watch.calls])
    points = summarize_calls(calls, blocks.steps)
    if stepped.training.device.type != "cuda":
        return points
    watch, count = SyncWatch(), stepped.interval
    with DeviceReads(watch, "cuda"):
        stepped.take_block(count)
    reads: Any = gather_objects([[tuple(place), seconds] for place, seconds in watch.calls])
    return points + summarize_calls(reads, count)


def take_short_timings(
    stepped: SteppedTraining,
    config: TrainConfig,
    workload: Workload,
    considered: tuple[str, ...],
    pass_seconds: float,
) -> ShortTimings:
    """Take the timings that proposals are predicted from, as far as they are considered."""
    training = stepped.training
    gradient_bytes = sum(parameter.nbytes for parameter in training.trainable_parameters)
    has_sums = training.workers > 1 and "twice the link" in considered
    return ShortTimings(
        batch_seconds=time_batches(config, workload, training.device) if "double batch" in considered else {},
        pass_ratios={
            name: time_pass_option(stepped, config, workload, name)
            for name in CHEAPER_PASSES
            if name in considered and can_apply(name, config, workload)
        },
        sum_seconds=time_all_reduces(gradient_bytes, training.device, SUMS_SECONDS) if has_sums else {},
        pass_seconds=pass_seconds,
        gradient_bytes=gradient_bytes,
        is_read_ahead=not workload.train.is_in_memory,
    )


def can_apply(name: str, config: TrainConfig, workload: Workload) -> bool:
    """Return whether an option for cheaper passes is not on yet, and is for such inputs."""
    options, _ = CHEAPER_PASSES[name]
    is_on = all(getattr(config, option) == value for option, value in options.items())
    has_images = any(tensor.ndim == 4 for tensor in list_tensors(workload.train.read_examples([0])[0]))
    return not is_on and config.precision != "fp64" and (name != "channels_last" or has_images)


def time_pass_option(stepped: SteppedTraining, config: TrainConfig, workload: Workload, name: str) -> PassRatio:
    """Time both passes alone with an option over those without."""
    options: Any = CHEAPER_PASSES[name][0]
    return time_pass_ratio(stepped, SteppedTraining(replace(config, **options), workload, stepped.training.device))


def gather_timeline(trace: StepTrace) -> tuple[TimelineSpan, ...]:
    """Return the parts of the first traced steps of all workers."""
    rows: Any = gather_objects(select_timeline(trace.summary))
    return tuple(
        TimelineSpan(worker=worker, part=part, start=start, seconds=seconds)
        for worker, spans in enumerate(rows)
        for part, start, seconds in spans
    )


def select_timeline(summary: TraceSummary) -> list[tuple[str, float, float]]:
    """Return part, start and seconds of each span of the first traced steps of this worker."""
    starts = summary.step_starts
    begin = starts[0] if starts else 0.0
    end = starts[TIMELINE_STEPS] if len(starts) > TIMELINE_STEPS else float("inf")
    own = [(span.part, span.start - begin, span.seconds) for span in summary.spans if begin <= span.start < end]
    return own[:MAX_TIMELINE_SPANS]
