"""Say when to keep a checkpoint, and look at what an earlier command kept before any worker is started for it."""

import statistics
import time
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from safetensors import SafetensorError, safe_open
from torch import nn

from equipoise.runs.record import Lap
from equipoise.storage.atomic import open_local_copy, read_json
from equipoise.storage.retry import StoreUnavailable

CHECKPOINTS_FOLDER, CHECKPOINT_SNAPSHOT_FILE = (
    "checkpoints",
    "checkpoint_manager_snapshot.json",
)  # Ray Train's list of what it kept
TRAINING_STATE_FILE, LAPS_FILE = "state.safetensors", "laps.json"


def find_last_lap(out: Path, build_model: Callable[[], nn.Module]) -> Lap | None:
    """Return the lap after which a run in `out` would go on, or None if it would start anew.

    Refuse checkpoints that cannot be gone on from.
    """
    kept = out / CHECKPOINTS_FOLDER
    try:
        if not (kept / CHECKPOINT_SNAPSHOT_FILE).exists():
            return None
        facts = read_json(kept / CHECKPOINT_SNAPSHOT_FILE)
        latest = facts["latest_checkpoint_result"]
        if latest is None:
            return None
        _ = [(one["checkpoint_dir_name"], one["metrics"]) for one in facts["checkpoint_results"]]  # Ray reads them all
        newest = kept / latest["checkpoint_dir_name"]
        require_matching_weights(newest / TRAINING_STATE_FILE, build_model())
        return [Lap.from_json(lap) for lap in read_json(newest / LAPS_FILE)][-1]
    except (StoreUnavailable, PermissionError):
        raise
    except (AttributeError, IndexError, KeyError, OSError, SafetensorError, TypeError, ValueError) as error:
        raise ValueError(f"{out} cannot be gone on from ({error}): remove {kept} to train from the start") from error


def require_matching_weights(path: Path, model: nn.Module) -> None:
    """Refuse a file that is damaged, or that holds the weights of another model."""
    with open_local_copy(path) as file, safe_open(file, "pt") as held:
        shapes = {name: held.get_slice(name).get_shape() for name in held.keys()}  # noqa: SIM118  # not a mapping
    for name, value in model.state_dict().items():
        if shapes.get(f"model.{name}") != list(value.shape):
            raise ValueError(
                f"{path} holds another model: {name} is {shapes.get(f'model.{name}')}, not {[*value.shape]}"
            )


class CheckpointPacer:
    """Decide when to save: once a second, or less often where saving would take over a twentieth of the time."""

    def __init__(self) -> None:
        self.last_save_at = time.monotonic()
        self.save_seconds: deque[float] = deque([0.0], maxlen=3)

    def is_due(self) -> bool:
        """Return whether the last save is long enough ago."""
        return time.monotonic() - self.last_save_at > max(1.0, 20 * statistics.median(self.save_seconds))

    @contextmanager
    def measure_save(self) -> Iterator[None]:
        """Measure the save in the block."""
        start = time.monotonic()
        yield
        self.last_save_at = time.monotonic()
        self.save_seconds.append(self.last_save_at - start)  # one that waited for a store that was away does not count
