"""Text of what was observed: where the time of a step went, and how large the noise scale is."""

from collections.abc import Sequence

from equipoise.formatting import pluralize
from equipoise.runs.record import Lap, mean_noise_scale

HIDDEN_BY_NOISE = "its measurements are too few to tell it from noise; train longer, or lower noise_scale_every"


def format_observation(laps: Sequence[Lap], noise_scale_reason: str | None) -> str:
    """Format laps as two lines: milliseconds of a step by part, and the noise scale or why there is none."""
    return f"{format_step_parts(laps)}\nnoise scale: {format_noise_scale(laps, noise_scale_reason)}"


def format_step_parts(laps: Sequence[Lap]) -> str:
    """Format the mean milliseconds of a step by part."""
    steps = sum(lap.steps for lap in laps)
    if not steps:
        return "no steps"
    parts = ("compute", "exchange", "data")
    seconds = {part: sum(getattr(lap, f"{part}_seconds") or 0.0 for lap in laps) for part in parts}
    times = ", ".join(f"{part} {1000 * value / steps:.3g} ms" for part, value in seconds.items())
    return f"{pluralize(steps, 'step')} of {laps[-1].examples // laps[-1].steps} examples: {times}"


def format_noise_scale(laps: Sequence[Lap], reason: str | None) -> str:
    """Format the noise scale over all laps, or why there is none."""
    if noise := mean_noise_scale(laps):
        return f"about {noise:,.0f} examples"
    is_measured = any(lap.draws for lap in laps)
    return f"not known: {HIDDEN_BY_NOISE if is_measured else reason}"
