"""What a training program reports in the lines that it prints, and the laps that follow from it."""

import json
import math
import re
import statistics
from collections.abc import Sequence
from dataclasses import dataclass, field, replace

from equipoise.errors import EquipoiseError
from equipoise.number_bounds import MAX_COUNT
from equipoise.runs.record import Lap

MIN_LAP_SECONDS = 0.1  # between reports without a metric that end a lap: a program may report every step
MAX_INTEGER_LENGTH = 30  # Python raises for the float of an integer of 309 digits, and for an integer of 4,301
REPORT_EXAMPLE = '{"examples": 1024, "metric": 0.91}'


@dataclass(frozen=True, kw_only=True)
class Report:
    """Progress of a training program."""

    examples: int
    """examples seen so far"""
    metric: float | None = None
    """metric on the validation data, where it was evaluated"""
    seconds: float | None = None
    """seconds of training so far, where the program counts them itself"""
    clock: float | None = None
    """monotonic clock of the machine when it reported, where the line says so"""


class ReportReader:
    """Reader of reports: JSON lines, or lines that match the user's patterns."""

    def __init__(self, metric_pattern: str | None = None, examples_pattern: str | None = None) -> None:
        self.metric_pattern = metric_pattern and compile_pattern("metric-pattern", metric_pattern)
        self.examples_pattern = examples_pattern and compile_pattern("examples-pattern", examples_pattern)
        self.examples: int | None = None  # of the last line that matched the pattern

    def read_line(self, line: str) -> Report | None:
        """Return what a line reports; None if it reports nothing."""
        if self.metric_pattern and self.examples_pattern:
            return self._match_patterns(line, self.metric_pattern, self.examples_pattern)
        return parse_json_report(line)

    def _match_patterns(
        self, line: str, metric_pattern: re.Pattern[str], examples_pattern: re.Pattern[str]
    ) -> Report | None:
        examples_match, metric_match = examples_pattern.search(line), metric_pattern.search(line)
        if examples_match:
            self.examples = parse_examples(parse_number(examples_match[1], line), line)
        if self.examples is None or not (examples_match or metric_match):
            return None
        return Report(examples=self.examples, metric=parse_number(metric_match[1], line) if metric_match else None)


def compile_pattern(option: str, pattern: str) -> re.Pattern[str]:
    """Compile a pattern of the user's; refuse one that is invalid or has no group to take a number from."""
    try:
        compiled = re.compile(pattern)
    except re.error as error:
        raise EquipoiseError("option-format", f"cannot use --{option} {pattern!r}: {error}") from None
    if compiled.groups < 1:
        raise EquipoiseError(
            "option-format",
            f"cannot use --{option} {pattern!r}: it has no group",
            r'put the number into parentheses, such as "loss=(\S+)"',
        )
    return compiled


def parse_json_report(line: str) -> Report | None:
    """Return the report of a JSON line; None for any other line."""
    text = line.strip()
    if not (text.startswith("{") and text.endswith("}")):
        return None
    try:
        contents = json.loads(text, parse_int=parse_integer)
    except ValueError:
        return None
    if not isinstance(contents, dict) or "examples" not in contents:
        return None
    numbers = {name: contents[name] for name in ("metric", "seconds", "clock") if contents.get(name) is not None}
    for value in (contents["examples"], *numbers.values()):
        if isinstance(value, bool) or not isinstance(value, int | float):
            raise EquipoiseError("report-invalid", f"it reported {text[:80]}", f"report numbers: {REPORT_EXAMPLE}")
    return Report(examples=parse_examples(contents["examples"], text), **{k: float(v) for k, v in numbers.items()})


def parse_integer(text: str) -> float:
    """Parse an integer of JSON; one of too many digits for any count becomes a float, which may be infinite."""
    return int(text) if len(text) < MAX_INTEGER_LENGTH else float(text)


def parse_number(text: str | None, line: str) -> float:
    """Parse a number that a pattern has found, such as 1,024 or 3.5e-2."""
    try:
        return float((text or "").replace(",", ""))
    except ValueError:
        raise EquipoiseError(
            "report-invalid", f"the pattern takes {text!r} from its line {line.strip()[:80]!r}", "that is no number"
        ) from None


def parse_examples(number: float, line: str) -> int:
    """Return a number of examples; refuse one that is not a whole number from 0 on."""
    if not (0 <= number <= MAX_COUNT and number == int(number)):
        raise EquipoiseError(
            "report-invalid",
            f"the examples in {line.strip()[:80]!r} are not a whole number from 0 to {MAX_COUNT:,}",
            "report the examples seen so far",
        )
    return int(number)


@dataclass(kw_only=True)
class LapBuilder:
    """Laps of a training program, built from its reports as they come."""

    workers: int
    global_batch: int
    lr: float
    laps: list[Lap] = field(default_factory=list)
    seen: int = 0
    """examples of the last lap's end"""
    clock: float = 0.0
    """seconds since the start of the program at that end"""
    pending: tuple[int, float] | None = None
    """examples and clock of a report that has not ended a lap"""
    training_has_begun: bool = False
    """whether the clock of the first lap leaves out the start of the program"""

    def add_report(self, report: Report, elapsed_seconds: float) -> None:
        """Add a report that came `elapsed_seconds` after the start of the program; refuse one that goes backwards."""
        clock = elapsed_seconds if report.seconds is None else report.seconds
        if report.metric is not None and not math.isfinite(report.metric):
            raise EquipoiseError("report-invalid", f"the metric was {report.metric} after {report.examples:,} examples")
        last_examples, last_clock = self.pending or (self.seen, self.clock)
        require_progress("examples", report.examples, last_examples)
        require_progress("seconds", clock, last_clock)
        if report.examples == 0:
            self.clock, self.training_has_begun = clock, True
        elif report.examples == self.seen:
            metric = self.laps[-1].metric if report.metric is None else report.metric
            self.laps[-1] = replace(self.laps[-1], metric=metric)
            self.clock = clock  # what lay between the two was the evaluation
        elif report.metric is not None or clock - self.clock >= MIN_LAP_SECONDS:
            self._add_lap(report.examples, clock, report.metric)
        else:
            self.pending = report.examples, clock

    def finish(self) -> None:
        """Add what was reported last, however short the lap."""
        if self.pending:
            self._add_lap(*self.pending, metric=None)

    def _add_lap(self, examples: int, clock: float, metric: float | None) -> None:
        self.laps.append(self._build_lap(examples, clock, metric))
        self.seen, self.clock, self.pending = examples, clock, None

    def _build_lap(self, examples: int, clock: float, metric: float | None) -> Lap:
        step = max(len(self.laps) + 1, round(examples / self.global_batch))
        return Lap(
            step=step,
            steps=max(1, step - (self.laps[-1].step if self.laps else 0)),
            seen=examples,
            examples=examples - self.seen,
            workers=self.workers,
            lr=self.lr,
            seconds=max(1e-6, clock - self.clock),
            metric=metric,
        )

    def finished_laps(self) -> list[Lap]:
        """Return the laps; the start of the program is left out of the first once a second tells the pace."""
        return self.laps if self.training_has_begun else leave_out_startup(self.laps)


def require_progress(unit: str, value: float, last_value: float) -> None:
    """Refuse a report that goes backwards, or is no number."""
    if not last_value <= value < math.inf:
        raise EquipoiseError(
            "report-invalid",
            f"it reported {value:,.6g} {unit} after {last_value:,.6g}",
            f"count all {unit} since the start of training",
        )


def leave_out_startup(laps: Sequence[Lap]) -> list[Lap]:
    """Return laps of which the first takes no longer than at the median pace of the others."""
    if len(laps) < 2:
        return list(laps)
    pace = statistics.median(lap.seconds / lap.examples for lap in laps[1:])
    return [replace(laps[0], seconds=min(laps[0].seconds, pace * laps[0].examples)), *laps[1:]]
