"""A plan for each device of a table of step times, from its own rows and the training runs that all devices share."""

from dataclasses import dataclass, field, replace
from typing import TypeVar

from equipoise.errors import EquipoiseError
from equipoise.formatting import format_number
from equipoise.planning.build_document import PlanRequest
from equipoise.planning.devices.device_prices import CostLimits, convert_to_dollars
from equipoise.planning.devices.device_rows import format_device, list_devices, select_device_rows, select_network_rows
from equipoise.planning.document import PlanDocument, PredictedSetting
from equipoise.planning.energy.plan_energy import label_energy
from equipoise.planning.energy.step_energy import assume_power, fit_step_energy
from equipoise.planning.exchanges.exchange_plan import ExchangePlan, ExchangeRequest, build_exchange_plan
from equipoise.planning.sections.step_time_types import StepTimeSection

SettingT = TypeVar("SettingT", bound=PredictedSetting)


@dataclass(frozen=True, kw_only=True, eq=False)
class DeviceCandidate:
    """Plan on one device, and the measurements that it rests on."""

    device: str
    """name of the device; empty for rows without one"""
    price: float | None
    """dollars that a worker costs for an hour; None where it was not given"""
    request: PlanRequest = field(repr=False)
    """measurements on this device"""
    document: PlanDocument = field(repr=False)
    """plan on it"""

    @property
    def system(self) -> StepTimeSection:
        """Fit of the step times, which every device has, since it has rows."""
        if self.document.system is None:
            raise ValueError(f"{format_device(self.device)} has no step times")
        return self.document.system


def plan_each_device(request: PlanRequest, wanted: ExchangeRequest, limits: CostLimits) -> list[DeviceCandidate]:
    """Plan on each device within the limits; one whose cost cannot be told within a budget gets no plan.

    Exchanges that are predicted on none of the devices are refused.
    """
    candidates, errors = [], []
    devices = list_devices(request.system)
    for device in devices:
        part = select_device_request(request, device, limits)
        own = replace(wanted, sums=select_network_rows(wanted.sums, device))
        try:
            plan = build_exchange_plan(part, own)
        except EquipoiseError as error:
            if not (wanted.names or wanted.rates):
                raise
            errors.append(error)
            plan = plan_without_predictions(part, own, error)
        candidates.append(build_candidate(plan, device, limits))
    if errors and len(errors) == len(devices):
        raise errors[0]
    return candidates


def select_device_request(request: PlanRequest, device: str, limits: CostLimits) -> PlanRequest:
    """Return the request with the rows of one device, and with what the budget buys of it."""
    if request.system is None:
        raise ValueError("a plan by device needs step times")
    return replace(
        request,
        system=select_device_rows(request.system, device).reset_index(drop=True),
        exchange=select_network_rows(request.exchange, device),
        budget_worker_seconds=limits.worker_seconds(device),
    )


def plan_without_predictions(request: PlanRequest, wanted: ExchangeRequest, error: EquipoiseError) -> ExchangePlan:
    """Plan on a device whose rows cannot tell the exchanges to predict; a plan at another rate is left out."""
    document, own_request = build_exchange_plan(request, ExchangeRequest(sums=wanted.sums))
    if document.system:
        system = replace(document.system, missing=(*document.system.missing, error.problem))
        document = replace(document, system=system)
    return ExchangePlan(remove_plan(document, error.problem) if wanted.rates else document, own_request)


def build_candidate(plan: ExchangePlan, device: str, limits: CostLimits) -> DeviceCandidate:
    """Build the candidate of a device, with its name and its cost in dollars in all entries of the plan."""
    price, document = limits.prices.find_price(device), plan.document
    if limits.budget_dollars is not None and price is None:
        example = f"{device}=1.2usd" if device else "an amount without a name"
        document = remove_plan(
            document, f"left out, because --price says nothing of it and --budget is given: add {example}"
        )
    document = explain_budget(label_document(document, device or None, price), limits)
    document = label_energy(document, fit_step_energy(plan.request.system) or assume_power(limits.watts))
    return DeviceCandidate(device=device, price=price, request=plan.request, document=document)


def explain_budget(document: PlanDocument, limits: CostLimits) -> PlanDocument:
    """Return a document without a plan with a sentence that compares its cheapest setting with the budget."""
    costs = [option.dollars for option in document.options if option.dollars is not None]
    if document.plan or not costs or limits.budget_dollars is None:
        return document
    cheapest, budget = format_number(min(costs), 4), format_number(limits.budget_dollars, 4)
    text = f"the cheapest setting costs {cheapest} dollars, and --budget has {budget}"
    return replace(document, warnings=(*document.warnings[:1], text, *document.warnings[1:]))


def remove_plan(document: PlanDocument, reason: str) -> PlanDocument:
    """Return a document with its fits alone, and with the reason why there is no plan as its warning."""
    return replace(
        document, plan=None, runner_up=None, front=(), options=(), knee=None, exchanges=(), warnings=(reason,)
    )


def label_document(document: PlanDocument, device: str | None, price: float | None) -> PlanDocument:
    """Return a document whose entries have the name of the device, and their cost in dollars where it has a price."""

    def label_setting(setting: SettingT) -> SettingT:
        dollars = None if price is None else convert_to_dollars(setting.worker_seconds, price)
        return replace(setting, device=device, dollars=dollars)

    plan, runner_up, knee, system = document.plan, document.runner_up, document.knee, document.system
    return replace(
        document,
        plan=plan and label_setting(plan),
        runner_up=runner_up and label_setting(runner_up),
        knee=knee and label_setting(knee),
        front=tuple(map(label_setting, document.front)),
        options=tuple(map(label_setting, document.options)),
        system=system and label_predictions(system, device),
    )


def label_predictions(system: StepTimeSection, device: str | None) -> StepTimeSection:
    """Return the section on step times with the name of the device, in its predictions too."""
    predictions = tuple(replace(row, device=device) for row in system.predictions)
    return replace(system, device=device, predictions=predictions)
