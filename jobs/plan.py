"""Recommend a plan from measurements: two tables in, plan.json out.

Either table may be missing; then only the other part is filled in.
"""

import re
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import tyro

from dashboards import reports as pages
from dashboards.experiments import Experiment, Sweep
from equipoise.planning import examples_to_target as statistical
from equipoise.planning import measurements as tables
from equipoise.planning import plan
from equipoise.planning import step_time_fit as system
from equipoise.planning.examples_to_target import FAILS, Curve
from equipoise.planning.measurements import COUNT, MOST
from equipoise.planning.plan import Option, Place
from equipoise.planning.step_time_fit import COVERED, System
from equipoise.planning.step_time_model import LEVELS, Places
from equipoise.storage import atomic as store
from equipoise.storage.object_store import Away
from jobs.cli import plan_report as aloud
from jobs.cli.paths import Given, require_plain, unusable

UNITS = {"s": 1.0, "m": 60.0, "h": 3600.0, "d": 86400.0}


def duration(text: str) -> float:
    """Seconds, from `90`, `90s`, `15m`, `2h` or `1d`."""
    found = re.fullmatch(r"([0-9]+\.?[0-9]*(?:e[+-]?[0-9]+)?)\s*([smhd]?)", text)
    value = float(found[1]) * UNITS[found[2] or "s"] if found else 0.0
    if not 0 < value < float("inf"):
        raise ValueError(f"a time such as 90s, 15m or 2h was asked for, got {text!r}")
    return value


def money(flag: str, text: str) -> float:
    """Dollars, from `40usd` or `40`."""
    found = re.fullmatch(r"\$?([0-9]+(?:\.[0-9]+)?)\s*(usd)?", text.lower())
    if not found or not 0 < float(found[1]) < float("inf"):
        raise ValueError(f"{flag} must be an amount such as 40usd, got {text[:40]!r}")
    return float(found[1])


def place(text: str) -> Place:
    """Nodes x workers of all nodes, from `4x16`."""
    found = re.fullmatch(r"([1-9][0-9]{0,8})x([1-9][0-9]{0,8})", text)
    if not found or int(found[1]) > int(found[2]):
        raise ValueError(f"nodes x workers such as 4x16 were asked for, with a worker a node at least, got {text!r}")
    return Place(int(found[1]), int(found[2]))


@dataclass(frozen=True, kw_only=True)
class Asked:
    __doc__ = __doc__

    out: Given
    """folder or URL for plan.json"""
    system: Given | None = None
    """table of nodes, workers, batch, seconds (of one step)"""
    exchange: Given | None = None
    """table of nodes, workers, kind (sum or message), bytes, seconds of exchanges by themselves; --system then needs a
    column gradient_bytes"""
    statistical: Given | None = None
    """table of global_batch, lr, seed, examples, reached"""
    at: tuple[str, ...] = ()
    """places to predict and to plan for beside those measured: nodes x workers of all nodes, such as 1x1 4x16"""
    at_batch: tuple[int, ...] = ()
    """global batches to predict and to plan for beside those measured"""
    deadline: str | None = None
    """take the cheapest plan that ends within this time: 90s, 15m, 2h"""
    budget: str | None = None
    """take the fastest plan that costs no more than this: 40usd"""
    price: str | None = None
    """what a worker costs an hour: 3.06usd"""

    def check(self) -> None:
        """Refuse what makes no request."""
        if self.system is None and self.statistical is None:
            raise ValueError("a plan needs measurements: give --system, --statistical or both")
        if self.exchange and not self.system:
            raise ValueError("--exchange says more of what --system tells: give both")
        if (self.budget is None) != (self.price is None):
            raise ValueError("--budget and --price belong together: what may be spent, and what a worker costs an hour")
        for batch in self.at_batch:
            if not 1 <= batch <= MOST:
                raise ValueError(f"global batches must be {COUNT.words}, got {batch}")

    @property
    def places(self) -> list[Place]:
        """Those of --at."""
        return [place(text) for text in self.at]

    @property
    def deadline_seconds(self) -> float | None:
        """The time there is."""
        return None if self.deadline is None else duration(self.deadline)

    @property
    def budget_seconds(self) -> float | None:
        """Worker-seconds that the budget buys."""
        return (
            None
            if self.budget is None or self.price is None
            else money("--budget", self.budget) / money("--price", self.price) * 3600
        )


def main() -> int:
    """Exit status: 0 a plan was written, 2 asked for what cannot be."""
    asked = tyro.cli(Asked)
    try:
        asked.check()
        require_plain(asked.out, asked.system, asked.exchange, asked.statistical)
        facts = document(asked)
        store.write_json(asked.out / "plan.json", facts)
    except ValueError as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    except OSError as error:
        print(f"error: {unusable(error)}", file=sys.stderr)
        return 1 if isinstance(error, Away) else 2
    print(
        "\n".join(
            [aloud.told(facts), *aloud.answers(facts, dict(zip(asked.at, asked.places, strict=True)), asked.at_batch)]
        )
    )
    print(f"written to {asked.out / 'plan.json'}, drawn on {drawn(asked, facts)[0]}")
    return 0


def drawn(asked: Asked, facts: dict[str, Any]) -> list[Path]:
    """Pages of the plan beside it."""
    sweep = Sweep(
        plan=facts,
        system=tables.system(asked.system) if asked.system else None,
        statistical=tables.statistical(asked.statistical) if asked.statistical else None,
    )
    return pages.left(Experiment(kind="plan", path=asked.out, found=sweep))


def document(asked: Asked) -> dict[str, Any]:
    """The contents of plan.json."""
    at, deadline, budget = asked.places, asked.deadline_seconds, asked.budget_seconds
    timed = timed_by(asked)
    curve = statistical.fitted(tables.statistical(asked.statistical)) if asked.statistical else None
    facts: dict[str, Any] = {
        "schema": 1,
        "plan": None,
        "runner_up": None,
        "front": [],
        "options": [],
        "knee": None,
        "system": timed and system_part(timed, at),
        "statistical": curve and statistical_part(curve, asked.at_batch),
        "warnings": [],
    }
    if not timed or not curve:
        missing = "--statistical" if timed else "--system"
        return facts | {"warnings": [f"no {missing} was given: the time to the target cannot be told"]}
    found = plan.options(timed, curve, places(timed, at), [*map(int, curve.means.index), *asked.at_batch])
    ranked = plan.best(found, deadline, budget)
    first, second = (ranked[0], plan.runner_up(ranked)) if ranked else (None, None)
    facts |= {"plan": first and entry(first, second, curve), "runner_up": second and entry(second, None, curve)}
    along = plan.front(found)
    bend = plan.knee(along)
    facts |= {"front": [one.json() for one in along], "knee": bend and bend.json()}
    facts["options"] = [one.json() | {"binding": plan.binding(one, curve)} for one in found]
    facts["warnings"] = refusals(found, ranked, curve) + plan.warnings(first, timed, curve)
    return facts


def timed_by(asked: Asked) -> System | None:
    """The fit of step times, and of exchanges if they were timed by themselves."""
    if asked.system is None:
        return None
    rows = tables.system(asked.system)
    return system.fitted(rows, tables.exchange(asked.exchange, rows)) if asked.exchange else system.fitted(rows)


def entry(one: Option, second: Option | None, curve: Curve) -> dict[str, Any]:
    """An option with its reason."""
    return one.json() | {"binding": plan.binding(one, curve), "why": plan.why(one, second, curve)}


def refusals(found: list[Option], ranked: list[Option], curve: Curve) -> list[str]:
    """Why there is no plan."""
    if not found and not any(curve.means.reached >= FAILS):
        return ["at no global batch did most runs reach the target: train longer, or with other learning rates"]
    if not found:
        return [
            "no global batch of the one table can be shared by workers of the other at a batch that was timed:"
            " measure both at common batches"
        ]
    if not ranked:
        fastest, cheapest = min(one.seconds for one in found), min(one.worker_seconds for one in found)
        return [
            f"nothing keeps what was asked: the fastest takes {fastest:,.4g} s,"
            f" the cheapest {cheapest:,.4g} worker-seconds"
        ]
    return []


def places(timed: System, more: list[Place]) -> list[Place]:
    """Places measured, and those asked for."""
    rows = timed.rows[["nodes", "workers"]].drop_duplicates().astype(int)
    return sorted({*more, *(Place(nodes, workers) for nodes, workers in rows.itertuples(index=False))})


def system_part(timed: System, more: list[Place]) -> dict[str, Any]:
    """Step times at every row, and at every place asked for with every batch timed."""
    rows = timed.rows[["nodes", "workers", "batch"]].astype(int)
    measured = set(rows.itertuples(index=False, name=None))
    asked = {(*one, batch) for one in more for batch in rows.batch.unique().tolist()}
    points = pd.DataFrame(sorted(measured | asked), columns=["nodes", "workers", "batch"])
    at = Places.of(points)
    values, (low, high) = timed.seconds(at), np.quantile(timed.sampled(at), COVERED, axis=0)
    predictions, gaps = [], []
    for i, point in enumerate(points.itertuples(index=False, name=None)):
        gap = timed.missing(*point) if point not in measured else None
        gaps += [gap] if gap else []
        seconds = [None] * 3 if gap else [float(values[i]), float(low[i]), float(high[i])]
        numbers = dict(zip(("seconds", "low", "high"), seconds, strict=True))
        predictions.append({**dict(zip(points.columns, point, strict=True)), **numbers, "measured": point in measured})
    gaps += [] if timed.identifiable else lacking(timed)
    return {
        "identifiable": timed.identifiable and not gaps,
        "missing": sorted(set(gaps)),
        "parameters": timed.parameters,
        "links": {level: link(timed, level) for level in LEVELS if f"{level}_volume" in timed.parameters},
        "form": "two rings" if timed.form.two_rings else "ring",
        "error": timed.error,
        "predictions": predictions,
    }


def link(timed: System, level: str) -> dict[str, Any]:
    """What joins workers: seconds a message, and bytes a second where it is known how many were sent."""
    found = {}
    draws = pd.DataFrame([*timed.draws, timed.parameters])
    if (alpha := f"{level}_alpha") in draws:
        found["alpha_seconds"] = interval(draws[alpha])
    if timed.gradient_bytes:
        found["bytes_a_second"] = interval(timed.gradient_bytes / draws[f"{level}_volume"])
    return found


def interval(draws: "pd.Series[float]") -> dict[str, float]:
    """The last of them, with the interval of the others."""
    low, high = np.quantile(draws.iloc[:-1], COVERED)
    return {"value": float(draws.iloc[-1]), "low": float(low), "high": float(high)}


def lacking(timed: System) -> list[str]:
    """What tells of larger places than those measured."""
    rows, batch = timed.rows, int(timed.rows.batch.min())
    found = [] if timed.form.batch else ["rows of a second batch per worker"]
    for _, here in rows[rows.workers > 1].groupby(rows.nodes > 1):
        gap = timed.missing(int(here.nodes.max()), 2 * int(here.workers.max()), batch)
        found += [gap] if gap else []
    return found


def statistical_part(curve: Curve, more: tuple[int, ...]) -> dict[str, Any]:
    """Examples to the target at every batch measured and every one asked for."""
    predictions = []
    for batch in sorted({*map(int, curve.means.index), *more}):
        examples, drawn = curve.examples(batch), curve.sampled(batch)
        low, high = (None, None) if drawn is None else map(float, np.quantile(drawn, COVERED))
        predictions.append(
            {"global_batch": batch, "examples": examples, "low": low, "high": high, "lr": curve.lr(batch)}
        )
    return {
        "identifiable": curve.identifiable,
        "critical_batch": spanned(curve.critical_batch) if curve.identifiable else None,
        "min_examples": spanned(curve.min_examples),
        "left_out": [*map(int, curve.left_out)],
        "predictions": predictions,
    }


def spanned(values: tuple[float, float, float] | None) -> dict[str, float] | None:
    """A value with its interval."""
    return None if values is None else dict(zip(("value", "low", "high"), values, strict=True))


if __name__ == "__main__":
    sys.exit(main())
