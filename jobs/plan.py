"""Recommend a plan from measurements: two tables in, plan.json out.

Either table may be missing; then only the other part is filled in.
"""

import re
import sys
from dataclasses import dataclass, replace

import tyro

from equipoise.planning.document import PlanRequest, build_plan_document, read_request
from equipoise.planning.measurements import COUNT_COLUMN, MAX_COUNT
from equipoise.planning.plan import ClusterShape
from equipoise.storage.atomic import write_json
from equipoise.storage.retry import StoreUnavailable
from jobs.cli.paths import PathOrUrl, describe_os_error, validate_locations
from jobs.cli.plan_report import format_plan, format_predictions, write_plan_pages

SECONDS_PER_UNIT = {"s": 1.0, "m": 60.0, "h": 3600.0, "d": 86400.0}


def parse_duration(text: str) -> float:
    """Seconds, from `90`, `90s`, `15m`, `2h` or `1d`."""
    found = re.fullmatch(r"([0-9]+\.?[0-9]*(?:e[+-]?[0-9]+)?)\s*([smhd]?)", text)
    value = float(found[1]) * SECONDS_PER_UNIT[found[2] or "s"] if found else 0.0
    if not 0 < value < float("inf"):
        raise ValueError(f"a time such as 90s, 15m or 2h was asked for, got {text!r}")
    return value


def parse_dollars(flag: str, text: str) -> float:
    """Dollars, from `40usd` or `40`."""
    found = re.fullmatch(r"\$?([0-9]+(?:\.[0-9]+)?)\s*(usd)?", text.lower())
    if not found or not 0 < float(found[1]) < float("inf"):
        raise ValueError(f"{flag} must be an amount such as 40usd, got {text[:40]!r}")
    return float(found[1])


def parse_cluster_shape(text: str) -> ClusterShape:
    """Nodes x workers of all nodes, from `4x16`."""
    found = re.fullmatch(r"([1-9][0-9]{0,8})x([1-9][0-9]{0,8})", text)
    if not found or int(found[1]) > int(found[2]):
        raise ValueError(f"nodes x workers such as 4x16 were asked for, with a worker a node at least, got {text!r}")
    return ClusterShape(int(found[1]), int(found[2]))


@dataclass(frozen=True, kw_only=True)
class PlanOptions:
    __doc__ = __doc__

    out: PathOrUrl
    """folder or URL for plan.json"""
    system: PathOrUrl | None = None
    """table of nodes, workers, batch, seconds (of one step)"""
    exchange: PathOrUrl | None = None
    """table of nodes, workers, kind (sum or message), bytes, seconds of exchanges by themselves; --system then needs a
    column gradient_bytes"""
    statistical: PathOrUrl | None = None
    """table of global_batch, lr, seed, examples, reached"""
    predict_at: tuple[str, ...] = ()
    """places to predict and to plan for beside those measured: nodes x workers of all nodes, such as 1x1 4x16"""
    predict_batch: tuple[int, ...] = ()
    """global batches to predict and to plan for beside those measured"""
    deadline: str | None = None
    """take the cheapest plan that ends within this time: 90s, 15m, 2h"""
    budget: str | None = None
    """take the fastest plan that costs no more than this: 40usd"""
    price: str | None = None
    """what a worker costs an hour: 3.06usd"""

    def validate(self) -> None:
        """Refuse what makes no request."""
        if self.system is None and self.statistical is None:
            raise ValueError("a plan needs measurements: give --system, --statistical or both")
        if self.exchange and not self.system:
            raise ValueError("--exchange says more of what --system tells: give both")
        if (self.budget is None) != (self.price is None):
            raise ValueError("--budget and --price belong together: what may be spent, and what a worker costs an hour")
        for batch in self.predict_batch:
            if not 1 <= batch <= MAX_COUNT:
                raise ValueError(f"global batches must be {COUNT_COLUMN.description}, got {batch}")

    def request(self) -> PlanRequest:
        """Read the tables and say what the plan must keep."""
        at, deadline, budget = tuple(self.cluster_shapes), self.deadline_seconds, self.budget_seconds
        measured = read_request(system=self.system, exchange=self.exchange, statistical=self.statistical)
        return replace(
            measured, places=at, batches=self.predict_batch, deadline_seconds=deadline, budget_seconds=budget
        )

    @property
    def cluster_shapes(self) -> list[ClusterShape]:
        """Those of --predict-at."""
        return [parse_cluster_shape(text) for text in self.predict_at]

    @property
    def deadline_seconds(self) -> float | None:
        """The time there is."""
        return None if self.deadline is None else parse_duration(self.deadline)

    @property
    def budget_seconds(self) -> float | None:
        """Worker-seconds that the budget buys."""
        return (
            None
            if self.budget is None or self.price is None
            else parse_dollars("--budget", self.budget) / parse_dollars("--price", self.price) * 3600
        )


def main() -> int:
    """Exit status: 0 a plan was written, 2 asked for what cannot be."""
    asked = tyro.cli(PlanOptions)
    try:
        asked.validate()
        validate_locations(asked.out, asked.system, asked.exchange, asked.statistical)
        request = asked.request()
        facts = build_plan_document(request)
        write_json(asked.out / "plan.json", facts)
    except ValueError as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    except OSError as error:
        print(f"error: {describe_os_error(error)}", file=sys.stderr)
        return 1 if isinstance(error, StoreUnavailable) else 2
    print(
        "\n".join(
            [
                format_plan(facts),
                *format_predictions(
                    facts, dict(zip(asked.predict_at, asked.cluster_shapes, strict=True)), asked.predict_batch
                ),
            ]
        )
    )
    print(f"written to {asked.out / 'plan.json'}, drawn on {write_plan_pages(request, facts, asked.out)[0]}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
