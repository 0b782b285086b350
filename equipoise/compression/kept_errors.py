"""Names of what encodings have left out, as each process keeps it for its checkpoint.

    error.worker.3        left out by worker 3 of the configuration, whichever process computes for it
    error.part.512        left out of encoded sums by the process that sums the part from number 512 on
    error.process-0-of-2.NAME      left out of a matrix by a process, for all of its workers (PowerSGD)

Workers, and numbers of the flat gradient, are the same on any number of processes: so another number finds what it
needs among the files of all. What a process has left out of a product of matrices is its own; others share the sum.
"""

from collections.abc import Mapping
from typing import NoReturn

from torch import Tensor

from equipoise.errors import EquipoiseError

ERROR_PREFIX = "error."
PART_PREFIX = ERROR_PREFIX + "part."


def worker_error_name(worker: int) -> str:
    """Return the name of what a configured worker has left out."""
    return f"{ERROR_PREFIX}worker.{worker}"


def part_error_name(first: int) -> str:
    """Return the name of what was left out of the encoded sum of a part that begins at a number."""
    return f"{PART_PREFIX}{first}"


def process_error_name(rank: int, processes: int, name: str) -> str:
    """Return the name of what a process has left out of a matrix."""
    return f"{ERROR_PREFIX}process-{rank}-of-{processes}.{name}"


def has_errors(tensors: Mapping[str, Tensor]) -> bool:
    """Return whether a checkpoint holds what compression left out: that of a run with exact sums does not."""
    return any(name.startswith(ERROR_PREFIX) for name in tensors)


def find_error(tensors: Mapping[str, Tensor], name: str, like: Tensor) -> Tensor:
    """Return what was left out under a name; refuse a checkpoint without it, or with that of another gradient."""
    if name not in tensors:
        raise_missing(name)
    error = tensors[name]
    if error.shape != like.shape:
        raise EquipoiseError(
            "run-mismatch",
            f"cannot resume from the checkpoint: {name} has the shape {tuple(error.shape)}, not {tuple(like.shape)}",
            "resume with the model and the options that it was saved with, or train from the start",
        )
    return error


def raise_missing(name: str) -> NoReturn:
    """Raise that a checkpoint lacks what was left out under a name."""
    raise EquipoiseError(
        "run-damaged",
        f"cannot resume from the checkpoint: it lacks {name}, which compression left out",
        "resume with the tensors of all processes and as many workers, or train from the start",
    )


def load_worker_error(tensors: Mapping[str, Tensor], worker: int, target: Tensor) -> None:
    """Give a worker back what it had left out."""
    target.copy_(find_error(tensors, worker_error_name(worker), target))


def load_part_error(tensors: Mapping[str, Tensor], first: int, target: Tensor) -> None:
    """Give the process that sums the part from number `first` on what was left out of it, from parts of any split."""
    missing = len(target)
    for name in (name for name in tensors if name.startswith(PART_PREFIX)):
        part, part_first = tensors[name], int(name.removeprefix(PART_PREFIX))
        start, stop = max(first, part_first), min(first + len(target), part_first + len(part))
        if start < stop:
            target[start - first : stop - first] = part[start - part_first : stop - part_first]
            missing -= stop - start
    if missing:
        raise_missing(part_error_name(first))


def load_process_error(tensors: Mapping[str, Tensor], rank: int, processes: int, name: str, target: Tensor) -> None:
    """Give a process what it had left out of a matrix, or its share of the sum where their number was another."""
    own = process_error_name(rank, processes, name)
    if own in tensors:
        target.copy_(find_error(tensors, own, target))
        return
    saved_processes = len({key.split(".")[1] for key in tensors if key.startswith(ERROR_PREFIX)})
    target.zero_()
    for other in range(saved_processes):
        target += find_error(tensors, process_error_name(other, saved_processes, name), target).to(target)
    target /= processes
