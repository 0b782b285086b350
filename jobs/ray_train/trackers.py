"""Experiment trackers: which there are, what they need, and Ray Tune's callbacks that show the trials of a sweep."""

import importlib.util
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from equipoise.errors import EquipoiseError
from equipoise.storage.object_store import RemotePath

if TYPE_CHECKING:
    from ray.tune import Callback  # takes a second to import, and single runs do without it

TRACKER_PROJECT = "equipoise"
TrackerName = Literal["tensorboard", "mlflow", "wandb"]
BUNDLED_TRACKER: TrackerName = "tensorboard"  # its writer comes with ray[tune]


def require_usable_tracker(tracker: TrackerName | None, out: Path) -> None:
    """Refuse a tracker that is not installed or cannot write to `out`."""
    if tracker is None:
        return
    if isinstance(out, RemotePath) and tracker != "wandb":
        raise EquipoiseError(
            "option-conflict",
            f"--track {tracker} writes files beside the results, which a URL cannot hold",
            "give a folder as --out",
        )
    if tracker != BUNDLED_TRACKER and not is_installed(tracker):
        raise EquipoiseError(
            "package-missing",
            f"--track {tracker} needs the package {tracker}",
            f"install it beside equipoise (pip install {tracker})",
        )


def is_installed(package: str) -> bool:
    """Return whether a package can be imported; a folder of its name in the working directory does not count."""
    spec = importlib.util.find_spec(package)
    return spec is not None and spec.origin is not None


def build_tracker_callbacks(tracker: TrackerName | None, out: Path) -> "list[Callback]":
    """Build the Ray Tune callbacks of a tracker; refuse one that is not installed or cannot write to `out`."""
    require_usable_tracker(tracker, out)
    if tracker is None:
        return []
    if tracker == "tensorboard":
        from ray.tune.logger import TBXLoggerCallback

        return [TBXLoggerCallback()]
    if tracker == "mlflow":
        from ray.air.integrations.mlflow import MLflowLoggerCallback

        return [MLflowLoggerCallback(tracking_uri=f"sqlite:///{out / 'mlflow.db'}", experiment_name=TRACKER_PROJECT)]
    from ray.air.integrations.wandb import WandbLoggerCallback

    return [WandbLoggerCallback(project=TRACKER_PROJECT)]
