"""Devices and dollars in the terminal text of a plan."""

from equipoise.formatting import format_number
from equipoise.planning.devices.device_sections import find_soonest_options
from equipoise.planning.document import PlanDocument, PredictedSetting


def format_kind(device: str | None) -> str:
    """Format the kind of worker as the end of a phrase; empty where the table names none."""
    return f", on {device}" if device else ""


def has_dollars(document: PlanDocument) -> bool:
    """Return whether a setting of the front, or the plan, has a cost in dollars."""
    return any(setting and setting.dollars is not None for setting in (document.plan, *document.front))


def format_dollars(setting: PredictedSetting, document: PlanDocument) -> str:
    """Format the cost of a setting in dollars as a column, empty where only others have a price."""
    if not has_dollars(document):
        return ""
    return f"  {'' if setting.dollars is None else format_number(setting.dollars, 4):>10}"


def format_soonest_options(document: PlanDocument, global_batch: int) -> str:
    """Format the shortest time on each device at a global batch as the end of a phrase; empty without devices."""
    times = [
        f"{format_number(option.seconds.value, 4)} s at best{format_kind(device)}"
        for device, option in find_soonest_options(document, global_batch).items()
        if device
    ]
    return f"; {'; '.join(times)}" if times else ""
