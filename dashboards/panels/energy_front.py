"""Panel of time against energy of every plan."""

import pandas as pd
import plotly.graph_objects as go

from dashboards.page import Panel
from dashboards.panels.pareto_front import DEVICE_COLORS, NO_TRACE_NAME, mark_measured, name_trace
from dashboards.plan_tables import format_plans, settings_by_device
from dashboards.theme import AMBER, BLUE, NEUTRAL_COLOR, apply_theme, set_log_axis
from equipoise.formatting import choose_energy_unit
from equipoise.planning.document import PlanDocument

READING_OF_ENERGY = (
    "Time runs to the right and energy upwards: the lower left is best. Filled marks combine a step time and examples"
    " that were both measured; hollow ones need a prediction. Where workers draw power while they wait, the fastest"
    " plan is often the most frugal one too; where the front is long, there is energy to save by taking more time."
)


def build_energy_panel(document: PlanDocument) -> Panel | None:
    """Build the panel of time against energy; None where the energy of plans is not known."""
    if not document.energy_front:
        return None
    return Panel(
        name="energy",
        figure=energy_figure(document),
        caption="Each point is a plan; none is both faster and more frugal than one on the line. The star is the plan.",
        reading=READING_OF_ENERGY,
    )


def energy_figure(document: PlanDocument) -> go.Figure:
    """Draw time against energy of every plan, with the front of both and the plan."""
    plans = settings_by_energy(document)
    size, unit = choose_energy_unit(float(plans.joules.min()))
    figure = go.Figure()
    for index, device in enumerate(plans.device.unique().tolist()):
        own = plans[plans.device == device]
        color = DEVICE_COLORS[index % len(DEVICE_COLORS)] if device else NEUTRAL_COLOR
        marker = {"color": color, "symbol": mark_measured(own, index), "size": 7}
        add_settings(figure, own, size, name_trace("every plan", device), unit, mode="markers", marker=marker)
    front = settings_by_energy(document, on_front=True)
    marker = {"symbol": mark_measured(front), "size": 9}
    add_settings(figure, front, size, "the front", unit, mode="lines+markers", line_color=BLUE, marker=marker)
    if document.plan and document.plan.joules is not None:
        figure.add_scatter(
            x=[document.plan.seconds.value],
            y=[document.plan.joules / size],
            mode="markers",
            marker={"symbol": "star", "size": 18, "color": AMBER, "line": {"width": 1, "color": NEUTRAL_COLOR}},
            hoverinfo="skip",
            name="the plan",
        )
    set_log_axis(figure, "x", plans.seconds, "seconds to the target")
    set_log_axis(figure, "y", plans.joules / size, f"energy, {unit}")
    return apply_theme(figure, 360)


def settings_by_energy(document: PlanDocument, on_front: bool = False) -> pd.DataFrame:
    """Return the settings whose energy is known as rows with their `joules`: all of them, or those of the front."""
    settings = [
        setting for setting in (document.energy_front if on_front else document.options) if setting.joules is not None
    ]
    table = settings_by_device(settings, in_dollars=False)
    return table.assign(joules=pd.Series([setting.joules for setting in settings], index=table.index, dtype=float))


def add_settings(figure: go.Figure, plans: pd.DataFrame, size: float, name: str, unit: str, **style: object) -> None:
    """Add a trace of time and energy of plans, with their settings as hover texts."""
    figure.add_scatter(
        x=plans.seconds,
        y=plans.joules / size,
        text=format_plans(plans),
        hovertemplate=f"%{{text}}<br>%{{x:,.3~r}} s, %{{y:,.3~r}} {unit}{NO_TRACE_NAME}",
        name=name,
        **style,
    )
