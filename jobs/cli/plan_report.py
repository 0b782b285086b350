"""A plan for people: in words, with what was asked besides, and on pages beside plan.json."""

from pathlib import Path
from typing import Any

from dashboards.experiments import Experiment, Sweep
from dashboards.reports import write_pages
from equipoise.formatting import pluralize
from equipoise.planning.document import PlanRequest
from equipoise.planning.plan import ClusterShape

EXTRAPOLATION_WARNING_FACTOR = (
    2  # times the most workers that were timed: what is foretold beyond is told with a warning
)


def format_plan(plan_document: dict[str, Any]) -> str:
    """The plan as a short table, the reason, and the warnings."""
    lines = []
    if plan_document["front"]:
        lines.append("   nodes workers  batch  global       lr     seconds (80 %)            worker-seconds")
    for one in plan_document["front"][:12]:
        mark = "*" if plan_document["plan"] and is_same_setting(one, plan_document["plan"]) else " "
        bend = "  knee" if plan_document["knee"] and is_same_setting(one, plan_document["knee"]) else ""
        lr = "" if one["lr"] is None else f"{one['lr']:.4g}"
        took = one["seconds"]
        lines.append(
            f" {mark} {one['nodes']:>5} {one['workers']:>7} {one['batch']:>6} {one['global_batch']:>7} {lr:>8}"
            f"  {took['value']:>9,.4g} ({took['low']:,.4g} to {took['high']:,.4g})"
            f"  {one['worker_seconds']:>12,.4g}{bend}"
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
    """Write the plan's pages into a folder and return where they are."""
    found = Sweep(plan=plan_document, step_times=request.system, examples_to_target=request.statistical)
    return write_pages(Experiment(kind="plan", path=out, content=found))


def format_predictions(
    plan_document: dict[str, Any], shape_by_text: dict[str, ClusterShape], global_batches: tuple[int, ...]
) -> list[str]:
    """What was asked by --predict-at (as it was written, and what it means) and --predict-batch, a line each."""
    return [
        *(f"at {text}: {format_step_time(plan_document['system'], place)}" for text, place in shape_by_text.items()),
        *(
            f"at a global batch of {batch:,}: {format_examples_to_target(plan_document['statistical'], batch)}"
            for batch in global_batches
        ),
    ]


def format_step_time(system_part: dict[str, Any] | None, shape: ClusterShape) -> str:
    """The time of a step there."""
    if system_part is None:
        return "needs --system"
    rows = system_part["predictions"]
    here = [row for row in rows if (row["nodes"], row["workers"]) == shape and row["seconds"] is not None]
    if not here:
        return f"needs {', '.join(system_part['missing'])}"
    most = max(row["workers"] for row in rows if row["measured"])
    beyond = (
        f"; no more than {pluralize(most, 'worker')} were timed"
        if shape.workers > EXTRAPOLATION_WARNING_FACTOR * most
        else ""
    )
    times = ", ".join(f"{format_milliseconds(row)} at {row['batch']}" for row in here)
    return f"a step takes {times} examples a worker{beyond}"


def format_examples_to_target(statistical_part: dict[str, Any] | None, global_batch: int) -> str:
    """The examples that it takes with it."""
    if statistical_part is None:
        return "needs --statistical"
    for row in statistical_part["predictions"]:
        if row["global_batch"] == global_batch and row["examples"] is not None:
            return f"{row['examples']:,.0f} examples ({row['low']:,.0f} to {row['high']:,.0f})"
    return "needs more global batches, or rates at which this one trains"


def format_milliseconds(row: dict[str, Any]) -> str:
    """Of a step, with the interval."""
    value, low, high = (f"{1000 * row[name]:,.4g}" for name in ("seconds", "low", "high"))
    return f"{value} ms ({low} to {high})"


def format_link(level: str, link: dict[str, Any]) -> str:
    """What joins workers, as networks are spoken of."""
    rate, delay = link["bytes_a_second"], link["alpha_seconds"]
    megabits = [f"{8e-6 * rate[name]:,.3g}" for name in ("value", "low", "high")]
    where = "between nodes" if level == "between" else "inside a node"
    return f"{where}: {megabits[0]} Mbit/s ({megabits[1]} to {megabits[2]}), {1e3 * delay['value']:.2g} ms a message"


def link_rate_is_known(link: dict[str, Any]) -> bool:
    """Whether its rate is: within one machine the exchange is often all calls and no bytes."""
    rate = link.get("bytes_a_second")
    return "alpha_seconds" in link and rate is not None and rate["high"] < 2 * rate["low"]


def is_same_setting(first: dict[str, Any], second: dict[str, Any]) -> bool:
    """Whether two entries are the same setting."""
    return all(first[name] == second[name] for name in ("nodes", "workers", "batch"))
