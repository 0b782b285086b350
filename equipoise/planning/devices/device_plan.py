"""Plans from step times of several kinds of workers: each is fitted by itself, and their settings are compared.

Training runs are shared, because a step learns the same on every device. With prices the Pareto front is of time
against dollars. Without them a worker-second of one device cannot be compared with one of another: then the devices are
compared by time alone, and the front holds that of each device.
"""

from collections.abc import Sequence
from dataclasses import replace

from equipoise.planning.build_document import PlanRequest
from equipoise.planning.devices.device_candidates import DeviceCandidate, plan_each_device
from equipoise.planning.devices.device_prices import CostLimits, list_unpriced_devices, require_known_devices
from equipoise.planning.devices.device_rows import format_device, list_devices
from equipoise.planning.devices.device_verdicts import build_device_fit
from equipoise.planning.devices.pareto import find_front_indices, find_knee_index
from equipoise.planning.document import PlanDocument, PredictedSetting
from equipoise.planning.energy.plan_energy import add_energy_front
from equipoise.planning.energy.step_energy import require_one_energy_source
from equipoise.planning.exchanges.exchange_plan import ExchangePlan, ExchangeRequest, build_exchange_plan
from equipoise.planning.sections.examples_types import ExamplesSection
from equipoise.planning.sections.step_time_types import StepTimeSection


def build_device_plan(request: PlanRequest, wanted: ExchangeRequest, limits: CostLimits) -> ExchangePlan:
    """Build a plan from tables whose step times may be of several devices, with prices and a budget."""
    devices = list_devices(request.system)
    require_known_devices(limits.prices, devices)
    require_one_energy_source(request.system, limits.watts)
    if not devices:
        return build_exchange_plan(request, wanted)
    candidates = plan_each_device(request, wanted, limits)
    if devices == [""]:
        return ExchangePlan(add_energy_front(candidates[0].document, limits.watts), candidates[0].request)
    chosen = choose_device(candidates, by_cost=request.deadline_seconds is not None)
    document = join_device_plans(candidates, chosen, limits)
    return ExchangePlan(add_energy_front(document, limits.watts), chosen.request)


def choose_device(candidates: Sequence[DeviceCandidate], by_cost: bool) -> DeviceCandidate:
    """Return the candidate whose plan is the fastest, or the cheapest in dollars; the first one if none has a plan."""
    compares_cost = by_cost and costs_are_comparable(candidates)
    ranks = []
    for index, candidate in enumerate(candidates):
        if plan := candidate.document.plan:
            costs = (plan.seconds.value, plan.dollars or 0.0)
            ranks.append((costs[::-1] if compares_cost else costs, index))
    return candidates[min(ranks)[1]] if ranks else candidates[0]


def costs_are_comparable(candidates: Sequence[DeviceCandidate]) -> bool:
    """Return whether all devices that can be planned with have a price, or there is only one of them."""
    with_options = [candidate for candidate in candidates if candidate.document.options]
    return len(with_options) < 2 or all(candidate.price is not None for candidate in with_options)


def join_device_plans(
    candidates: Sequence[DeviceCandidate], chosen: DeviceCandidate, limits: CostLimits
) -> PlanDocument:
    """Return the document of the chosen device with the settings, the fits and the warnings of all devices."""
    front, knee = join_fronts(candidates, chosen.document)
    return replace(
        add_verdicts(chosen, candidates),
        front=front,
        knee=knee,
        options=tuple(option for candidate in candidates for option in candidate.document.options),
        statistical=join_examples(candidates),
        warnings=tuple(join_warnings(candidates, chosen, limits)),
    )


def join_fronts(
    candidates: Sequence[DeviceCandidate], chosen: PlanDocument
) -> tuple[tuple[PredictedSetting, ...], PredictedSetting | None]:
    """Return the Pareto front of time against dollars with its knee; without prices the front of each device."""
    settings = [setting for candidate in candidates for setting in candidate.document.front]
    if sum(bool(candidate.document.front) for candidate in candidates) < 2:
        return tuple(settings), chosen.knee
    points = [(setting.seconds.value, setting.dollars) for setting in settings if setting.dollars is not None]
    if len(points) < len(settings):
        return tuple(sorted(settings, key=lambda setting: setting.seconds.value)), None
    indices = find_front_indices(points)
    knee = find_knee_index([points[index] for index in indices])
    return tuple(settings[index] for index in indices), None if knee is None else settings[indices[knee]]


def add_verdicts(chosen: DeviceCandidate, candidates: Sequence[DeviceCandidate]) -> PlanDocument:
    """Return the document of the chosen device with the fit of each device, and how that compares."""
    fits = tuple(build_device_fit(candidate, chosen) for candidate in candidates)
    others = [candidate.system for candidate in candidates if candidate is not chosen]
    predictions = (row for section in (chosen.system, *others) for row in section.predictions)
    system: StepTimeSection = replace(chosen.system, devices=fits, predictions=tuple(predictions))
    return replace(chosen.document, system=system)


def join_examples(candidates: Sequence[DeviceCandidate]) -> ExamplesSection | None:
    """Return the section on examples, which all devices share, with the predictions of all global batches."""
    sections = [section for candidate in candidates if (section := candidate.document.statistical)]
    if not sections:
        return None
    predictions = {row.global_batch: row for section in sections for row in section.predictions}
    ordered = tuple(predictions[global_batch] for global_batch in sorted(predictions))
    return replace(sections[0], predictions=ordered)


def join_warnings(candidates: Sequence[DeviceCandidate], chosen: DeviceCandidate, limits: CostLimits) -> list[str]:
    """Return the warnings of the chosen device, what keeps others from having a plan, and which prices are missing."""
    warnings = list(chosen.document.warnings) if chosen.document.plan else []
    shared = common_warnings(candidates)
    for candidate in candidates:
        if candidate.document.plan is None:
            name = format_device(candidate.device)
            warnings += [f"{name}: {text}" for text in candidate.document.warnings if text not in shared]
    warnings += [text for text in shared if text not in warnings]
    unpriced = list_unpriced_devices(limits.prices, [candidate.device for candidate in candidates])
    if not costs_are_comparable(candidates):
        warnings.append(
            "devices are compared by time alone, because worker-seconds of different devices are different costs: give"
            f" --price for {' and '.join(unpriced)} to compare costs across devices"
        )
    return warnings


def common_warnings(candidates: Sequence[DeviceCandidate]) -> list[str]:
    """Return the warnings that all devices have, in order."""
    first, *others = (candidate.document.warnings for candidate in candidates)
    return [text for text in first if all(text in texts for texts in others)]
