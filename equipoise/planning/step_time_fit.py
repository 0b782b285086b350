"""The time of one optimizer step: the form that the rows tell of, fitted, with what they cannot tell left open.

Which of the forms is used is decided on rows held out: those of the most workers.

Steps alone hardly tell an exchange's alpha from its volume, and on one size of ring not at all. Exchanges timed by
themselves, of fewer bytes than the gradient's, do.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from scipy.optimize import least_squares

from equipoise.planning.step_time_model import LEVELS, Floats, Form, Places, parts, seconds

DRAWS = 60  # of the bootstrap
SMALLEST, LARGEST = 1e-9, 1e4  # seconds that any parameter may be
ENOUGH = {"ftol": 1e-6, "xtol": 1e-6}  # where g hardly matters the last digits of a fit take minutes
OVERLAPS = (1.0, 10.0)  # of g
CROWDED = 0.5  # lowest g on a single machine, whose cores also do the exchange
USUAL_ALPHA, UNUSUAL = 0.02, 3.0  # alpha as a share of volume, and how far it usually is from that, in natural logs
PRECISE = 0.002  # least scatter of rows about a fit, in log seconds
COVERED = (0.1, 0.9)  # quantiles of every interval: 80 %
TRUST = 0.75  # share of a measurement, beside the fit, in what is believed of its setting
SURE_ROWS = 4  # rows beyond the parameters before held-out rows may choose the form
WIDE = 8  # times the bytes of the smallest exchange in the largest: enough to tell alpha from volume
NO_EXCHANGES = pd.DataFrame([], columns=["nodes", "workers", "kind", "share", "seconds"], dtype=float)


@dataclass(frozen=True, kw_only=True)
class System:
    """A fit, and how far it can be trusted."""

    form: Form
    parameters: dict[str, float]
    error: float
    """mean relative error on the rows held out, or on all where none could be"""
    rows: pd.DataFrame = field(repr=False)
    draws: Sequence[dict[str, float]] = field(repr=False)
    spread: Floats = field(repr=False)
    """of rows about the fit, in log seconds, most of them within"""
    pace_sd: float = 0.0
    """standard deviation of log seconds from one moment to another, where rows tell of it"""
    gradient_bytes: float | None = None
    """where rows tell of them"""

    def seconds(self, at: Places) -> Floats:
        """Seconds of a step, where `missing` says nothing against it."""
        return seconds(self.form, self.parameters, at)

    def believed(self, at: Places) -> Floats:
        """The same, where it was measured mostly as that says: rows scatter less about the truth than fits do."""
        known = self.rows.groupby(["nodes", "workers", "batch"]).seconds.median()
        measured = known.reindex(pd.MultiIndex.from_arrays(at)).to_numpy(float)
        fits = self.seconds(at)
        return np.asarray(np.where(np.isnan(measured), fits, measured**TRUST * fits ** (1 - TRUST)))

    def sampled(self, at: Places) -> Floats:
        """Seconds of a step as each draw of the bootstrap has it: one row a draw, a row's own spread included."""
        rng = np.random.default_rng(0)
        fits = np.array([seconds(self.form, draw, at) for draw in self.draws])
        return np.asarray(fits * np.exp(rng.choice(self.spread, fits.shape)))

    def missing(self, nodes: int, workers: int, batch: int) -> str | None:
        """What would have to be measured before this setting can be predicted; None if nothing."""
        if not self.form.batch and batch not in set(self.rows.batch):
            return "rows of a second batch per worker"
        if workers == 1:
            return None if (self.rows.workers == 1).any() or self.separated() else "rows of one worker"
        sizes = set(self.rows.workers[(self.rows.nodes > 1) == (nodes > 1)]) - {1}
        where = "on several nodes" if nodes > 1 else "within one node"
        if not sizes:
            return f"rows of several workers {where}"
        told = len(self.form.between if nodes > 1 else self.form.local) > 1
        return None if told or workers in sizes else f"rows of another number of workers {where}"

    def separated(self) -> bool:
        """Whether computing was told from the exchange although no row has one worker."""
        return "alpha" in self.form.local or "alpha" in self.form.between

    @property
    def identifiable(self) -> bool:
        """Whether computing, and every exchange that was measured, is known beyond what was measured."""
        single = self.rows.nodes == 1
        exchanges = [(self.form.local, single & (self.rows.workers > 1)), (self.form.between, ~single)]
        return self.form.batch and all(len(names) > 1 for names, seen in exchanges if seen.any())


def fitted(rows: pd.DataFrame, exchanges: pd.DataFrame = NO_EXCHANGES) -> System:
    """The system that rows of nodes, workers, batch and seconds tell of.

    `exchanges` are rows of nodes, workers, kind (sum or message), share (of the gradient's bytes) and seconds.
    """
    pace_sd = float(rows.pace_sd.median()) if "pace_sd" in rows else 0.0
    size = float(rows.gradient_bytes.median()) if "gradient_bytes" in rows else None
    rows = rows.groupby(["nodes", "workers", "batch"])["seconds"].median().reset_index()
    form, held_out = chosen(rows, exchanges)
    parameters = fit(form, rows, exchanges)
    logs = residuals(form, parameters, rows)
    draws = bootstrap(form, parameters, rows, exchanges)
    return System(
        form=form,
        parameters=parameters,
        error=error(form, parameters, rows) if held_out is None else held_out,
        rows=rows,
        draws=draws,
        spread=widened(logs, form),
        pace_sd=pace_sd,
        gradient_bytes=size,
    )


def forms(rows: pd.DataFrame, exchanges: pd.DataFrame = NO_EXCHANGES) -> list[Form]:
    """Every form that the rows can tell the parameters of, the simplest first."""
    local = exchange(rows[rows.nodes == 1], rows, exchanges[exchanges.nodes == 1])
    between = exchange(rows[rows.nodes > 1], rows, exchanges[exchanges.nodes > 1])
    batch, told = rows.batch.nunique() > 1, len(rows) + len(exchanges)
    plain = Form(local=local, between=between, batch=batch)
    found = [plain]
    if told > len(plain.names) + 1 and rows.batch.nunique() > 2 and (rows.workers > 1).any():
        found.append(plain._replace(overlap=True))
    if between and rows.nodes[rows.nodes > 1].nunique() > 1:
        inside = np.ceil(rows.workers.to_numpy() / rows.nodes.to_numpy())
        sizes = len(set(inside[inside > 1]))
        rings = ("alpha", "volume") if sizes > 1 else ("volume",) if sizes else ()
        found += [form._replace(two_rings=True, local=rings) for form in list(found)]
    return [form for form in found if told >= len(form.names)] or [plain]


def exchange(here: pd.DataFrame, rows: pd.DataFrame, exchanges: pd.DataFrame) -> tuple[str, ...]:
    """Parameters that rows tell: both need two sizes of the ring, and one worker or a third size beside them.

    Or exchanges of few bytes and of many.
    """
    sizes = here.workers[here.workers > 1].nunique()
    if not sizes:
        return ()
    wide = len(exchanges) and exchanges.share.max() >= WIDE * exchanges.share.min()
    enough = wide or sizes > 2 or (sizes == 2 and (rows.workers == 1).any())
    return ("alpha", "volume") if enough else ("volume",)


def chosen(rows: pd.DataFrame, exchanges: pd.DataFrame) -> tuple[Form, float | None]:
    """The form that predicts the rows of the most workers best from the others, and its error there."""
    counts = sorted(rows.workers.unique())
    possible = forms(rows, exchanges)
    if len(counts) > 2:
        first_held = counts[-(len(counts) // 3)]
        known, held = rows[rows.workers < first_held], rows[rows.workers >= first_held]
        beside = exchanges[exchanges.workers < first_held]
        sure = len(known) + len(beside) - SURE_ROWS
        candidates = [form for form in forms(known, beside) if form in possible and len(form.names) <= sure]
        errors = {form: error(form, fit(form, known, beside), held) for form in candidates}
        if errors:
            best = min(errors, key=lambda form: errors[form])
            return best, errors[best]
    return possible[-1 if len(rows) + len(exchanges) > SURE_ROWS + len(possible[-1].names) else 0], None


def error(form: Form, parameters: dict[str, float], rows: pd.DataFrame) -> float:
    """Mean relative error."""
    return float(np.mean(np.abs(np.expm1(residuals(form, parameters, rows)))))


def residuals(form: Form, parameters: dict[str, float], rows: pd.DataFrame) -> Floats:
    """log(fit / measured) of each row."""
    return np.asarray(np.log(seconds(form, parameters, Places.of(rows)) / rows.seconds.to_numpy(float)))


def fit(
    form: Form, rows: pd.DataFrame, exchanges: pd.DataFrame, start: dict[str, float] | None = None
) -> dict[str, float]:
    """Parameters with the least robust error in log seconds: the best of several starts, or of the one given."""
    free = least(form, rows, exchanges, [start] if start else first_guesses(form, rows), pull=0.0)
    scatter = max(PRECISE, 1.4826 * float(np.median(np.abs(residuals(form, free, rows)))))
    return least(form, rows, exchanges, [free], pull=scatter / UNUSUAL)


def least(
    form: Form, rows: pd.DataFrame, exchanges: pd.DataFrame, starts: Sequence[dict[str, float]], pull: float
) -> dict[str, float]:
    """The best fit from any of the starts, alpha drawn to where it usually is."""
    unknown = [level for level, here in zip(LEVELS, (exchanges.nodes == 1, exchanges.nodes > 1), strict=True)
               if not here.any()]  # fmt: skip
    least_overlap = CROWDED if (rows.nodes == 1).all() else OVERLAPS[0]
    low = [np.log(least_overlap if name == "g" else SMALLEST) for name in form.names]
    high = [np.log(OVERLAPS[1] if name == "g" else LARGEST) for name in form.names]

    at, measured, timed = Places.of(rows), np.log(rows.seconds.to_numpy(float)), Timed.of(exchanges)

    def off(logs: Floats) -> Floats:
        parameters = dict(zip(form.names, np.exp(logs).tolist(), strict=True))
        both = np.log(seconds(form, parameters, at)) - measured, timed.off(form, parameters)
        return np.concatenate([*both, np.multiply(pull, unusual(parameters, unknown))])

    found = []
    for guess in starts:
        begin = np.clip(np.log([guess[name] for name in form.names]), np.add(low, 1e-6), np.subtract(high, 1e-6))
        found.append(
            least_squares(off, begin, bounds=(low, high), loss="soft_l1", f_scale=0.1, x_scale="jac", **ENOUGH)
        )
    best = min(found, key=lambda fit: fit.cost)
    return dict(zip(form.names, np.exp(best.x).tolist(), strict=True))


class Timed(NamedTuple):
    """Exchanges that were timed by themselves: arrays of one length."""

    at: Places
    share: Floats
    seconds: Floats
    message: NDArray[np.bool_]
    between: NDArray[np.bool_]

    @classmethod
    def of(cls, table: pd.DataFrame) -> "Timed":
        """Those of a table."""
        share, took = table.share.to_numpy(float), table.seconds.to_numpy(float)
        at = Places.of(table.assign(batch=0))
        return cls(at, share, took, (table.kind == "message").to_numpy(bool), (table.nodes > 1).to_numpy(bool))

    def off(self, form: Form, parameters: dict[str, float]) -> Floats:
        """log(fit / measured) of each."""
        if not len(self.share):
            return np.empty(0)
        _, sums = parts(form, parameters, self.at, self.share)
        local, between = ([parameters.get(f"{level}_{name}", 0.0) for name in ("alpha", "volume")] for level in LEVELS)
        alpha, volume = np.where(self.between, np.array(between)[:, None], np.array(local)[:, None])
        foretold = np.where(self.message, alpha + self.share * volume, sums)
        return np.asarray(np.log(foretold / self.seconds))


def unusual(parameters: dict[str, float], levels: Sequence[str]) -> list[float]:
    """How far an alpha lies from what it usually is beside its volume: small rings hardly tell one from the other.

    Without it a fit to at most four workers puts alpha at 0 and predicts large rings too fast.
    """
    return [
        float(np.log(parameters[f"{level}_alpha"] / (USUAL_ALPHA * parameters[f"{level}_volume"])))
        for level in levels
        if f"{level}_alpha" in parameters
    ]


def first_guesses(form: Form, rows: pd.DataFrame) -> list[dict[str, float]]:
    """Starts from what single workers take, with the exchange taking a tenth, half or nine tenths of the rest."""
    least, most = float(rows.seconds.min()), float(rows.seconds.max())
    slope = max(most - least, least * 0.01) / max(float(rows.batch.max()), 1.0)
    guesses = []
    for share in (0.1, 0.5, 0.9):
        for g in (1.5, 4.0) if form.overlap else (1.0,):
            volume = max(most * share, SMALLEST)
            guess = {"a": least * (1 - share), "c": slope * share, "g": g}
            guess |= {f"{level}_{name}": volume / (50 if name == "alpha" else 2) for level in LEVELS
                      for name in ("alpha", "volume")}  # fmt: skip
            guesses.append(guess)
    return guesses


def bootstrap(
    form: Form, parameters: dict[str, float], rows: pd.DataFrame, exchanges: pd.DataFrame
) -> list[dict[str, float]]:
    """Fits to what might as well have been measured: whole groups of workers are drawn anew where there are enough.

    Rows of one group share what is peculiar to it (its place in the network), so single
    rows drawn anew would make a fit look surer than it is.
    """
    rng = np.random.default_rng(0)
    groups = [group for _, group in rows.groupby(["nodes", "workers"])]
    found = []
    for _ in range(DRAWS):
        if len(groups) > 2 * len(form.names):
            drawn = pd.concat([groups[i] for i in rng.integers(0, len(groups), len(groups))])
        else:  # too few to leave any out: the residuals are dealt to the rows anew
            noise = rng.choice(widened(residuals(form, parameters, rows), form), len(rows))
            drawn = rows.assign(seconds=rows.seconds * np.exp(noise))
        off = Timed.of(exchanges).off(form, parameters)
        beside = exchanges.assign(seconds=exchanges.seconds * np.exp(rng.choice(off, len(off)) if len(off) else off))
        held = forms_hold(form, drawn, exchanges)
        found.append(fit(form, drawn, beside, start=parameters) if held else parameters)
    return found


def forms_hold(form: Form, rows: pd.DataFrame, exchanges: pd.DataFrame) -> bool:
    """Whether a draw still tells all the parameters."""
    between, local = rows[rows.nodes > 1], rows[(rows.nodes == 1) & (rows.workers > 1)]
    sizes = {"between": between, "local": rows if form.two_rings else local}
    timed = {"between": (exchanges.nodes > 1).any(), "local": (exchanges.nodes == 1).any()}
    levels = [(level, names) for level, names in (("between", form.between), ("local", form.local)) if names]
    return rows.batch.nunique() > form.batch and all(
        timed[level] or sizes[level].workers.nunique() >= len(names) for level, names in levels
    )


def widened(logs: Floats, form: Form) -> Floats:
    """Residuals made as large as errors are: the parameters have taken a part of them away."""
    return logs * float(np.sqrt(len(logs) / max(len(logs) - len(form.names), 1)))
