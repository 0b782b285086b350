"""Time sums by every all-reduce algorithm that the workers of a process group can run.

All settings of algorithm and size take turns, in a new order each time: a machine that is slower for a while is so for
all of them.
"""

import time
from collections.abc import Callable, Sequence
from functools import partial
from typing import NamedTuple

import numpy as np
import torch
import torch.distributed as dist
from torch import Tensor

from equipoise.parallel.bucket_sums import build_bucket_sums
from equipoise.parallel.node_groups import find_group_size, gather_nodes
from equipoise.planning.exchanges.closed_forms import BACKEND_FORM, add_closed_forms
from equipoise.planning.exchanges.exchange_time import all_reduce_cost
from equipoise.planning.exchanges.link_report import LinkReport, SumTiming
from equipoise.registries.all_reduce_registry import AppliedAllReduce, list_runnable_algorithms
from equipoise.training.comm_benchmark import time_rounds
from equipoise.type_aliases import FloatArray
from jobs.timing.message_bench import time_levels
from jobs.timing.sent_bytes_counter import SentBytesCounter

MIN_TURNS = 3  # turns of each setting, however long they take
TURN_SECONDS = 0.1  # for the sums of a turn, within their bounds
MIN_TURN_SUMS, MAX_TURN_SUMS = 2, 30
MESSAGES_SHARE = 0.15  # of the time, for messages between two workers
ELEMENT_BYTES = 4
SPREAD_QUANTILES = 0.1, 0.9


class PreparedSum(NamedTuple):
    """Sum of one size by one algorithm that can be run again and again."""

    algorithm: AppliedAllReduce
    bytes: int
    run: Callable[[], None]
    sent_bytes: float
    """bytes that leave this worker"""
    rounds: int


class SumSamples(NamedTuple):
    """Seconds of each sum of a setting, by turn, and the bytes of a sum that were counted in each turn."""

    seconds: list[list[float]]
    """equal on all workers"""
    counted_bytes: list[float]
    """bytes that this node sent; 0 on workers that do not count"""


class AveragedBytes(NamedTuple):
    """Bytes that leave a worker in a sum, averaged over workers."""

    by_schedule: float
    counted: float
    """by the kernel"""


def measure_links(sizes: Sequence[int], seconds: float, device: torch.device) -> LinkReport:
    """Time messages and sums of these sizes for about `seconds`. All workers call this and get the same report."""
    nodes = gather_nodes(device)
    counter = SentBytesCounter(nodes, dist.get_rank())
    links = time_levels(nodes, MESSAGES_SHARE * seconds, device)
    sums = prepare_sums(sizes, list_algorithms(find_group_size(nodes)), len(set(nodes)), device)
    samples = sample_sums(sums, (1 - MESSAGES_SHARE) * seconds, device, counter)
    can_count = device.type == "cpu" and not max_over_workers(float(not counter.can_count), device)
    bytes_by_sum = average_bytes(sums, samples, device)
    rows = [
        summarize_sum(prepared, taken.seconds, sent, len(set(nodes)), can_count)
        for prepared, taken, sent in zip(sums, samples, bytes_by_sum, strict=True)
    ]
    return LinkReport(
        links=links,
        sums=add_closed_forms(rows),
        backend=dist.get_backend(),
        interfaces=counter.interfaces if can_count else (),
    )


def list_algorithms(group_size: int | None) -> list[AppliedAllReduce]:
    """Return the algorithms that all workers can run, with as many on each node as `group_size`, if that is known."""
    runnable = list_runnable_algorithms(dist.get_world_size())
    return ["backend", *(name for name in runnable if name != "two-level" or group_size is not None)]


def prepare_sums(
    sizes: Sequence[int], algorithms: Sequence[AppliedAllReduce], nodes: int, device: torch.device
) -> list[PreparedSum]:
    """Build the sums of tensors of these sizes by each of the algorithms; all share their memory."""
    settings = [(name, size) for name in algorithms for size in sizes]
    buffer = torch.zeros(max(sizes) // ELEMENT_BYTES, device=device)
    tensors = [buffer[: size // ELEMENT_BYTES] for _, size in settings]
    prepared = []
    built = build_bucket_sums(tensors, [name for name, _ in settings])
    for (name, size), tensor, bucket_sum in zip(settings, tensors, built, strict=True):
        if bucket_sum is None:
            cost = all_reduce_cost(BACKEND_FORM, dist.get_world_size(), size, nodes)
            prepared.append(PreparedSum(name, size, partial(sum_by_backend, tensor), cost.mean_sent_bytes, cost.rounds))
        else:
            prepared.append(PreparedSum(name, size, bucket_sum.run, bucket_sum.sent_bytes, bucket_sum.num_rounds))
    return prepared


def sum_by_backend(tensor: Tensor) -> None:
    """Sum a tensor by torch's own process group."""
    dist.all_reduce(tensor)


def sample_sums(
    sums: Sequence[PreparedSum], seconds: float, device: torch.device, counter: SentBytesCounter
) -> list[SumSamples]:
    """Run all sums in turns until about `seconds` have passed, at least a few turns of each."""
    samples = [SumSamples([], []) for _ in sums]
    counts = [choose_count(row.run, device) for row in sums]
    idle_bytes = count_idle_bytes(device, counter)
    start, elapsed, turn = time.monotonic(), 0.0, 0
    while turn < MIN_TURNS or elapsed * (1 + 1 / turn) < seconds:
        for index in np.random.default_rng(turn).permutation(len(sums)):  # the same order on all workers
            took, sent = take_turn(sums[index].run, counts[index], device, counter)
            samples[index].seconds.append(took)
            samples[index].counted_bytes.append((sent - idle_bytes) / (1 + counts[index]))
        turn += 1
        elapsed = max_over_workers(time.monotonic() - start, device)
    return samples


def choose_count(run: Callable[[], None], device: torch.device) -> int:
    """Return how many sums a turn takes; this runs two sums, the first of which opens connections."""
    estimate = time_rounds(run, 2, device)[-1]
    return int(min(max(TURN_SECONDS / estimate, MIN_TURN_SUMS), MAX_TURN_SUMS))


def take_turn(
    run: Callable[[], None], count: int, device: torch.device, counter: SentBytesCounter
) -> tuple[list[float], int]:
    """Run a sum a few times; return the seconds of each and the bytes that this node sent for all of them and one more.

    The first sum of a turn is not timed: workers do not start it at the same time.
    """
    dist.barrier()  # what was sent before is not counted
    before = counter.read()
    took = time_rounds(run, 1 + count, device)[1:]
    dist.barrier()  # all have sent what they had to
    return took, counter.read() - before


def count_idle_bytes(device: torch.device, counter: SentBytesCounter) -> float:
    """Return the bytes that this node sends in a turn without any sum, for its barriers.

    They are the fewest of some turns: what other programs send in one turn they need not send in another.
    """
    return float(min(take_turn(lambda: None, 1, device, counter)[1] for _ in range(MIN_TURNS)))


def average_bytes(
    sums: Sequence[PreparedSum], samples: Sequence[SumSamples], device: torch.device
) -> list[AveragedBytes]:
    """Return the bytes that leave a worker in each of the sums, averaged over workers."""
    table = torch.tensor(
        [[row.sent_bytes, *taken.counted_bytes] for row, taken in zip(sums, samples, strict=True)],
        dtype=torch.float64,
        device=device,
    )
    dist.all_reduce(table)
    means = (table / dist.get_world_size()).tolist()
    return [AveragedBytes(sent, float(np.median(counted))) for sent, *counted in means]


def summarize_sum(
    prepared: PreparedSum, seconds: Sequence[Sequence[float]], sent: AveragedBytes, nodes: int, can_count: bool
) -> SumTiming:
    """Return the row of a setting from the seconds of its sums and their bytes."""
    took: FloatArray = np.concatenate(seconds)
    low, high = np.quantile(took, SPREAD_QUANTILES)
    return SumTiming(
        algorithm=prepared.algorithm,
        nodes=nodes,
        ranks=dist.get_world_size(),
        bytes=prepared.bytes,
        seconds=float(np.median(took)),
        seconds_low=float(low),
        seconds_high=float(high),
        rounds=prepared.rounds,
        sent_bytes=sent.by_schedule,
        counted_bytes=sent.counted if can_count else None,
    )


def max_over_workers(value: float, device: torch.device) -> float:
    """Return the largest value of any worker."""
    shared = torch.tensor(value, dtype=torch.float64, device=device)
    dist.all_reduce(shared, dist.ReduceOp.MAX)
    return float(shared)
