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
from equipoise.storage import atomic as store
from equipoise.storage.retry import Away

FOLDER, SNAPSHOT = "checkpoints", "checkpoint_manager_snapshot.json"  # Ray Train's list of what it kept
STATE, LAPS = "state.safetensors", "laps.json"


def last_lap(out: Path, model: Callable[[], nn.Module]) -> Lap | None:
    """Return the lap after which a run in `out` would go on, or None if it would start anew.

    Refuse checkpoints that cannot be gone on from.
    """
    kept = out / FOLDER
    try:
        if not (kept / SNAPSHOT).exists():
            return None
        facts = store.read_json(kept / SNAPSHOT)
        latest = facts["latest_checkpoint_result"]
        if latest is None:
            return None
        _ = [(one["checkpoint_dir_name"], one["metrics"]) for one in facts["checkpoint_results"]]  # Ray reads them all
        newest = kept / latest["checkpoint_dir_name"]
        require_weights(newest / STATE, model())
        return [Lap.from_json(lap) for lap in store.read_json(newest / LAPS)][-1]
    except (Away, PermissionError):
        raise
    except (AttributeError, IndexError, KeyError, OSError, SafetensorError, TypeError, ValueError) as error:
        raise ValueError(f"{out} cannot be gone on from ({error}): remove {kept} to train from the start") from error


def require_weights(path: Path, model: nn.Module) -> None:
    """Refuse a file that is damaged, or that holds the weights of another model."""
    with store.fetched(path) as file, safe_open(file, "pt") as held:
        shapes = {name: held.get_slice(name).get_shape() for name in held.keys()}  # noqa: SIM118  # not a mapping
    for name, value in model.state_dict().items():
        if shapes.get(f"model.{name}") != list(value.shape):
            raise ValueError(
                f"{path} holds another model: {name} is {shapes.get(f'model.{name}')}, not {[*value.shape]}"
            )


class Pace:
    """Decide when to save: once a second, or less often where saving would take over a twentieth of the time."""

    def __init__(self) -> None:
        self.last = time.monotonic()
        self.costs: deque[float] = deque([0.0], maxlen=3)

    def due(self) -> bool:
        """Return whether the last save is long enough ago."""
        return time.monotonic() - self.last > max(1.0, 20 * statistics.median(self.costs))

    @contextmanager
    def timed(self) -> Iterator[None]:
        """Measure the save in the block."""
        start = time.monotonic()
        yield
        self.last = time.monotonic()
        self.costs.append(self.last - start)  # one that waited for a store that was away does not count
