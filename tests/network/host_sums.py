"""What workers on simulated hosts do to check and to time sums by every algorithm; `gloo_hosts` runs it."""

import hashlib

import torch
import torch.distributed as dist

from equipoise.parallel.bucket_sums import build_bucket_sums
from equipoise.parallel.node_groups import find_group_size, gather_nodes
from jobs.timing.sent_bytes_counter import SentBytesCounter
from jobs.timing.sum_bench import list_algorithms, prepare_sums, sample_sums

CPU = torch.device("cpu")
COUNTED_SUMS = 5


def draw_integers(rank: int, count: int) -> torch.Tensor:
    """Return integers of a worker that fp64 sums exactly, in any order."""
    generator = torch.Generator().manual_seed(rank)
    return torch.randint(-(1 << 40), 1 << 40, (count,), generator=generator).double()


def draw_normals(rank: int, count: int) -> torch.Tensor:
    """Return normal numbers of a worker in fp32."""
    return torch.randn(count, generator=torch.Generator().manual_seed(rank))


def check_sums(counts: list[int]) -> dict[str, list[dict[str, object]]]:
    """Sum tensors of these numbers of elements by each algorithm.

    Return by algorithm whether sums of integers are exact, the largest error of fp32 sums over the sum of absolute
    values, and a digest of their bits.
    """
    rank, ranks = dist.get_rank(), dist.get_world_size()
    return {
        name: [check_sum(name, rank, ranks, count) for count in counts]
        for name in list_algorithms(find_group_size(gather_nodes(CPU)))
    }


def check_sum(name: str, rank: int, ranks: int, count: int) -> dict[str, object]:
    """Sum integers and fp32 numbers by one algorithm, and return what `check_sums` says of it."""
    integers, numbers = draw_integers(rank, count), draw_normals(rank, count)
    for tensor in (integers, numbers):
        [bucket_sum] = build_bucket_sums([tensor], [name])  # type: ignore[list-item] # names of the registry
        if bucket_sum is None:
            dist.all_reduce(tensor)
        else:
            bucket_sum.run()
    exact = torch.stack([draw_integers(other, count) for other in range(ranks)]).sum(0)
    rows = torch.stack([draw_normals(other, count).double() for other in range(ranks)])
    errors = (numbers.double() - rows.sum(0)).abs() / rows.abs().sum(0)
    return {
        "is_exact": torch.equal(integers, exact),
        "error": float(errors.max()),
        "digest": hashlib.sha256(numbers.numpy().tobytes() + integers.numpy().tobytes()).hexdigest(),
    }


def count_sent_bytes(sizes: list[int]) -> list[tuple[str, int, float, int]]:
    """Return by algorithm and size the bytes that leave this host in a sum: by the schedule, and by the kernel's count.

    The least of several sums is counted: what other programs send, and packets that are sent again, only add to it.
    """
    nodes = gather_nodes(CPU)
    counter = SentBytesCounter(nodes, dist.get_rank())
    result = []
    for prepared in prepare_sums(sizes, list_algorithms(find_group_size(nodes)), len(set(nodes)), CPU):
        prepared.run()  # opens connections
        counts = []
        for _ in range(COUNTED_SUMS):
            dist.barrier()
            before = counter.read()
            prepared.run()
            dist.barrier()
            counts.append(counter.read() - before)
        result.append((prepared.algorithm, prepared.bytes, prepared.sent_bytes, min(counts)))
    return result


def check_and_count(counts: list[int], sizes: list[int]) -> tuple[object, object]:
    """Return what `check_sums` and `count_sent_bytes` return."""
    return check_sums(counts), count_sent_bytes(sizes)


def sample_all_sums(sizes: list[int], seconds: float) -> list[tuple[str, int, list[list[float]]]]:
    """Return the seconds of each sum, by turn, of every algorithm and size, measured for about `seconds`."""
    nodes = gather_nodes(CPU)
    sums = prepare_sums(sizes, list_algorithms(find_group_size(nodes)), len(set(nodes)), CPU)
    samples = sample_sums(sums, seconds, CPU, SentBytesCounter(nodes, dist.get_rank()))
    return [(row.algorithm, row.bytes, taken.seconds) for row, taken in zip(sums, samples, strict=True)]
