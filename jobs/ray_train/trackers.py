"""Experiment trackers that show the trials of a sweep, through Ray Tune's own callbacks."""

import importlib.util
from pathlib import Path

from ray.tune import Callback

from equipoise.errors import EquipoiseError
from equipoise.storage.object_store import RemotePath

TRACKER_PROJECT = "equipoise"


def build_tracker_callbacks(tracker: str | None, out: Path) -> list[Callback]:
    """Build the Ray Tune callbacks of a tracker; refuse one that is not installed or cannot write to `out`."""
    if tracker is None:
        return []
    if isinstance(out, RemotePath) and tracker != "wandb":
        raise EquipoiseError(
            "option-conflict",
            f"--track {tracker} writes files beside the results, which a URL cannot hold",
            "give a folder as --out",
        )
    if tracker == "tensorboard":
        from ray.tune.logger import TBXLoggerCallback  # comes with ray[tune]

        return [TBXLoggerCallback()]
    if importlib.util.find_spec(tracker) is None:
        raise EquipoiseError(
            "package-missing",
            f"--track {tracker} needs the package {tracker}",
            f"install it beside equipoise (pip install {tracker})",
        )
    if tracker == "mlflow":
        from ray.air.integrations.mlflow import MLflowLoggerCallback

        return [MLflowLoggerCallback(tracking_uri=f"sqlite:///{out / 'mlflow.db'}", experiment_name=TRACKER_PROJECT)]
    from ray.air.integrations.wandb import WandbLoggerCallback

    return [WandbLoggerCallback(project=TRACKER_PROJECT)]
