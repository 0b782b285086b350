"""Where else the trials of a sweep are shown, by Ray Tune's own callbacks."""

import importlib.util
from pathlib import Path

from ray.tune import Callback

from equipoise.storage.object_store import Url

PROJECT = "equipoise"


def callbacks(name: str | None, out: Path) -> list[Callback]:
    """The callbacks of a tracker; one sentence where it is not installed."""
    if name is None:
        return []
    if isinstance(out, Url) and name != "wandb":
        raise ValueError(f"--track {name} writes files beside the results, which a URL takes none of: give a folder")
    if name == "tensorboard":
        from ray.tune.logger import TBXLoggerCallback  # comes with ray[tune]

        return [TBXLoggerCallback()]
    if importlib.util.find_spec(name) is None:
        raise ValueError(f"--track {name}: the package is not here; install it beside equipoise (pip install {name})")
    if name == "mlflow":
        from ray.air.integrations.mlflow import MLflowLoggerCallback

        return [MLflowLoggerCallback(tracking_uri=f"sqlite:///{out / 'mlflow.db'}", experiment_name=PROJECT)]
    from ray.air.integrations.wandb import WandbLoggerCallback

    return [WandbLoggerCallback(project=PROJECT)]
