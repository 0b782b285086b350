"""Files of a checkpoint: one of all tensors that workers share, the laps, and what each worker keeps for itself.

    state.safetensors            weights and the state of the optimizer, written by the first worker
    laps.json                    laps that led to them
    state-1-of-2.safetensors     what the second of two workers holds of them with --sharding, written by it
    errors-1-of-2.safetensors    what compression left out in the second of two workers, written by it
    arrivals.jsonl               log of arrivals of asynchronous workers up to here

A run with exact sums has the first two alone.
"""

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import Any

from safetensors import safe_open
from safetensors.torch import save_file
from torch import Tensor

from equipoise.config import TrainConfig
from equipoise.errors import EquipoiseError
from equipoise.formatting import pluralize
from equipoise.parameter_store.arrivals.lap_arrivals import ARRIVALS_FILE, LapArrivals, parse_arrivals
from equipoise.runs.record import Lap
from equipoise.storage.atomic import read_json, write_json
from equipoise.storage.json_decoding import decode_json_value
from equipoise.training.loop import Training
from equipoise.training.sharding.state_parts import JoinedState, StatePart
from equipoise.training.sharding.tensor_slice import TensorSlice

TRAINING_STATE_FILE, LAPS_FILE = "state.safetensors", "laps.json"
ERROR_FILE_PATTERN = re.compile(r"errors-\d+-of-(\d+)\.safetensors")


class StoredTensors(Mapping[str, Tensor]):
    """Tensors of a file by name, each read when it is asked for."""

    def __init__(self, file: Any) -> None:
        self.file, self.names = file, list(file.keys())

    def __getitem__(self, name: str) -> Tensor:
        tensor: Tensor = self.file.get_tensor(name)
        return tensor

    def __iter__(self) -> Iterator[str]:
        return iter(self.names)

    def __len__(self) -> int:
        return len(self.names)


@contextmanager
def open_state(paths: Sequence[Path]) -> Iterator[JoinedState]:
    """Open the tensors of files for the `with` block; those of which several files hold parts are joined."""
    with ExitStack() as stack:
        yield JoinedState([open_state_part(stack.enter_context(safe_open(path, "pt"))) for path in paths])


def open_state_part(file: Any) -> StatePart:
    """Return the tensors of an open file, and which parts of whole ones they are."""
    slices = json.loads((file.metadata() or {}).get("slices", "{}"))
    places = {name: TensorSlice.from_json(value) for name, value in slices.items()}
    return StatePart(tensors=StoredTensors(file), slices=places)


def find_state_files(folder: Path) -> list[Path]:
    """Return the files of the state in a checkpoint, one for each worker with --sharding."""
    workers = read_num_parts(folder / TRAINING_STATE_FILE)
    return [folder / state_file_name(rank, workers) for rank in range(workers)]


def read_num_parts(path: Path) -> int:
    """Return the number of files that hold the state of a checkpoint, given the first of them."""
    with safe_open(path, "pt") as file:
        return int((file.metadata() or {}).get("workers", "1"))


def state_file_name(rank: int, workers: int) -> str:
    """Return the name of the file with a worker's part of the state."""
    return TRAINING_STATE_FILE if rank == 0 else f"state-{rank}-of-{workers}.safetensors"


def write_checkpoint(training: Training, folder: Path) -> bool:
    """Write what this worker adds to a checkpoint, and return whether there is anything."""
    state = training.saved_state()
    is_sharded = training.config.sharding_method.kind != "none" and training.workers > 1
    if training.rank == 0 or is_sharded:
        metadata = {"slices": json.dumps({name: place.to_json() for name, place in state.slices.items()})}
        metadata |= {"workers": str(training.workers)}
        name = state_file_name(training.rank, training.workers)
        save_file(dict(state.tensors), folder / name, metadata if is_sharded else None)
    if training.rank == 0:
        write_json(folder / LAPS_FILE, [asdict(lap) for lap in training.finished_laps])
        if (lines := training.steps.arrival_lines) is not None:
            (folder / ARRIVALS_FILE).write_text("".join(lines), encoding="utf-8")
    own = training.own_state_dict()
    if own:
        save_file(own, folder / error_file_name(training.rank, training.workers))
    return bool(own) or training.rank == 0 or is_sharded


def restore_checkpoint(training: Training, folder: Path) -> None:
    """Restore the state and the laps that `write_checkpoint` saved in all workers, however many they were."""
    error_files = find_error_files(folder, training.config)
    if len(error_files) == training.workers:
        error_files = error_files[training.rank : training.rank + 1]
    laps = load_laps(folder / LAPS_FILE)
    with open_state([*find_state_files(folder), *error_files]) as tensors:
        training.load_state_dict(tensors, laps)
    if (lines := training.steps.arrival_lines) is not None:
        lines[:] = [lap.to_line() for lap in load_arrivals(folder / ARRIVALS_FILE, training.config, laps)]


def error_file_name(rank: int, workers: int) -> str:
    """Return the name of the file of what compression left out in a worker."""
    return f"errors-{rank}-of-{workers}.safetensors"


def find_error_files(folder: Path, config: TrainConfig) -> list[Path]:
    """Return the files of what compression left out, one for each worker of a checkpoint; refuse one without all."""
    if config.compression_method.kind == "none" or not config.error_feedback:
        return []
    matches = [ERROR_FILE_PATTERN.fullmatch(path.name) for path in folder.iterdir()]
    workers = max((int(match[1]) for match in matches if match), default=1)
    paths = [folder / error_file_name(rank, workers) for rank in range(workers)]
    missing = [path for path in paths if not path.is_file()]
    if missing:
        raise EquipoiseError(
            "run-damaged",
            f"cannot read {missing[0]}: it is missing, with what compression left out in a worker",
        )
    return paths


def load_arrivals(path: Path, config: TrainConfig, laps: Sequence[Lap]) -> list[LapArrivals]:
    """Read the log of arrivals of a run; refuse one that is damaged, or of other laps or options than these."""
    arrivals = parse_arrivals(path.read_bytes(), str(path), config.workers, config.sync_method.staleness)
    if [lap.step for lap in arrivals] != [lap.step for lap in laps]:
        raise EquipoiseError(
            "run-damaged",
            f"cannot use {path}: its {pluralize(len(arrivals), 'lap')} and the {pluralize(len(laps), 'lap')} of the run"
            " do not end at the same steps",
            "restore it, or train the run again",
        )
    return arrivals


def load_laps(path: Path) -> list[Lap]:
    """Read the laps that led to a checkpoint; refuse a file without any."""
    laps = decode_json_value(read_json(path), list[Lap], code="run-damaged", problem=f"cannot read {path}")
    if not laps:
        raise EquipoiseError("run-damaged", f"cannot read {path}: it holds no laps")
    return laps
