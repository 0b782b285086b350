"""What an earlier command left to go on from, looked at before any worker is started for it."""

from collections.abc import Callable
from pathlib import Path

from safetensors import SafetensorError, safe_open
from torch import nn

from equipoise.runs.record import Lap
from equipoise.storage import atomic as store
from equipoise.storage.object_store import Away

FOLDER, SNAPSHOT = "checkpoints", "checkpoint_manager_snapshot.json"  # Ray Train's list of what it kept
STATE, LAPS = "state.safetensors", "laps.json"


def last_lap(out: Path, model: Callable[[], nn.Module]) -> Lap | None:
    """The lap after which a run in `out` would go on; None if it would start. Refuses what cannot be gone on from."""
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
