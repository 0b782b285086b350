"""Step times on another network: the fitted delay and rate of the slowest links, replaced by other ones.

    alpha  = delay                      seconds a message
    volume = 8 * gradient_bytes / rate  seconds to send the gradient once

What was measured at a setting beyond the fit holds there on every network; bootstrap draws keep their spread.
"""

from dataclasses import dataclass, replace

from equipoise.errors import EquipoiseError
from equipoise.planning.step_time_fit import StepTimeFit
from equipoise.planning.step_time_model import StepSettings

MIN_DELAY_SECONDS = 1e-9  # of a fitted delay, below which its draws cannot be scaled


@dataclass(frozen=True)
class LinkChange:
    """Delay and rate of the slowest links to plan for; None for what was measured."""

    delay_seconds: float | None = None
    """seconds a message"""
    bits_per_second: float | None = None

    @property
    def is_empty(self) -> bool:
        """Whether both are as measured."""
        return self.delay_seconds is None and self.bits_per_second is None


def find_slow_level(fit: StepTimeFit) -> str:
    """Return the level of the slowest links that were measured: `between` nodes, or `local`."""
    return "between" if fit.form.between_terms else "local"


def find_link_delay(fit: StepTimeFit) -> float | None:
    """Return the fitted seconds a message of the slowest links; None where they cannot be told from their rate."""
    return fit.parameters.get(f"{find_slow_level(fit)}_alpha")


def find_link_rate(fit: StepTimeFit) -> float | None:
    """Return the fitted bits per second of the slowest links; None where the bytes sent are unknown."""
    volume, size = fit.parameters.get(f"{find_slow_level(fit)}_volume"), fit.gradient_bytes
    return 8 * size / volume if volume and size else None


def move_to_links(fit: StepTimeFit, change: LinkChange) -> StepTimeFit:
    """Return a fit with other slowest links; refuse what the measurements do not tell."""
    level, delay, rate = find_slow_level(fit), find_link_delay(fit), find_link_rate(fit)
    factors: dict[str, float] = {}
    parameters = {**fit.parameters}
    if change.delay_seconds is not None:
        if delay is None:
            raise EquipoiseError(
                "option-conflict",
                "cannot plan for another delay: the step times do not tell delays from rates",
                "time one more number of workers, or exchanges alone",
            )
        parameters[f"{level}_alpha"] = change.delay_seconds
        factors[f"{level}_alpha"] = change.delay_seconds / max(delay, MIN_DELAY_SECONDS)
    if change.bits_per_second is not None:
        if rate is None or fit.gradient_bytes is None:
            raise EquipoiseError(
                "option-conflict",
                "cannot plan for another rate: the step times do not tell what the links carry",
                "time several workers, with a column gradient_bytes",
            )
        parameters[f"{level}_volume"] = 8 * fit.gradient_bytes / change.bits_per_second
        factors[f"{level}_volume"] = rate / change.bits_per_second
    draws = [draw | {name: draw[name] * factor for name, factor in factors.items()} for draw in fit.parameter_draws]
    moved = replace(fit, parameters=parameters, parameter_draws=draws)
    settings = StepSettings.from_table(fit.rows)
    ratios = moved.fitted_seconds(settings) / fit.fitted_seconds(settings)
    return replace(moved, rows=fit.rows.assign(seconds=fit.rows.seconds.to_numpy(float) * ratios))
