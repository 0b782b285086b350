"""Section on the search of a sweep: what is tried and why, what pruning saved, and how sure the best setting is."""

import math
from collections.abc import Sequence

from dashboards.page import FactList, NumberCell, Section, SectionPart, Table, TableCell
from dashboards.theme import format_interval, format_seconds, format_significant
from equipoise.formatting import pluralize
from equipoise.planning.interval import IntervalEstimate
from equipoise.planning.search import PRUNE_FACTOR, SearchStage
from equipoise.planning.search_status.search_progress import SearchedTrial, SearchProgress, SettingStanding
from equipoise.runs.record import Record

REASON_BY_STAGE: dict[SearchStage, str] = {
    "ladder": "first look at this batch, among batches a factor of four apart",
    "learning rate": "is a higher or lower learning rate better at a batch that may still win?",
    "batch": "is a batch beside the best one better?",
    "slow batch": "smaller batches let expect that it is slow: tried last",
    "seed": "another run of the best setting or a rival, to tell luck from merit",
    "grid": "all batches, learning rates and seeds are tried",
    "spare slot": "keeps a free slot busy with another run of a good setting",
}
INTERVAL_ERRORS = 1.28  # standard errors to either side of the middle of 80 %


def build_search_section(progress: SearchProgress, trials: Sequence[Record], is_finished: bool) -> Section:
    """Build the section of a search, with the records of its trials as far as it still runs."""
    parts: list[SectionPart] = [FactList(name="search-facts", facts=list_search_facts(progress, trials))]
    if progress.running and not is_finished:
        parts.append(build_trials_table("running-trials", progress.running))
    if progress.next_trials and not is_finished:
        parts.append(build_trials_table("next-trials", progress.next_trials))
    if progress.standings:
        parts.append(build_standings_table(progress.standings))
    title = "How sure the search was" if is_finished else "What is tried now, and why"
    return Section(title=title, paragraphs=describe_certainty(progress, is_finished), parts=parts)


def list_search_facts(progress: SearchProgress, trials: Sequence[Record]) -> dict[str, str]:
    """Return the counts of trials, and what pruning saved."""
    facts = {"trials that ended": str(progress.finished), "trials running": str(len(progress.running))}
    pruned = [trial for trial in trials if trial.status == "pruned"]
    if pruned:
        saved = sum(map(estimate_saved_seconds, pruned))
        facts["pruned"] = f"{pluralize(len(pruned), 'trial')}, at {PRUNE_FACTOR:g} times the best setting's time"
        facts["saved by pruning"] = f"up to {format_seconds(saved)} of training, to the limit of examples"
    return facts


def estimate_saved_seconds(trial: Record) -> float:
    """Return the seconds that a pruned trial would have trained further, up to its limit of examples."""
    seen, limit = (trial.laps[-1].seen if trial.laps else 0), trial.config.max_examples
    if not seen or limit is None or trial.seconds <= 0:
        return 0.0
    return max(0.0, (limit - seen) / seen * trial.seconds)


def describe_certainty(progress: SearchProgress, is_finished: bool) -> list[str]:
    """Say how sure the best setting is, and what the next trials could change."""
    if not progress.standings or progress.standings[0].seconds is None:
        return ["No trial has reached the target yet."]
    best, rivals = progress.standings[0], progress.rivals
    name = f"a global batch of {best.global_batch} at lr {format_significant(best.lr)}"
    seeds = pluralize(best.seeds, "run")
    if not rivals:
        return [f"Best so far: {name}, from {seeds}. Every other setting that was tried is clearly slower."]
    others = " and ".join(f"{rival.global_batch} at lr {format_significant(rival.lr)}" for rival in rivals[:3])
    verb = "may still be" if not is_finished else "may be"
    text = f"Best so far: {name}, from {seeds}; {others} {verb} as fast."
    return [text if is_finished else f"{text} The next trials would tell them apart."]


def build_trials_table(name: str, trials: Sequence[SearchedTrial]) -> Table:
    """Build the table of trials that run, or that come next, with their reasons."""
    title = "running now" if name == "running-trials" else "comes next"
    rows: list[list[TableCell]] = [
        [
            trial.global_batch,
            NumberCell(trial.lr, format_significant(trial.lr)),
            trial.seed,
            REASON_BY_STAGE[trial.stage],
        ]
        for trial in trials
    ]
    return Table(name=name, columns=[f"{title}: global batch", "lr", "seed", "why"], rows=rows)


def build_standings_table(standings: Sequence[SettingStanding]) -> Table:
    """Build the table of the best settings with their expected times."""
    rows: list[list[TableCell]] = []
    for index, standing in enumerate(standings):
        verdict = "best so far" if index == 0 else "may still win" if standing.is_rival else "clearly slower"
        lr = NumberCell(standing.lr, format_significant(standing.lr))
        rows.append([standing.global_batch, lr, standing.seeds, format_standing_time(standing), verdict])
    columns = ["best settings: global batch", "lr", "runs", "expected time to the target", "verdict"]
    return Table(name="standings", columns=columns, rows=rows)


def format_standing_time(standing: SettingStanding) -> NumberCell:
    """Format the expected time of a setting with its 80 % interval."""
    if standing.seconds is None or standing.log_error is None:
        return NumberCell(None, "target not reached")
    factor = math.exp(INTERVAL_ERRORS * standing.log_error)
    estimate = IntervalEstimate(value=standing.seconds, low=standing.seconds / factor, high=standing.seconds * factor)
    return NumberCell(standing.seconds, format_interval(estimate, "s"))
