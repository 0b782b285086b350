"""The section on step times of each device of a plan, and the best setting of each at a global batch."""

from dataclasses import replace

from equipoise.planning.document import PlanDocument, PlanOptionEntry
from equipoise.planning.sections.step_time_types import StepTimeSection


def split_section(section: StepTimeSection) -> list[StepTimeSection]:
    """Return the section of each device in turn; the section itself where the table names no devices."""
    if not section.devices:
        return [section]
    return [
        replace(
            section,
            device=fit.device,
            identifiable=fit.identifiable,
            missing=fit.missing,
            parameters=fit.parameters,
            error=fit.error,
            exchange=fit.exchange,
            bits_per_second=fit.bits_per_second,
        )
        for fit in section.devices
    ]


def find_section(section: StepTimeSection, device: str | None) -> StepTimeSection:
    """Return the section of a device; the section itself if it has no such device."""
    return next((part for part in split_section(section) if part.device == device), section)


def find_soonest_options(document: PlanDocument, global_batch: int) -> dict[str | None, PlanOptionEntry]:
    """Return the fastest setting of each device at a global batch, in the order of the devices."""
    soonest: dict[str | None, PlanOptionEntry] = {}
    for option in document.options:
        if option.global_batch == global_batch:
            best = soonest.setdefault(option.device, option)
            if option.seconds.value < best.seconds.value:
                soonest[option.device] = option
    return soonest
