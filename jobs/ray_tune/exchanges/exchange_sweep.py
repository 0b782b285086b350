"""Search for a better way of exchange in a sweep, after its trials with exact sums.

Bounds by closed forms come first, and cost nothing: where none of them gains 5 % even without further examples, nothing
is measured. Else compressions are timed on one worker, the steps of at most two ways on all workers of their setting,
and these are tried in trials of one process each. Where whole models do not fit, the steps of the sharding to be used
are timed; it needs no trial, as it learns what they learn.
"""

import time
from collections.abc import Sequence
from dataclasses import asdict, fields, replace
from typing import Any

import pandas as pd
from ray.tune import Callback

from equipoise.errors import EquipoiseError
from equipoise.planning.build_document import PlanRequest
from equipoise.planning.exchange_choice.exact_fits import ExactFits, fit_exact_sums
from equipoise.planning.exchange_choice.exchange_bounds import (
    DEFAULT_CANDIDATES,
    ExchangeBound,
    bound_exchanges,
    select_survivors,
)
from equipoise.planning.exchange_choice.exchange_costs import ExchangeCosts
from equipoise.planning.exchanges.exchange_name import parse_exchange
from equipoise.planning.parameter_servers.worker_speeds import (
    describe_speeds,
    list_seconds_by_worker,
    select_worker_speeds,
)
from equipoise.planning.sharding.sharding_verdicts import estimate_shardings
from equipoise.planning.sharding.timed_sharding import choose_timed_sharding
from equipoise.planning.sharding.worker_limit import WorkerLimit
from equipoise.planning.step_time_fit import StepTimeFit
from equipoise.planning.sweep_budget import MIN_FINISHED_TRIALS
from equipoise.storage.atomic import write_json
from jobs.ray_tune.exchanges.exchange_facts import ExchangeFacts
from jobs.ray_tune.exchanges.exchange_messages import describe_no_gain, format_bound
from jobs.ray_tune.exchanges.exchange_option import AUTO, NONE
from jobs.ray_tune.exchanges.exchange_tables import build_run_table
from jobs.ray_tune.exchanges.exchange_trials import (
    ExchangeSearch,
    ExchangeSearchAdapter,
    ExchangeStatus,
    ExchangeTrials,
    exchange_trials_folder,
)
from jobs.ray_tune.exchanges.plan_memory import limit_memory
from jobs.ray_tune.run_trials import run_trials
from jobs.ray_tune.scheduling.deadline_scheduler import TimeReserve
from jobs.ray_tune.tuner import SweepTrials
from jobs.timing.exchange_step_timing import (
    EXCHANGE_TIMINGS_FILE,
    TimedExchange,
    time_encodings,
    time_exchange_steps,
)
from jobs.timing.timing_records import TimingTables

MAX_BUDGET_SHARE = 0.35  # of a sweep's budget for all that other ways of exchange take
SHARDING_BUDGET_SHARE = 0.05  # for the steps of one sharding
STEP_TIMING_SECONDS = 4.0  # for each way of exchange that is timed, in turns with exact sums
SINGLE_WORKER_REASON = "other ways of exchange are not considered: one worker exchanges nothing"
ONE_MACHINE_REASON = (
    "other ways of exchange are not considered on one machine, where exchanges pass through its memory;"
    " --exchanges local:16 powersgd:4 tries them"
)
COMMAND_REASON = "other ways of exchange are not considered: a command exchanges in its own way"


def list_candidates(names: Sequence[str], most_workers: int, command: str | None) -> tuple[str, ...]:
    """Return the ways of exchange that a sweep considers; none for a command or one worker, with a line that says so.

    DiLoCo is tried at the interval that is best for local SGD, which is therefore considered too.
    """
    if tuple(names) == (NONE,):
        return ()
    if command is not None or most_workers == 1:
        print(COMMAND_REASON if command is not None else SINGLE_WORKER_REASON, flush=True)
        return ()
    if tuple(names) == (AUTO,):
        return DEFAULT_CANDIDATES
    parsed = [parse_exchange(name).name for name in names]
    return tuple(dict.fromkeys(other for name in parsed for other in (name, name.replace("diloco", "local", 1))))


def keep_candidates_between_nodes(facts: ExchangeFacts, names: Sequence[str], most_nodes: int) -> ExchangeFacts:
    """Return the facts without candidates if all workers are on one machine, unless ways of exchange were named."""
    if most_nodes > 1 or tuple(names) != (AUTO,) or not facts.candidates:
        return facts
    print(ONE_MACHINE_REASON, flush=True)
    return replace(facts, candidates=())


def add_asynchronous_candidate(facts: ExchangeFacts, names: Sequence[str], steps: pd.DataFrame) -> ExchangeFacts:
    """Return the facts with `async:S` among the candidates where workers are unequal, unless ways were named."""
    speeds = select_worker_speeds(steps, None) if tuple(names) == (AUTO,) and facts.candidates else None
    if speeds is None:
        return facts
    print(describe_speeds(speeds), flush=True)
    return replace(facts, candidates=(*facts.candidates, f"async:{speeds.staleness}"))


class ExchangeSweep:
    """Search for a better way of exchange, from the timings of a sweep and its trials with exact sums."""

    def __init__(
        self,
        facts: ExchangeFacts,
        timings: TimingTables,
        step_fit: StepTimeFit,
        trials: SweepTrials,
        budget_seconds: float,
        are_named: bool = False,
    ) -> None:
        self.facts, self.timings, self.step_fit, self.trials = facts, timings, step_fit, trials
        self.are_named = are_named  # by the user, who wants them tried whatever they may gain
        self.max_seconds = MAX_BUDGET_SHARE * budget_seconds
        self.sharding_seconds = min(STEP_TIMING_SECONDS, SHARDING_BUDGET_SHARE * budget_seconds)
        self.last_deadline = self.deadline = trials.deadline
        self.folder = trials.folder.parent / "system"

    def reserve_time(self) -> None:
        """Let trials with exact sums end early, unless their results show that no way of exchange needs the time."""
        if self.facts.candidates and self.last_deadline < float("inf"):
            self.trials.deadline = self.last_deadline - self.max_seconds
            self.trials.reserve = TimeReserve(self.last_deadline, self.is_worth_time)

    def is_worth_time(self, runs: pd.DataFrame) -> bool:
        """Return whether a way of exchange may gain by these finished trials, so that time is to be left for it."""
        if len(runs) < MIN_FINISHED_TRIALS or not runs.reached.any():
            return False
        fits = self.fit_exact(runs)
        return fits is not None and bool(select_survivors(self.bound_all(fits), self.are_named))

    def fit_exact(self, runs: pd.DataFrame) -> ExactFits | None:
        """Fit the step times and finished trials with exact sums."""
        return fit_exact_sums(self.build_request(runs), step_fit=self.step_fit)

    def build_request(self, runs: pd.DataFrame) -> PlanRequest:
        """Build the request of a plan with exact sums, in any memory."""
        exchanges = self.timings.exchanges
        if len(exchanges):
            exchanges = exchanges.assign(share=exchanges.bytes / self.timings.steps.gradient_bytes.iloc[0])
        exchange = exchanges if len(exchanges) else None
        return PlanRequest(system=self.timings.steps, exchange=exchange, statistical=runs)

    def bound_all(self, fits: ExactFits) -> list[ExchangeBound]:
        """Return the optimistic bounds of all candidates by what is known so far."""
        return bound_exchanges(fits, self.build_costs(), self.facts.candidates)

    def build_costs(self) -> ExchangeCosts:
        """Build the closed forms by what is known so far."""
        return self.facts.build_costs(self.step_fit, list_seconds_by_worker(self.timings.steps))

    def run(self, callbacks: list[Callback]) -> bool:
        """Measure what may gain, and try it, until the answer cannot change or the time for it is up.

        Return whether there was anything to try.
        """
        self.deadline = min(self.last_deadline, time.time() + self.max_seconds)
        if not (self.facts.candidates or self.facts.memory):
            return False
        if (fits := self.fit_exact(runs := self.read_runs())) is None:
            return False
        if self.facts.memory:
            self.time_shardings(fits, limit_memory(self.build_request(runs), self.facts), self.facts.memory)
        if not self.facts.candidates:
            return False
        survivors = self.find_survivors(fits)
        if not survivors:
            print(describe_no_gain(self.bound_all(fits)), flush=True)
            return False
        if not (tried := [bound for bound in survivors if bound.needs_trials]):
            print("its steps are those of exact sums: no trial is needed", flush=True)
            return False
        self.try_survivors(fits, tried, callbacks)
        return True

    def time_shardings(self, fits: ExactFits, exact: PlanRequest, limit: WorkerLimit) -> None:
        """Time shardings until the one to be used, because whole models do not fit, was timed.

        This takes a few seconds beyond the budget, since trials use all of it and the plan depends on these steps.
        """
        failed: set[str] = set()
        for _ in self.facts.shardings:
            estimates = estimate_shardings(exact, fits, self.build_costs(), limit, self.facts.shardings)
            setting = choose_timed_sharding(estimates, self.timings.steps, failed)
            if setting is None or self.build_costs().is_timed(setting.exchange):
                return
            try:
                self.time_steps([TimedExchange(**setting._asdict())], self.sharding_seconds)
            except EquipoiseError as error:
                print(f"cannot time {setting.exchange}, its closed form decides: {error}", flush=True)
            if not self.build_costs().is_timed(setting.exchange):
                failed.add(setting.exchange)

    def read_runs(self) -> pd.DataFrame:
        """Read the finished trials with exact sums."""
        trials = self.trials
        return build_run_table(trials.folder, trials.base, trials.workers_by_batch, with_exchanges=False)

    def try_survivors(self, fits: ExactFits, survivors: Sequence[ExchangeBound], callbacks: list[Callback]) -> None:
        """Run trials with the ways of exchange that may gain, until the time for them is up."""
        names = " and ".join(f"{bound.exchange} ({format_bound(bound)})" for bound in survivors)
        print(f"trying other ways of exchange: {names}", flush=True)
        search = ExchangeSearch(fits, self.build_costs(), survivors, self.trials.workers_by_batch, self.facts.momentum)
        trials = ExchangeTrials(**inherited_fields(self.trials) | {"deadline": self.deadline, "reserve": None})
        exchange_trials_folder(trials.folder).mkdir(exist_ok=True, parents=True)
        adapter = ExchangeSearchAdapter(search, trials, ExchangeStatus())  # type: ignore[arg-type]  # it shows them too
        adapter.sweep_status.num_shown = len(adapter.finished_trials)  # type: ignore[attr-defined]
        if adapter.time_is_up():
            print(
                "no time is left for trials of them: the same command tries them, or give more --budget-seconds",
                flush=True,
            )
            return
        run_trials(adapter, callbacks, prune=True)
        adapter.add_trials_that_ended_late()
        if adapter.time_is_up():
            print("the time for trials of them is up: the same command goes on with them", flush=True)

    def find_survivors(self, fits: ExactFits) -> list[ExchangeBound]:
        """Return the ways of exchange to try, once compressions and steps were timed as far as they are not yet."""
        bounds = self.bound_all(fits)
        if (compressions := self.list_untimed_compressions(bounds)) and time.time() < self.deadline:
            self.time_encodings(compressions)
            bounds = self.bound_all(fits)
        survivors = self.select_survivors(bounds)
        if (pending := self.list_untimed_steps(survivors)) and time.time() < self.deadline:
            self.time_steps(pending)
            survivors = self.select_survivors(self.bound_all(fits))
        return survivors

    def select_survivors(self, bounds: Sequence[ExchangeBound]) -> list[ExchangeBound]:
        """Return at most one way of exchange of each kind; those that were timed come first.

        What was timed was the most promising before, and its trials go on.
        """
        timed = {row.exchange for row in self.facts.timings.steps}
        kept = select_survivors([bound for bound in bounds if bound.exchange in timed], self.are_named)
        groups = {bound.group for bound in kept}
        others = select_survivors(bounds, self.are_named)
        return [*kept, *(bound for bound in others if bound.group not in groups)]

    def list_untimed_compressions(self, bounds: Sequence[ExchangeBound]) -> list[str]:
        """Return the compressions that may gain if encoding were free, and whose encoding was not timed."""
        tried = [bound for bound in bounds if (bound.may_gain if self.are_named else bound.is_worth_trials)]
        compressions = [parse_exchange(bound.exchange).compression for bound in tried]
        known = self.facts.timings.encode_seconds
        return [name for name in dict.fromkeys(compressions) if name != "none" and name not in known]

    def list_untimed_steps(self, survivors: Sequence[ExchangeBound]) -> list[TimedExchange]:
        """Return the settings of ways of exchange whose steps were not timed."""
        return [
            TimedExchange(exchange=bound.exchange, workers=bound.workers, batch=bound.batch)
            for bound in survivors
            if self.facts.timings.find_steps(bound.exchange, bound.workers, bound.batch) is None
        ]

    def time_encodings(self, compressions: Sequence[str]) -> None:
        """Time compressions on one worker, and keep the result."""
        print(f"timing {', '.join(compressions)} on one worker", flush=True)
        start = time.time()
        measured = time_encodings(self.trials.base, self.facts.gradient_shapes, compressions, self.trials.gpu)
        self.extend_deadline(time.time() - start - measured.seconds)
        self.keep_timings(encode_seconds=self.facts.timings.encode_seconds | measured.encode_seconds)

    def time_steps(self, exchanges: Sequence[TimedExchange], seconds: float = STEP_TIMING_SECONDS) -> None:
        """Time steps on all workers of their settings, and keep the result."""
        names = " and ".join(f"{timed.exchange} on {timed.workers} x {timed.batch}" for timed in exchanges)
        print(f"timing steps with {names}, in turns with exact sums", flush=True)
        start = time.time()
        measured = time_exchange_steps(self.trials.base, exchanges, self.folder, self.trials.gpu, seconds)
        self.extend_deadline(time.time() - start - measured.seconds)
        for row in measured.steps:
            print(f"  a step with {row.exchange} takes {row.ratio:.2g} of the time with exact sums", flush=True)
        self.keep_timings(steps=[*self.facts.timings.steps, *measured.steps])

    def extend_deadline(self, seconds: float) -> None:
        """Move the deadline by the start of processes, which is not part of a sweep's budget."""
        self.deadline += max(0.0, seconds)

    def keep_timings(self, **changes: object) -> None:
        """Write what was timed, so that the same command does not time it again."""
        timings = replace(self.facts.timings, **changes)  # type: ignore[arg-type]
        self.facts = replace(self.facts, timings=timings)
        write_json(self.folder / EXCHANGE_TIMINGS_FILE, asdict(timings))


def inherited_fields(trials: SweepTrials) -> dict[str, Any]:
    """Return the options of the trials of a sweep."""
    return {field.name: getattr(trials, field.name) for field in fields(SweepTrials) if field.init}
