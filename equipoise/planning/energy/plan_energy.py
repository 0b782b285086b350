"""Energy to the target of every setting of a plan, and the setting that needs the least of it."""

from dataclasses import replace
from typing import TypeVar

from equipoise.formatting import format_joules, format_number, pluralize
from equipoise.planning.devices.pareto import find_front_indices
from equipoise.planning.document import PlanDocument, PlanEntry, PredictedSetting
from equipoise.planning.energy.step_energy import StepEnergy

SettingT = TypeVar("SettingT", bound=PredictedSetting)
MIN_SAVED_SHARE = 0.01  # of the energy of the plan, below which a more frugal setting is not worth a sentence


def label_energy(document: PlanDocument, energy: StepEnergy | None) -> PlanDocument:
    """Return a document whose settings have their energy to the target."""
    if energy is None:
        return document
    plan, runner_up, knee = document.plan, document.runner_up, document.knee
    return replace(
        document,
        plan=plan and add_joules(plan, energy),
        runner_up=runner_up and add_joules(runner_up, energy),
        knee=knee and add_joules(knee, energy),
        front=tuple(add_joules(setting, energy) for setting in document.front),
        options=tuple(add_joules(option, energy) for option in document.options),
    )


def add_joules(setting: SettingT, energy: StepEnergy) -> SettingT:
    """Return a setting with the energy of a single run to the target."""
    is_exact = not (isinstance(setting, PlanEntry) and setting.exchange)
    cluster = setting.nodes, setting.workers, setting.batch
    step = energy.estimate_joules(*cluster, setting.step.seconds, has_exact_sums=is_exact)
    return replace(setting, joules=setting.examples / setting.global_batch * step)


def add_energy_front(document: PlanDocument, assumed_watts: float | None = None) -> PlanDocument:
    """Return a document with the front of time against energy, and a sentence on the setting that needs the least."""
    known = [option for option in document.options if option.joules is not None]
    indices = find_front_indices([(option.seconds.value, option.joules or 0.0) for option in known])
    document = replace(document, energy_front=tuple(known[index] for index in indices))
    return replace(document, warnings=(*document.warnings, *describe_energy(document, assumed_watts)))


def describe_energy(document: PlanDocument, assumed_watts: float | None) -> list[str]:
    """Return a sentence on the energy of the plan, and on the setting that needs the least."""
    plan = document.plan
    if plan is None or plan.joules is None or not document.energy_front:
        return []
    frugal = document.energy_front[-1]
    source = "" if assumed_watts is None else f", assuming {format_number(assumed_watts, 4)} W a worker"
    text = f"the plan takes {format_joules(plan.joules)} to the target{source}"
    saved = 1 - (frugal.joules or 0.0) / plan.joules
    if saved < MIN_SAVED_SHARE:
        return [f"{text}, and no setting takes clearly less"]
    device = f" on {frugal.device}" if frugal.device and frugal.device != plan.device else ""
    way = f"{pluralize(frugal.workers, 'worker')} x {frugal.batch}{device}"
    time = frugal.seconds.value / plan.seconds.value
    return [f"{text}; {way} takes {saved:.0%} less energy and {format_number(time)} times as long"]


def format_energy_header(document: PlanDocument) -> str:
    """Format the header of the column of energies; empty where they are not known."""
    return f"  {'energy':>10}" if document.energy_front else ""


def format_energy(setting: PredictedSetting, document: PlanDocument) -> str:
    """Format the energy of a setting as a column, empty where only others have one."""
    if not document.energy_front:
        return ""
    return f"  {'' if setting.joules is None else format_joules(setting.joules):>10}"
