"""Recommend workers, batch size and learning rate from tables of measured step times and examples to the target.

Writes plan.json and pages that show it to --out, and prints the plan with its alternatives. With only one of the two
tables, only its part of plan.json is filled in and no plan is recommended. The same command writes the same files
again.

Exit status: 0 plan.json was written; 1 the object store did not answer; 2 wrong options, tables or files.
"""

from jobs import prepare_process

if __name__ == "__main__":
    prepare_process()

import re
import sys
from collections.abc import Sequence
from dataclasses import dataclass, replace

from equipoise.command_line import command
from equipoise.errors import EquipoiseError
from equipoise.number_bounds import MAX_COUNT
from equipoise.planning.build_document import PlanRequest, read_request
from equipoise.planning.devices.device_plan import build_device_plan
from equipoise.planning.devices.device_prices import CostLimits, DevicePrices
from equipoise.planning.document import PLAN_FILE
from equipoise.planning.exchanges.exchange_columns import read_algorithm_times
from equipoise.planning.exchanges.exchange_name import parse_exchange
from equipoise.planning.exchanges.exchange_plan import ExchangeRequest
from equipoise.planning.measurements import COUNT_COLUMN
from equipoise.planning.memory.memory_limit import parse_memory
from equipoise.planning.plan import ClusterShape
from equipoise.registries.option_ranges import require_power
from equipoise.runs.folder import require_writable
from equipoise.storage.atomic import write_json
from jobs.cli.option_parser import parse_options
from jobs.cli.output_folder import require_no_other_results
from jobs.cli.paths import OptionalPathOrUrl, PathOrUrl, validate_locations
from jobs.cli.plan_report import format_exchanges, format_plan, format_predictions, write_plan_pages

MIN_DOLLARS, MAX_DOLLARS = 1e-9, 1e12  # of an amount: wider than any real one, narrow enough for arithmetic
MIN_BIT_RATE, MAX_BIT_RATE = 1.0, 1e15  # as the column bits_per_second
BITS_PER_PREFIX = {"": 1.0, "k": 1e3, "m": 1e6, "g": 1e9, "t": 1e12}
SECONDS_PER_UNIT = {"s": 1.0, "m": 60.0, "h": 3600.0, "d": 86400.0}


def parse_duration(text: str) -> float:
    """Parse a duration such as `90`, `90s`, `15m`, `2h` or `1d` and return it in seconds."""
    match = re.fullmatch(r"([0-9]+\.?[0-9]*(?:e[+-]?[0-9]+)?)\s*([smhd]?)", text)
    value = float(match[1]) * SECONDS_PER_UNIT[match[2] or "s"] if match else 0.0
    if not 0 < value < float("inf"):
        raise EquipoiseError(
            "option-format", f"cannot parse the duration {text!r}", "give a time such as 90s, 15m or 2h"
        )
    return value


def parse_dollars(flag: str, text: str) -> float:
    """Parse an amount such as `40usd` or `40` and return it in dollars."""
    match = re.fullmatch(r"\$?([0-9]+(?:\.[0-9]+)?)\s*(usd)?", text.lower())
    if not match or not MIN_DOLLARS <= float(match[1]) <= MAX_DOLLARS:
        raise EquipoiseError("option-format", f"{flag} must be an amount such as 40usd, got {text[:40]!r}")
    return float(match[1])


def parse_bit_rate(text: str) -> float:
    """Parse the rate of a link such as `200Mbit/s`, `1Gbit` or `2e8` and return it in bits per second."""
    match = re.fullmatch(r"([0-9]+\.?[0-9]*(?:[eE][+-]?[0-9]+)?)\s*(?:([kKMGT]?)(?:[Bb]it|b)(?:/s|ps)?)?", text)
    rate = float(match[1]) * BITS_PER_PREFIX[(match[2] or "").lower()] if match else 0.0
    if not MIN_BIT_RATE <= rate <= MAX_BIT_RATE:
        raise EquipoiseError(
            "option-format", f"--predict-rate must be bits per second such as 200Mbit/s or 1e9, got {text[:40]!r}"
        )
    return rate


def parse_prices(texts: Sequence[str]) -> DevicePrices:
    """Parse prices such as `3.06usd`, or `a10=1.2usd h100=4usd` by device; one without a name is that of all others."""
    prices: dict[str, float] = {}
    for text in texts:
        name, _, amount = text.rpartition("=")
        if (device := name.strip()) in prices:
            which = f"for {device!r}" if device else "without the name of a device"
            raise EquipoiseError("option-conflict", f"--price has two amounts {which}", "give one of them")
        prices[device] = parse_dollars("--price", amount)
    otherwise = prices.pop("", None)
    return DevicePrices(by_device=prices, otherwise=otherwise)


def parse_cluster_shape(text: str) -> ClusterShape:
    """Parse a cluster shape such as `4x16`: nodes x workers of all nodes."""
    match = re.fullmatch(r"([1-9][0-9]{0,8})x([1-9][0-9]{0,8})", text)
    if not match or int(match[1]) > int(match[2]):
        raise EquipoiseError(
            "option-format",
            f"cannot parse the cluster shape {text!r}",
            "give nodes x workers such as 4x16, at least one worker per node",
        )
    return ClusterShape(int(match[1]), int(match[2]))


@dataclass(frozen=True, kw_only=True)
class PlanOptions:
    __doc__ = __doc__

    out: PathOrUrl
    """folder or URL for plan.json and its pages"""
    system: OptionalPathOrUrl = None
    """CSV of nodes, workers, batch, seconds (of one optimizer step); with several ways of exchange also exchange,
    sent_bytes and bits_per_second"""
    exchange: OptionalPathOrUrl = None
    """CSV of nodes, workers, kind (sum or message), bytes, seconds of exchanges timed alone; --system then needs a
    column gradient_bytes"""
    statistical: OptionalPathOrUrl = None
    """CSV of global_batch, lr, seed, examples, reached (1 if the target was reached, else 0); with several ways of
    exchange also exchange and workers"""
    predict_at: tuple[str, ...] = ()
    """cluster shapes to predict and plan for beside those measured: nodes x workers of all nodes, such as 1x1 4x16"""
    predict_batch: tuple[int, ...] = ()
    """global batches to predict and plan for beside those measured"""
    predict_exchange: tuple[str, ...] = ()
    """ways of exchange to predict, such as local:8 bf16 tree; --system needs rows of them or, with an empty column
    exchange, of one worker and of two numbers of several"""
    predict_rate: tuple[str, ...] = ()
    """rates of the slowest link to predict for, such as 200Mbit/s 1e9 (bits per second); the plan is for the first
    one"""
    algorithms: OptionalPathOrUrl = None
    """CSV of algorithm, ranks, bytes, seconds of sums timed alone by each all-reduce algorithm"""
    deadline: str | None = None
    """recommend the cheapest plan that finishes within this time: 90s, 15m, 2h"""
    budget: str | None = None
    """recommend the fastest plan that costs no more than this: 40usd"""
    price: tuple[str, ...] = ()
    """price of one worker for an hour: 3.06usd, or of each that --system names in its column device: a10=1.2usd
    h100=4usd"""
    watts: float | None = None
    """power that a worker draws, assumed where --system has no column joules (of one step of all workers): the plan
    then has the energy to the target"""
    memory: str | None = None
    """memory that a worker may use, such as 16GB or 512MiB: settings that need more, by the column peak_bytes of
    --system, are left out"""

    def validate(self) -> None:
        """Refuse options that do not fit together or are out of range."""
        if self.system is None and self.statistical is None:
            raise EquipoiseError(
                "option-missing", "cannot plan without measurements", "give --system, --statistical or both"
            )
        if self.exchange and not self.system:
            raise EquipoiseError(
                "option-missing", "cannot use --exchange alone: it refines the step times of --system", "give both"
            )
        if self.budget is not None and not self.price:
            raise EquipoiseError(
                "option-missing",
                "--budget and --price belong together",
                "give the amount to spend and the price of a worker-hour",
            )
        for batch in self.predict_batch:
            if not 1 <= batch <= MAX_COUNT:
                raise EquipoiseError("option-range", f"--predict-batch must be {COUNT_COLUMN.description}, got {batch}")

        for rate in self.predict_rate:
            parse_bit_rate(rate)
        if (self.predict_exchange or self.predict_rate or self.algorithms) and not self.system:
            raise EquipoiseError(
                "option-missing",
                "cannot predict exchanges, or use --algorithms, without step times",
                "give --system, with columns bits_per_second and sent_bytes for other rates",
            )
        for name in self.predict_exchange:
            parse_exchange(name)

        require_power(self.watts)
        for flag, value in (("--memory", self.memory), ("--watts", self.watts)):
            if value is not None and not self.system:
                raise EquipoiseError("option-missing", f"cannot use {flag} without --system", "give both")
        if self.memory is not None:
            parse_memory("--memory", self.memory)

    def exchange_request(self) -> ExchangeRequest:
        """Read the table of sums and return the exchanges and rates to predict."""
        sums = read_algorithm_times(self.algorithms) if self.algorithms else None
        rates = tuple(map(parse_bit_rate, self.predict_rate))
        return ExchangeRequest(names=self.predict_exchange, rates=rates, sums=sums)

    def request(self) -> PlanRequest:
        """Read the tables and add the limits that the plan must keep."""
        shapes, deadline = tuple(self.cluster_shapes), self.deadline_seconds
        measured = read_request(system=self.system, exchange=self.exchange, statistical=self.statistical)
        return replace(
            measured,
            cluster_shapes=shapes,
            global_batches=self.predict_batch,
            deadline_seconds=deadline,
            memory_bytes=self.memory_bytes,
        )

    @property
    def memory_bytes(self) -> float | None:
        """Bytes of --memory; None if it is not given."""
        return None if self.memory is None else parse_memory("--memory", self.memory)

    @property
    def cluster_shapes(self) -> list[ClusterShape]:
        """Cluster shapes of --predict-at, parsed."""
        return [parse_cluster_shape(text) for text in self.predict_at]

    @property
    def deadline_seconds(self) -> float | None:
        """Seconds of --deadline; None if it is not given."""
        return None if self.deadline is None else parse_duration(self.deadline)

    @property
    def cost_limits(self) -> CostLimits:
        """Prices of --price and amount of --budget, parsed."""
        budget = None if self.budget is None else parse_dollars("--budget", self.budget)
        return CostLimits(prices=parse_prices(self.price), budget_dollars=budget, watts=self.watts)


@command()
def main() -> int:
    """Run the command and return its exit status."""
    options = parse_options(PlanOptions)
    options.validate()
    validate_locations(options.out, options.system, options.exchange, options.statistical, options.algorithms)
    require_no_other_results(options.out, "plan")
    limits = options.cost_limits
    document, request = build_device_plan(options.request(), options.exchange_request(), limits)
    require_writable(options.out)
    write_json(options.out / PLAN_FILE, document.to_json())
    print(
        "\n".join(
            [
                format_plan(document),
                *format_predictions(
                    document, dict(zip(options.predict_at, options.cluster_shapes, strict=True)), options.predict_batch
                ),
                *format_exchanges(
                    document.system,
                    is_requested=bool(options.predict_exchange or options.predict_rate),
                    names=options.predict_exchange,
                ),
            ]
        )
    )
    page = write_plan_pages(request, document, options.out)[0]
    print(f"wrote {options.out / PLAN_FILE} and {page}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
