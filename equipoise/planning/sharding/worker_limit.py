"""Memory that a worker may use, and what it needs by closed form with each way of exchange."""

from dataclasses import dataclass, replace

import pandas as pd

from equipoise.config import TrainConfig
from equipoise.errors import EquipoiseError
from equipoise.planning.exchanges.training_options import replace_exchange
from equipoise.planning.memory.measured_peaks import find_peak
from equipoise.planning.memory.model_sizes import ModelSizes
from equipoise.planning.memory.worker_memory import WorkerMemory, predict_worker_memory


@dataclass(frozen=True, kw_only=True)
class WorkerLimit:
    """Limit of a worker's memory, with what the closed form of its need takes."""

    limit_bytes: float
    """most bytes of a worker"""
    sizes: ModelSizes
    """sizes of the model"""
    config: TrainConfig
    """options of the runs, whatever their workers, batch and way of exchange"""
    has_gpu: bool = False
    """whether workers compute on a GPU"""

    def fill_peaks(self, steps: pd.DataFrame) -> pd.DataFrame:
        """Return step times with exact sums, with predicted peaks where none was measured."""
        predicted = [
            self.predict_peak("", int(workers), int(batch))
            for workers, batch in steps[["workers", "batch"]].itertuples(index=False)
        ]
        measured = steps.peak_bytes.astype(float) if "peak_bytes" in steps else pd.Series(float("nan"), steps.index)
        return steps.assign(peak_bytes=measured.fillna(pd.Series(predicted, steps.index)))

    def predict_peak(self, name: str, workers: int, batch: int, steps: pd.DataFrame | None = None) -> float:
        """Return the bytes that a worker needs with a way of exchange.

        What exact sums took beyond their closed form in `steps`, or less, is added.
        """
        exact = self._predict("", workers, batch)
        measured = None if steps is None else find_peak(steps, workers, batch)
        return max(0.0, self._predict(name, workers, batch) + (exact if measured is None else measured) - exact)

    def can_use(self, name: str, workers: int) -> bool:
        """Return whether the options of the runs allow a way of exchange on so many workers."""
        try:
            replace_exchange(replace(self.config, workers=workers), name)
        except EquipoiseError:
            return False
        return True

    def predict_parts(self, name: str, workers: int, batch: int) -> WorkerMemory:
        """Return the bytes that a worker needs with a way of exchange by its closed form, by part."""
        config = replace_exchange(replace(self.config, workers=workers, batch_size=batch), name)
        return predict_worker_memory(self.sizes, config, has_gpu=self.has_gpu)

    def _predict(self, name: str, workers: int, batch: int) -> float:
        return self.predict_parts(name, workers, batch).total
