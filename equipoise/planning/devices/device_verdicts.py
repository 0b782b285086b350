"""How the best settings on two devices compare, and what a plan says of each device."""

from equipoise.planning.devices.device_candidates import DeviceCandidate
from equipoise.planning.devices.device_fit import DeviceFit
from equipoise.planning.devices.device_rows import format_device
from equipoise.planning.document import PlanEntry


def build_device_fit(candidate: DeviceCandidate, chosen: DeviceCandidate) -> DeviceFit:
    """Build the entry of a device, with its verdict against the one of the plan."""
    system, plan = candidate.system, candidate.document.plan
    return DeviceFit(
        device=candidate.device or None,
        identifiable=system.identifiable,
        missing=system.missing,
        parameters=system.parameters,
        error=system.error,
        exchange=system.exchange,
        bits_per_second=system.bits_per_second,
        price=candidate.price,
        seconds=plan.seconds if plan else None,
        worker_seconds=plan.worker_seconds if plan else None,
        dollars=plan.dollars if plan else None,
        verdict="" if candidate is chosen else compare_plans(plan, chosen.document.plan),
    )


def compare_plans(plan: PlanEntry | None, other: PlanEntry | None) -> str:
    """Say how many times sooner the faster of two plans is, and how its cost compares; empty without both."""
    if plan is None or other is None:
        return ""
    faster, slower = sorted((plan, other), key=lambda entry: entry.seconds.value)
    text = f"{format_device(faster.device)}: {slower.seconds.value / faster.seconds.value:.2g} times sooner"
    name = format_device(slower.device)
    if faster.dollars is None or slower.dollars is None:
        return f"{text} than {name}"
    return f"{text}, {faster.dollars / slower.dollars:.2g} times the cost of {name}"
