"""Seconds of a step by closed form, for each kind of --sharding.

With p workers, m bytes of weights, M micro-batches a step on each worker, alpha seconds a message, beta seconds a byte:

    optimizer   passes and a ring that backward hides in part, update / p, alpha + (p - 1)/p m beta
    full        M (passes + copies + 3 u alpha + 3 (p - 1)/p m beta) + update / p, for u units
    tensor      M (passes of a part + a ring for each sum of activations) + update of a part
    pipeline    (M + S - 1) passes of the slowest of S stages + the transfers that no stage hides

Rajbhandari et al., ZeRO, 2019; Shoeybi et al., Megatron-LM, 2019; Narayanan et al., PipeDream-Flush, 2021.
"""

from collections.abc import Sequence
from itertools import accumulate
from typing import NamedTuple

from equipoise.errors import EquipoiseError
from equipoise.planning.exchanges.exchange_time import LevelCost, all_reduce_cost


class LinkTimes(NamedTuple):
    """What exchanges take on the slowest link between workers."""

    alpha: float
    """seconds a message"""
    beta: float
    """seconds a byte"""
    start: float = 0.0
    """seconds before the first message of an exchange, such as until its thread runs"""

    def seconds(self, cost: LevelCost) -> float:
        """Return the seconds of one exchange."""
        return self.start + cost.seconds(self.alpha, self.beta)


class WorkerTimes(NamedTuple):
    """What one worker takes that holds the whole model, in seconds."""

    forward: float
    """forward pass of a micro-batch"""
    backward: float
    """backward pass of a micro-batch"""
    update: float
    """step of the optimizer"""

    @property
    def passes(self) -> float:
        """Seconds of both passes of a micro-batch."""
        return self.forward + self.backward


def ring_seconds(workers: int, size: float, link: LinkTimes) -> float:
    """Return the seconds of the sum of so many bytes over workers in a ring."""
    return link.seconds(all_reduce_cost("ring", workers, size).local) if workers > 1 else 0.0


def bucketed_step_seconds(
    worker: WorkerTimes, bucket_bytes: Sequence[float], workers: int, micro_batches: int, link: LinkTimes
) -> float:
    """Return the seconds of a step without sharding: each bucket is summed while backward fills the next ones.

    Backward takes as long for a bucket as it has a share of all gradients. Sums of the last micro-batch follow each
    other on the link.
    """
    total = sum(bucket_bytes)
    free = 0.0  # when the link has finished the buckets before
    for size, filled in zip(bucket_bytes, accumulate(bucket_bytes), strict=True):
        free = max(free, worker.backward * filled / total) + ring_seconds(workers, size, link)
    before = (micro_batches - 1) * worker.passes + worker.forward
    return before + max(free, worker.backward) + worker.update


class ExchangeLinks(NamedTuple):
    """What the exchanges of parts take on the slowest link; each kind has its own delay and rate."""

    gather: LinkTimes
    scatter: LinkTimes
    ring: LinkTimes
    """of sums of whole gradients"""


def gather_cost(parts: int, unit_bytes: Sequence[float]) -> LevelCost:
    """Return the cost of gathering each unit once, where each worker sends its part to all others at once.

    Summing the gradients of each unit, of which each worker gets its part from all others, sends as much.
    """
    return LevelCost(len(unit_bytes), (parts - 1) / parts * sum(unit_bytes))


def gather_seconds(parts: int, unit_bytes: Sequence[float], link: LinkTimes) -> float:
    """Return the seconds of gathering each unit once, or of summing its gradients."""
    return sum(link.seconds(gather_cost(parts, [size])) for size in unit_bytes)


def optimizer_step_seconds(
    worker: WorkerTimes,
    bucket_bytes: Sequence[float],
    part_bytes: Sequence[float],
    micro_batches: int,
    links: ExchangeLinks,
) -> float:
    """Return the seconds of a step where each worker updates its part of the weights and sends it to the others.

    The largest part counts: all workers wait for it.
    """
    workers, largest = len(part_bytes), max(part_bytes)
    own = worker._replace(update=worker.update * largest / sum(part_bytes))
    summed = bucketed_step_seconds(own, bucket_bytes, workers, micro_batches, links.ring)
    return summed + gather_seconds(workers, [workers * largest], links.gather)


def full_step_seconds(
    worker: WorkerTimes,
    unit_bytes: Sequence[float],
    parts: int,
    micro_batches: int,
    links: ExchangeLinks,
    replicas: int = 1,
    copy_seconds: float = 0.0,
) -> float:
    """Return the seconds of a step where each worker has a part of every weight; on a CPU nothing hides exchanges.

    `copy_seconds` is what a micro-step takes to copy weights out of what was gathered, and gradients into what is sent.
    """
    if parts == 1:
        return micro_batches * worker.passes + worker.update
    gathers = 2 * gather_seconds(parts, unit_bytes, links.gather)
    exchange = gathers + gather_seconds(parts, unit_bytes, links.scatter)
    over_replicas = sum(ring_seconds(replicas, size / parts, links.ring) for size in unit_bytes)
    return micro_batches * (worker.passes + copy_seconds + exchange) + over_replicas + worker.update / parts


def tensor_step_seconds(
    worker: WorkerTimes,
    divided_share: float,
    sum_bytes: Sequence[float],
    parts: int,
    micro_batches: int,
    link: LinkTimes,
    replica_seconds: float = 0.0,
) -> float:
    """Return the seconds of a step where workers compute parts of the layers that have a share of the work.

    `sum_bytes` are the activations of each sum of a micro-batch, in both passes; `replica_seconds` is what the sum of
    gradients over replicas takes.
    """
    share = 1 - divided_share + divided_share / parts
    sums = sum(ring_seconds(parts, size, link) for size in sum_bytes)
    return micro_batches * (share * worker.passes + sums) + share * worker.update + replica_seconds


def following_seconds(stage_seconds: Sequence[float], transfer_seconds: Sequence[float], micro_batches: int) -> float:
    """Return the seconds that a 1F1B step takes from the end of its first micro-batch to that of its last one.

    Stage s has at most S - s micro-batches in flight, each of which goes to the last stage and back: they come back
    one after another, and then the first of them makes room for the next. So with one on each stage no transfer hides.
    """
    stages, others, slowest = len(stage_seconds), micro_batches - 1, max(stage_seconds)
    seconds = others * slowest
    for stage in range(stages):
        round_trip = sum(stage_seconds[stage:]) + 2 * sum(transfer_seconds[stage:])
        round_trips, rest = divmod(others, stages - stage)
        seconds = max(seconds, round_trips * round_trip + rest * slowest)
    return seconds


def pipeline_step_seconds(
    stage_seconds: Sequence[float],
    boundary_bytes: Sequence[float],
    micro_batches: int,
    link: LinkTimes,
    *,
    update: float = 0.0,
    sum_seconds: float = 0.0,
) -> float:
    """Return the seconds of a 1F1B step of stages that take these seconds for both passes of a micro-batch.

    The value at a boundary goes down and its gradient comes back. `update` is that of the slowest stage, `sum_seconds`
    what sums over replicas and over the holders of a shared weight take.
    """
    if len(boundary_bytes) != len(stage_seconds) - 1:
        raise EquipoiseError(
            "option-range",
            f"cannot estimate a pipeline of {len(stage_seconds)} stages: it has {len(stage_seconds) - 1} boundaries,"
            f" not {len(boundary_bytes)}",
        )
    transfers = [link.alpha + size * link.beta for size in boundary_bytes]  # single messages, which start at once
    first = sum(stage_seconds) + 2 * sum(transfers)
    return first + following_seconds(stage_seconds, transfers, micro_batches) + sum_seconds + update


def pipeline_bubble(stages: int, micro_batches: int) -> float:
    """Return the share of a step in which a stage of equal stages waits, without transfers."""
    return (stages - 1) / (micro_batches + stages - 1)
