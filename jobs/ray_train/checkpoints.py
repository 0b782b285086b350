"""Decide when to save a checkpoint, and validate the checkpoints of an earlier command before workers start."""

import statistics
import time
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from safetensors import SafetensorError, safe_open
from torch import nn

from equipoise.config import TrainConfig
from equipoise.errors import EquipoiseError
from equipoise.parameter_store.arrivals.lap_arrivals import ARRIVALS_FILE
from equipoise.runs.record import Lap
from equipoise.storage.atomic import open_local_copy, read_json
from equipoise.storage.json_decoding import decode_json_value
from equipoise.storage.retry import StoreUnavailable
from equipoise.training.torch_state import collect_weights
from equipoise.type_aliases import JsonObject
from jobs.ray_train.checkpoint_files import (
    LAPS_FILE,
    TRAINING_STATE_FILE,
    find_error_files,
    load_arrivals,
    load_laps,
    open_state_part,
    read_num_parts,
    state_file_name,
)

CHECKPOINTS_FOLDER = "checkpoints"
CHECKPOINT_SNAPSHOT_FILE = "checkpoint_manager_snapshot.json"  # Ray Train's list of the checkpoints it keeps


@dataclass(frozen=True, kw_only=True)
class CheckpointResult:
    """Checkpoint that Ray Train keeps: its folder, and the metrics reported with it."""

    checkpoint_dir_name: str
    metrics: JsonObject


@dataclass(frozen=True, kw_only=True)
class CheckpointSnapshot:
    """What Ray Train reads of its list of checkpoints to resume a run."""

    checkpoint_results: list[CheckpointResult]
    latest_checkpoint_result: CheckpointResult | None


def find_last_lap(out: Path, config: TrainConfig, build_model: Callable[[], nn.Module]) -> Lap | None:
    """Return the lap after which a run in `out` would resume, or None if it would start from the beginning.

    Refuse checkpoints that cannot be resumed with these options.
    """
    folder = out / CHECKPOINTS_FOLDER
    try:
        if not (folder / CHECKPOINT_SNAPSHOT_FILE).exists():
            return None
        latest = load_snapshot(folder / CHECKPOINT_SNAPSHOT_FILE).latest_checkpoint_result
        if latest is None:
            return None
        newest = folder / latest.checkpoint_dir_name
        require_matching_weights(newest, build_model())
        for path in find_error_files(newest, config):
            require_whole(path)
        laps = load_laps(newest / LAPS_FILE)
        if config.sync_method.kind == "async":
            load_arrivals(newest / ARRIVALS_FILE, config, laps)
        return laps[-1]
    except (StoreUnavailable, PermissionError):
        raise
    except (OSError, SafetensorError, EquipoiseError) as error:
        raise EquipoiseError(
            "run-damaged",
            f"cannot resume {out}: its checkpoint is unusable ({error})",
            f"remove {folder} to train from the start",
        ) from error


def load_snapshot(path: Path) -> CheckpointSnapshot:
    """Read Ray Train's list of the checkpoints of a run."""
    return decode_json_value(
        read_json(path), CheckpointSnapshot, code="run-damaged", problem=f"cannot read {path}: it is damaged"
    )


def require_matching_weights(folder: Path, model: nn.Module) -> None:
    """Refuse a checkpoint that is damaged or holds the weights of another model."""
    shapes = read_shapes(folder)
    for name, value in collect_weights(model).items():
        if shapes.get(f"model.{name}") != list(value.shape):
            raise EquipoiseError(
                "run-mismatch",
                f"{folder / TRAINING_STATE_FILE} holds another model: {name} is {shapes.get(f'model.{name}')}, not"
                f" {[*value.shape]}",
            )


def read_shapes(folder: Path) -> dict[str, list[int]]:
    """Return the shape of each whole tensor of a checkpoint, whichever workers hold parts of it."""
    shapes: dict[str, list[int]] = {}
    with open_local_copy(folder / TRAINING_STATE_FILE) as first:
        workers = read_num_parts(first)
    for rank in range(workers):
        with open_local_copy(folder / state_file_name(rank, workers)) as file, safe_open(file, "pt") as stored:
            part = open_state_part(stored)
            for name in part.tensors:
                place = part.slices.get(name)
                shapes[name] = list(place.shape) if place else stored.get_slice(name).get_shape()
    return shapes


def require_whole(path: Path) -> None:
    """Refuse a file that is not one of safetensors, or was cut."""
    with open_local_copy(path) as file, safe_open(file, "pt"):
        pass  # the header says how long the file has to be


class CheckpointPacer:
    """Timer of checkpoints: one a second, or fewer where saving would take more than a twentieth of the time."""

    def __init__(self) -> None:
        self.last_save_at = time.monotonic()
        self.save_seconds: deque[float] = deque([0.0], maxlen=3)

    def is_due(self) -> bool:
        """Return whether the last save was long enough ago."""
        return time.monotonic() - self.last_save_at > max(1.0, 20 * statistics.median(self.save_seconds))

    @contextmanager
    def measure_save(self) -> Iterator[None]:
        """Measure the duration of the save in the `with` block."""
        start = time.monotonic()
        yield
        self.last_save_at = time.monotonic()
        self.save_seconds.append(self.last_save_at - start)  # the median ignores one that waited for a store
