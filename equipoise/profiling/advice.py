"""Proposals that may make steps faster: each a prediction from the measured parts of a step, with its interval.

    gain = examples per second with the change / without it

Seconds of a step without what a change removes are taken from its parts. A batch of another size is predicted by a line
through the seconds of smaller ones, a cheaper pass by the ratio of a short timing without any exchange.
"""

import math
from dataclasses import replace
from typing import Any

import numpy as np

from equipoise.config import TrainConfig
from equipoise.errors import EquipoiseError
from equipoise.profiling.losses import (
    NORMAL_QUANTILE,
    data_seconds,
    exchange_seconds,
    imbalance_seconds,
    predict_gain,
    rank_losses,
    saved_by_data,
    saved_gain,
    saved_wait,
    volume_share,
)
from equipoise.profiling.profile_report import ProfileReport, Proposal, SyncPoint

MIN_PROPOSED_SHARE = 0.02  # of a step: what takes less is not worth a proposal
MIN_GAIN = 1.05  # predicted, from which a proposal is tried and pointed out
LINE_ERROR = 0.03  # log seconds, of a batch twice as large as those that were timed
CHEAPER_PASSES: dict[str, tuple[dict[str, int | str | bool], str]] = {
    "bf16": ({"precision": "bf16"}, "numbers of 16 bits in products"),
    "channels_last": ({"channels_last": True}, "images with their channels last in memory"),
    "compile": ({"compile": True}, "the model compiled by torch.compile"),
}
"""options that make both passes cheaper, by the name of the proposal, and what they do"""


def add_advice(report: ProfileReport, max_batch: int | None = None) -> ProfileReport:
    """Return a profile with its losses and proposals, in the order of what they bring.

    What a run would refuse is not proposed, nor a global batch of more than `max_batch` examples.
    """
    runnable = [proposal for proposal in list_proposals(report) if is_runnable(proposal, report.config, max_batch)]
    proposals = sorted(runnable, key=lambda proposal: -proposal.gain.value)
    return replace(report, losses=rank_losses(report), proposals=tuple(proposals))


def list_proposals(report: ProfileReport) -> list[Proposal]:
    """List the proposals for a run, in no order."""
    candidates = [
        propose_double_batch(report),
        propose_accumulation(report),
        propose_fewer_workers(report),
        propose_faster_link(report),
        propose_ready_batches(report),
        propose_more_readers(report),
        *(propose_without_call(report, point) for point in report.sync_points),
        *(propose_cheaper_pass(report, name) for name in CHEAPER_PASSES),
    ]
    return [proposal for proposal in candidates if proposal is not None]


def is_runnable(proposal: Proposal, config: TrainConfig, max_batch: int | None) -> bool:
    """Return whether a run can have the options that a proposal asks for, beside those that it has."""
    options: dict[str, Any] = {**proposal.options}
    try:
        changed = replace(config, **options)
    except EquipoiseError:  # such as a number of workers that a sharding does not divide
        return False
    return max_batch is None or changed.global_batch <= max_batch


def list_worthwhile(report: ProfileReport) -> list[Proposal]:
    """List the proposals that are likely to gain something, and more than noise."""
    return [proposal for proposal in report.proposals if proposal.gain.value >= MIN_GAIN and proposal.gain.low > 1]


def propose_double_batch(report: ProfileReport) -> Proposal | None:
    """Propose twice the batch size, from a line through the seconds of a step at smaller ones."""
    timed = report.timings.batch_seconds
    if len(timed) < 2:
        return None
    batch = 2 * report.config.batch_size
    fixed, per_example = fit_batch_line(timed)
    seconds = fixed + per_example * batch
    measured = timed.get(report.config.batch_size, report.steps.seconds)
    return Proposal(
        name="double batch",
        action=f"--batch-size {batch}",
        options={"batch_size": batch},
        gain=predict_gain(report, 2 * measured / seconds, LINE_ERROR),
        reason=(
            f"a step takes {format_milliseconds(fixed)} however small the batch, and"
            f" {format_milliseconds(per_example)} for each example, by steps of {', '.join(map(str, sorted(timed)))}"
        ),
        changes_learning=True,
    )


def fit_batch_line(seconds_by_batch: dict[int, float]) -> tuple[float, float]:
    """Fit the fixed seconds of a step and those of an example, neither below zero, with equal relative errors."""
    batches, seconds = (np.array(values, float) for values in zip(*sorted(seconds_by_batch.items()), strict=True))
    rows = np.stack([1 / seconds, batches / seconds], axis=1)
    fixed, per_example = np.linalg.lstsq(rows, np.ones_like(seconds), rcond=None)[0].tolist()
    if fixed < 0:
        return 0.0, float(np.mean(seconds / batches))
    if per_example <= 0:
        return float(np.mean(seconds)), 0.0
    return fixed, per_example


def propose_accumulation(report: ProfileReport) -> Proposal | None:
    """Propose twice the micro-steps between two exchanges, which share the exchange and the optimizer's step."""
    steps = report.config.grad_accumulation
    shared = exchange_seconds(report) + max(part.optimizer for part in report.steps.parts)
    if shared < MIN_PROPOSED_SHARE * report.steps.seconds or report.config.sync_method.kind != "step":
        return None
    both = 2 * report.steps.seconds - shared
    return Proposal(
        name="gradient accumulation",
        action=f"--grad-accumulation {2 * steps}",
        options={"grad_accumulation": 2 * steps},
        gain=predict_gain(report, 2 * report.steps.seconds / both),
        reason=f"the exchange and the optimizer take {format_milliseconds(shared)}, once for twice the examples",
        changes_learning=True,
    )


def propose_fewer_workers(report: ProfileReport) -> Proposal | None:
    """Propose one worker fewer: less to exchange and to wait for, and fewer examples in a step."""
    workers, whole = report.config.workers, report.steps.seconds
    if workers == 1:
        return None
    left = workers - 1
    exchange = exchange_seconds(report)
    kept = exchange * ((left - 1) / left) / ((workers - 1) / workers)  # a ring's bytes by number of workers
    sync = sum(point.seconds for point in report.sync_points) if left == 1 else 0.0
    saved = exchange - kept + imbalance_seconds(report) + sync
    return Proposal(
        name="one worker fewer",
        action=f"--workers {left}",
        options={"workers": left},
        gain=predict_gain(report, saved_gain(report, saved) * left / workers),
        reason=f"a step of {workers} workers waits {format_milliseconds(saved)} of {format_milliseconds(whole)} more",
        changes_learning=True,
    )


def propose_faster_link(report: ProfileReport) -> Proposal | None:
    """Propose links of twice the rate, by the share of a sum that its bytes take rather than its delay."""
    sums, exchange = report.timings.sum_seconds, exchange_seconds(report)
    if len(sums) < 2 or exchange < MIN_PROPOSED_SHARE * report.steps.seconds:
        return None
    share = volume_share(sums, report.timings.gradient_bytes)
    last = min(report.steps.parts, key=lambda part: part.exchange)
    whole_exchange = last.exchange + last.hidden_exchange + last.exchange_under_data
    saved = min(exchange, share / 2 * whole_exchange)
    return Proposal(
        name="twice the link",
        action="links of twice the rate, or half the bytes by --compression bf16",
        gain=predict_gain(report, saved_gain(report, saved)),
        reason=f"{share:.0%} of the time of a sum are its bytes, the rest is delay",
    )


def propose_ready_batches(report: ProfileReport) -> Proposal | None:
    """Propose a loader that never lets a step wait."""
    if data_seconds(report) < MIN_PROPOSED_SHARE * report.steps.seconds:
        return None
    return Proposal(
        name="loader as fast as the step",
        action="have batches ready in time: cheaper reading or augmentation, smaller files",
        gain=predict_gain(report, saved_gain(report, saved_by_data(report))),
        reason=f"a step waits {format_milliseconds(data_seconds(report))} for batches",
    )


def propose_more_readers(report: ProfileReport) -> Proposal | None:
    """Propose twice the processes that read examples, where steps wait for them."""
    if not report.timings.is_read_ahead or data_seconds(report) < MIN_PROPOSED_SHARE * report.steps.seconds:
        return None
    readers, whole = report.config.threads, report.steps.seconds
    # while steps wait, a batch takes the readers as long as a step; batches still come from other processes, by which
    # caches stay as cold as they are
    gain = saved_gain(report, min(saved_wait(report), whole / 2))
    reason, log_sd = f"twice the processes that read examples, where {readers} cannot keep up", 0.0
    if has_cpus_for(report, 2 * readers):
        reason += "; needs as many more CPUs"
    else:  # readers that compute gain nothing then, and those that wait for a disk or a network gain all of it
        gain, log_sd = math.sqrt(gain), math.log(gain) / 2 / NORMAL_QUANTILE
        reason += f"; helps if they wait rather than compute, since there are {report.machine.cores} CPUs"
    return Proposal(
        name="more readers",
        action=f"--threads {2 * readers}",
        options={"threads": 2 * readers},
        gain=predict_gain(report, gain, log_sd),
        reason=reason,
    )


def has_cpus_for(report: ProfileReport, readers: int) -> bool:
    """Return whether a node has a CPU for each worker on it and each of its readers, if that is known."""
    cores = report.machine.cores
    return cores is None or cores >= math.ceil(report.config.workers / report.nodes) * (1 + readers)


def propose_without_call(report: ProfileReport, point: SyncPoint) -> Proposal | None:
    """Propose to do without a synchronisation point."""
    if point.seconds < MIN_PROPOSED_SHARE * report.steps.seconds:
        return None
    return Proposal(
        name=f"no {point.operation} at {point.place}",
        action=f"remove the call at {point.place}, or make it once in many steps",
        gain=predict_gain(report, saved_gain(report, point.seconds)),
        reason=f"`{point.code}` holds every worker for {format_milliseconds(point.seconds)} of a step",
    )


def propose_cheaper_pass(report: ProfileReport, name: str) -> Proposal | None:
    """Propose an option that makes both passes cheaper, carried over from passes without an exchange."""
    timed = report.timings.pass_ratios.get(name)
    if timed is None:
        return None
    slowest = max(report.steps.parts, key=lambda part: part.forward + part.backward)
    saved = (slowest.forward + slowest.backward) * (1 - timed.ratio)
    if report.timings.is_read_ahead and data_seconds(report) >= MIN_PROPOSED_SHARE * report.steps.seconds:
        saved = min(0.0, saved + saved_wait(report))  # a step lasts as long as reading its batch, or longer
    uncovered = max(0.0, slowest.hidden_exchange - slowest.backward * timed.ratio)
    options, meaning = CHEAPER_PASSES[name]
    return Proposal(
        name=name,
        action=" ".join(format_option(option, value) for option, value in options.items()),
        options=options,
        gain=predict_gain(report, saved_gain(report, saved - uncovered), timed.log_sd),
        reason=f"both passes alone take {timed.ratio:.2f} of their time with {meaning}",
    )


def format_option(name: str, value: int | str | bool) -> str:
    """Format an option as it is typed."""
    flag = f"--{name.replace('_', '-')}"
    return flag if value is True else f"{flag} {value}"


def format_milliseconds(seconds: float) -> str:
    """Format seconds in milliseconds, to three digits."""
    return f"{1000 * seconds:.3g} ms" if math.isfinite(seconds) else "-"
