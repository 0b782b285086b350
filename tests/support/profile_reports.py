"""Profiles of runs whose parts are known."""

from equipoise.config import TrainConfig
from equipoise.hardware_facts import HardwareFacts
from equipoise.planning.exchanges.link_report import LinkTiming
from equipoise.profiling.memory.step_memory import StepMemory
from equipoise.profiling.profile_report import (
    LayerWork,
    MachineLimits,
    MeasuredSteps,
    PassRatio,
    ProfileReport,
    ShortTimings,
    StepParts,
    SyncPoint,
    TimelineSpan,
)
from tests.support.memory_reports import build_rows

MS = 1e-3


def build_parts(**milliseconds):
    """Return the parts of a step of 100 ms, those that are not given 0, and the optimizer the rest."""
    parts = dict.fromkeys(("data", "forward", "backward", "exchange", "sync", "other"), 0.0) | milliseconds
    hidden = {name: parts.pop(name, 0.0) for name in ("hidden_exchange", "exchange_under_data")}
    parts["optimizer"] = 100 - sum(parts.values())
    return StepParts(seconds=100 * MS, **{name: value * MS for name, value in (parts | hidden).items()})


def build_layer(name, seconds, flop=1e6):
    """Return a layer with its seconds in a step, a third of them forward."""
    return LayerWork(
        name=name,
        kind="Linear",
        forward_flop=flop,
        backward_flop=2 * flop,
        parameter_bytes=4000,
        input_bytes=400.0,
        output_bytes=40.0,
        forward_seconds=seconds / 3,
        backward_seconds=2 * seconds / 3,
    )


def build_sync_point(seconds, line=12):
    """Return a scalar all-reduce that takes these seconds of a step."""
    return SyncPoint(
        operation="all_reduce",
        file="/home/me/mine.py",
        line=line,
        code="dist.all_reduce(mean)",
        calls=1.0,
        seconds=seconds,
        longest_seconds=2 * seconds,
    )


def build_profile_report(parts=None, *, layers=None, sync_points=(), timings=None, **options):
    """Return a profile of steps of 100 ms without advice: by default half forward and backward on two workers."""
    parts = parts or [
        build_parts(forward=20, backward=30, exchange=25),
        build_parts(forward=20, backward=30, exchange=25),
    ]
    config = TrainConfig(**{"workload": "digits", "workers": len(parts), "batch_size": 32, "lr": 0.1} | options)
    return ProfileReport(
        config=config,
        machine=HardwareFacts(processor="a processor", cores=32),
        nodes=1,
        steps=MeasuredSteps(
            seconds=100 * MS,
            pace_sd=0.02,
            marked_seconds=101 * MS,
            traced_seconds=120 * MS,
            traced_steps=20,
            parts=tuple(parts),
        ),
        layers=tuple(layers or (build_layer("body.0", 0.02), build_layer("head", 0.01))),
        limits=MachineLimits(flop_per_second=1e11, bytes_per_second=1e10),
        sync_points=tuple(sync_points),
        timings=timings
        or ShortTimings(
            batch_seconds={8: 0.07, 16: 0.08, 32: 0.1},
            pass_ratios={"bf16": PassRatio(ratio=0.5, log_sd=0.01)},
            sum_seconds={1000: 0.002, 11_000: 0.012},
            gradient_bytes=11_000,
        ),
        memory=StepMemory(available_bytes=1e9, largest_batch=790, rows=build_rows(0.1, measured=True)),
        links=(LinkTiming(level="within a node", pairs=1, delay_seconds=5e-5, bytes_a_second=1e9),),
        timeline=(
            TimelineSpan(worker=0, part="forward", start=0.0, seconds=0.02),
            TimelineSpan(worker=0, part="backward", start=0.02, seconds=0.03),
            TimelineSpan(worker=0, part="exchange", start=0.04, seconds=0.03),
            TimelineSpan(worker=1, part="data", start=0.0, seconds=0.01),
        ),
    )
