"""A plan as terminal text and as pages beside plan.json, with the predictions that were requested."""

from pathlib import Path
from typing import Any

from dashboards.experiments import Experiment, Sweep
from dashboards.reports import write_pages
from equipoise.formatting import pluralize
from equipoise.planning.document import PlanRequest
from equipoise.planning.plan import ClusterShape

EXTRAPOLATION_WARNING_FACTOR = 2  # times the most workers timed: predictions for more carry a warning


def format_plan(plan_document: dict[str, Any]) -> str:
    """Format the plan as a table of its alternatives, the reason for it, the network and the warnings."""
    lines = []
    if plan_document["front"]:
        lines.append("   nodes workers  batch  global       lr     seconds (80 %)            worker-seconds")
    for option in plan_document["front"][:12]:
        mark = "*" if plan_document["plan"] and is_same_setting(option, plan_document["plan"]) else " "
        knee = "  knee" if plan_document["knee"] and is_same_setting(option, plan_document["knee"]) else ""
        lr = "" if option["lr"] is None else f"{option['lr']:.4g}"
        seconds = option["seconds"]
        lines.append(
            f" {mark} {option['nodes']:>5} {option['workers']:>7} {option['batch']:>6} {option['global_batch']:>7}"
            f" {lr:>8}  {seconds['value']:>9,.4g} ({seconds['low']:,.4g} to {seconds['high']:,.4g})"
            f"  {option['worker_seconds']:>12,.4g}{knee}"
        )
    if chosen := plan_document["plan"]:
        lines.append(
            f"plan: {pluralize(chosen['workers'], 'worker')} x {chosen['batch']}"
            f" on {pluralize(chosen['nodes'], 'node')}: {chosen['why']}"
        )
    lines += [
        format_link(level, link)
        for level, link in (plan_document["system"] or {}).get("links", {}).items()
        if link_rate_is_known(link)
    ]
    lines += [f"note: {warning}" for warning in plan_document["warnings"]]
    return "\n".join(lines)


def write_plan_pages(request: PlanRequest, plan_document: dict[str, Any], out: Path) -> list[Path]:
    """Write the plan's pages to a folder and return their paths."""
    sweep = Sweep(plan=plan_document, step_times=request.system, examples_to_target=request.statistical)
    return write_pages(Experiment(kind="plan", path=out, content=sweep))


def format_predictions(
    plan_document: dict[str, Any], shape_by_text: dict[str, ClusterShape], global_batches: tuple[int, ...]
) -> list[str]:
    """Format the predictions of --predict-at (keyed by their text) and --predict-batch, a line each."""
    return [
        *(f"at {text}: {format_step_time(plan_document['system'], shape)}" for text, shape in shape_by_text.items()),
        *(
            f"at a global batch of {batch:,}: {format_examples_to_target(plan_document['statistical'], batch)}"
            for batch in global_batches
        ),
    ]


def format_step_time(system_part: dict[str, Any] | None, shape: ClusterShape) -> str:
    """Format the predicted step time on a cluster shape, or the measurements that are missing for it."""
    if system_part is None:
        return "needs --system"
    rows = system_part["predictions"]
    matching = [row for row in rows if (row["nodes"], row["workers"]) == shape and row["seconds"] is not None]
    if not matching:
        return f"needs {', '.join(system_part['missing'])}"
    max_timed = max(row["workers"] for row in rows if row["measured"])
    warning = (
        f"; no more than {pluralize(max_timed, 'worker')} were timed"
        if shape.workers > EXTRAPOLATION_WARNING_FACTOR * max_timed
        else ""
    )
    times = ", ".join(f"{format_milliseconds(row)} at {row['batch']}" for row in matching)
    return f"a step takes {times} examples per worker{warning}"


def format_examples_to_target(statistical_part: dict[str, Any] | None, global_batch: int) -> str:
    """Format the predicted examples to the target at a global batch, or what is missing for it."""
    if statistical_part is None:
        return "needs --statistical"
    for row in statistical_part["predictions"]:
        if row["global_batch"] == global_batch and row["examples"] is not None:
            return f"{row['examples']:,.0f} examples ({row['low']:,.0f} to {row['high']:,.0f})"
    return "needs measurements of more global batches, or learning rates that reach the target with this one"


def format_milliseconds(row: dict[str, Any]) -> str:
    """Format the seconds of a step with their interval as milliseconds."""
    value, low, high = (f"{1000 * row[name]:,.4g}" for name in ("seconds", "low", "high"))
    return f"{value} ms ({low} to {high})"


def format_link(level: str, link: dict[str, Any]) -> str:
    """Format the fitted rate of a network link in Mbit/s and its delay per message in milliseconds."""
    rate, delay = link["bytes_a_second"], link["alpha_seconds"]
    megabits = [f"{8e-6 * rate[name]:,.3g}" for name in ("value", "low", "high")]
    where = "between nodes" if level == "between" else "within a node"
    return f"{where}: {megabits[0]} Mbit/s ({megabits[1]} to {megabits[2]}), {1e3 * delay['value']:.2g} ms per message"


def link_rate_is_known(link: dict[str, Any]) -> bool:
    """Return whether a link's rate is known within a factor of two.

    Within one machine it often is not: the time of an exchange is that of its calls, not of its bytes.
    """
    rate = link.get("bytes_a_second")
    return "alpha_seconds" in link and rate is not None and rate["high"] < 2 * rate["low"]


def is_same_setting(first: dict[str, Any], second: dict[str, Any]) -> bool:
    """Return whether two options have the same nodes, workers and batch size."""
    return all(first[name] == second[name] for name in ("nodes", "workers", "batch"))
