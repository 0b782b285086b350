"""Energy of a step: what workers draw while it lasts, and what each example adds.

    joules of a step = workers * (static_watts * seconds + joules_per_example * batch)

Both are fitted to the column `joules` of step times, in relative errors and not below 0. A measured setting has its
measured joules, unless its workers exchange in another way. Without the column a power of each worker may be assumed.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np
import pandas as pd
from scipy.optimize import nnls

from equipoise.errors import EquipoiseError

SETTING_COLUMNS = ["nodes", "workers", "batch"]


@dataclass(frozen=True, kw_only=True)
class StepEnergy:
    """Joules of a step by its setting, from measurements or from an assumed power."""

    static_watts: float
    """watts of a worker that do not depend on the examples"""
    joules_per_example: float = 0.0
    """joules that each example adds"""
    measured: Mapping[tuple[int, int, int], float] = field(default_factory=dict, repr=False)
    """mean joules of a step that was measured, by nodes, workers and batch"""

    def estimate_joules(
        self, nodes: int, workers: int, batch: int, step_seconds: float, *, has_exact_sums: bool = True
    ) -> float:
        """Return the joules of one step of all workers; those that were measured are of steps with exact sums."""
        fitted = workers * (self.static_watts * step_seconds + self.joules_per_example * batch)
        return self.measured.get((nodes, workers, batch), fitted) if has_exact_sums else fitted


def assume_power(watts: float | None) -> StepEnergy | None:
    """Return the energy of workers that draw so many watts all the time; None for an unknown power."""
    return None if watts is None else StepEnergy(static_watts=watts)


def require_one_energy_source(steps: pd.DataFrame | None, watts: float | None) -> None:
    """Refuse an assumed power beside measured joules."""
    if watts is not None and steps is not None and "joules" in steps and steps.joules.notna().any():
        raise EquipoiseError(
            "option-conflict", "cannot assume --watts: --system has measured energies, in its column joules", "omit it"
        )


def fit_step_energy(steps: pd.DataFrame | None) -> StepEnergy | None:
    """Fit the joules of step times with exact sums; None where the table has none."""
    if steps is None or "joules" not in steps:
        return None
    exact = steps if "exchange" not in steps else steps[steps.exchange == ""]
    rows = exact[exact.joules.notna()]
    if rows.empty:
        return None
    by_setting = rows.groupby(SETTING_COLUMNS)[["seconds", "joules"]].mean().reset_index()
    design = np.stack([by_setting.workers * by_setting.seconds, by_setting.workers * by_setting.batch], axis=1)
    joules = by_setting.joules.to_numpy(float)
    (watts, per_example), _ = nnls(design / joules[:, None], np.ones(len(joules)))
    return StepEnergy(
        static_watts=float(watts),
        joules_per_example=float(per_example),
        measured=dict(
            zip(map(tuple, by_setting[SETTING_COLUMNS].astype(int).to_numpy().tolist()), joules.tolist(), strict=True)
        ),
    )
