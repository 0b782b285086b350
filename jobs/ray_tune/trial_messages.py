"""What the driver of a sweep and the processes of its trials send each other, as Ray Tune's dictionaries."""

import math
from dataclasses import dataclass, fields

from equipoise.config import TrainConfig
from equipoise.type_aliases import JsonObject


@dataclass(frozen=True, kw_only=True)
class TrialWorkerConfig:
    """Trial that a process has to run."""

    trial: TrainConfig
    path: str
    """file or URL of its record"""
    gpu: bool

    @classmethod
    def from_dict(cls, contents: JsonObject) -> "TrialWorkerConfig":
        """Build the configuration from the one that Ray Tune passes on."""
        return cls(trial=TrainConfig(**contents["trial"]), path=contents["path"], gpu=contents["gpu"])


@dataclass(frozen=True, kw_only=True)
class TrialMetrics:
    """Metrics that a trial reports, to the driver and to trackers; the defaults stand for a trial without a report."""

    seen: int = 0
    """examples seen"""
    metric: float = math.nan
    """last metric on the validation split; no number before the first evaluation"""
    loss: float = math.nan
    """mean training loss of the last lap"""
    busy: float = 0.0
    """seconds of training and evaluation since the last report"""
    done: bool = False
    fresh: bool = False
    """whether it is the first trial of its process"""
    since: float = 0.0
    """seconds since its process was ready"""
    places: str = ""
    """id of the placement group of its workers; empty for a single worker"""

    @classmethod
    def from_result(cls, result: JsonObject) -> "TrialMetrics":
        """Select the metrics from a result of Ray Tune, which adds its own."""
        return cls(**{field.name: result[field.name] for field in fields(cls) if field.name in result})
