"""A plan for people: in words, with what was asked besides, and on pages beside plan.json."""

from pathlib import Path
from typing import Any

from dashboards import reports as pages
from dashboards.experiments import Experiment, Sweep
from equipoise.formatting import pluralize
from equipoise.planning.document import PlanRequest
from equipoise.planning.plan import Place

FAR = 2  # times the most workers that were timed: what is foretold beyond is told with a warning


def told(facts: dict[str, Any]) -> str:
    """The plan as a short table, the reason, and the warnings."""
    lines = []
    if facts["front"]:
        lines.append("   nodes workers  batch  global       lr     seconds (80 %)            worker-seconds")
    for one in facts["front"][:12]:
        mark = "*" if facts["plan"] and same(one, facts["plan"]) else " "
        bend = "  knee" if facts["knee"] and same(one, facts["knee"]) else ""
        lr = "" if one["lr"] is None else f"{one['lr']:.4g}"
        took = one["seconds"]
        lines.append(
            f" {mark} {one['nodes']:>5} {one['workers']:>7} {one['batch']:>6} {one['global_batch']:>7} {lr:>8}"
            f"  {took['value']:>9,.4g} ({took['low']:,.4g} to {took['high']:,.4g})"
            f"  {one['worker_seconds']:>12,.4g}{bend}"
        )
    if chosen := facts["plan"]:
        lines.append(
            f"plan: {pluralize(chosen['workers'], 'worker')} x {chosen['batch']}"
            f" on {pluralize(chosen['nodes'], 'node')}: {chosen['why']}"
        )
    lines += [joined(level, link) for level, link in (facts["system"] or {}).get("links", {}).items() if known(link)]
    lines += [f"note: {warning}" for warning in facts["warnings"]]
    return "\n".join(lines)


def drawn(request: PlanRequest, facts: dict[str, Any], out: Path) -> list[Path]:
    """Write the plan's pages into a folder and return where they are."""
    found = Sweep(plan=facts, system=request.system, statistical=request.statistical)
    return pages.left(Experiment(kind="plan", path=out, found=found))


def answers(facts: dict[str, Any], at: dict[str, Place], at_batch: tuple[int, ...]) -> list[str]:
    """What was asked by --at (as it was written, and what it means) and --at-batch, a line each."""
    return [
        *(f"at {text}: {stepping(facts['system'], place)}" for text, place in at.items()),
        *(f"at a global batch of {batch:,}: {learning(facts['statistical'], batch)}" for batch in at_batch),
    ]


def stepping(system: dict[str, Any] | None, place: Place) -> str:
    """The time of a step there."""
    if system is None:
        return "needs --system"
    rows = system["predictions"]
    here = [row for row in rows if (row["nodes"], row["workers"]) == place and row["seconds"] is not None]
    if not here:
        return f"needs {', '.join(system['missing'])}"
    most = max(row["workers"] for row in rows if row["measured"])
    beyond = f"; no more than {pluralize(most, 'worker')} were timed" if place.workers > FAR * most else ""
    times = ", ".join(f"{milliseconds(row)} at {row['batch']}" for row in here)
    return f"a step takes {times} examples a worker{beyond}"


def learning(statistical: dict[str, Any] | None, batch: int) -> str:
    """The examples that it takes with it."""
    if statistical is None:
        return "needs --statistical"
    for row in statistical["predictions"]:
        if row["global_batch"] == batch and row["examples"] is not None:
            return f"{row['examples']:,.0f} examples ({row['low']:,.0f} to {row['high']:,.0f})"
    return "needs more global batches, or rates at which this one trains"


def milliseconds(row: dict[str, Any]) -> str:
    """Of a step, with the interval."""
    value, low, high = (f"{1000 * row[name]:,.4g}" for name in ("seconds", "low", "high"))
    return f"{value} ms ({low} to {high})"


def joined(level: str, link: dict[str, Any]) -> str:
    """What joins workers, as networks are spoken of."""
    rate, delay = link["bytes_a_second"], link["alpha_seconds"]
    megabits = [f"{8e-6 * rate[name]:,.3g}" for name in ("value", "low", "high")]
    where = "between nodes" if level == "between" else "inside a node"
    return f"{where}: {megabits[0]} Mbit/s ({megabits[1]} to {megabits[2]}), {1e3 * delay['value']:.2g} ms a message"


def known(link: dict[str, Any]) -> bool:
    """Whether its rate is: within one machine the exchange is often all calls and no bytes."""
    rate = link.get("bytes_a_second")
    return "alpha_seconds" in link and rate is not None and rate["high"] < 2 * rate["low"]


def same(one: dict[str, Any], other: dict[str, Any]) -> bool:
    """Whether two entries are the same setting."""
    return all(one[name] == other[name] for name in ("nodes", "workers", "batch"))
