"""The time of one optimizer step over nodes, workers and batch: fitted, with what the rows cannot tell left open.

    T1 = a + c * batch                                  computing
    T2 = 2 (p - 1) alpha + 2 (p - 1) / p * volume       an exchange in a ring of p workers
    T  = (T1^g + T2^g)^(1/g)                            g above 1: they overlap; below: they stand in each other's way

`volume` is the gradient's bytes times the seconds a byte takes. Inside a node and between
nodes the ring has an alpha and a volume of its own. A ring may hold all workers
(`ring`), or first those of a node and then one of each node (`two rings`). Which of the
forms is used is decided on rows held out: those of the most workers.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from scipy.optimize import least_squares

Floats = NDArray[np.float64]

DRAWS = 60  # of the bootstrap
SMALLEST, LARGEST = 1e-9, 1e4  # seconds that any parameter may be
OVERLAPS = (1.0, 10.0)  # of g
CROWDED = 0.5  # lowest g on a single machine, whose cores also do the exchange
USUAL_ALPHA, UNUSUAL = 0.02, 3.0  # alpha as a share of volume, and how far it usually is from that, in natural logs
PRECISE = 0.002  # least scatter of rows about a fit, in log seconds
COVERED = (0.1, 0.9)  # quantiles of every interval: 80 %
TRUST = 0.75  # share of a measurement, beside the fit, in what is believed of its setting
SURE_ROWS = 4  # rows beyond the parameters before held-out rows may choose the form


class Form(NamedTuple):
    """Which parameters a fit has."""

    two_rings: bool = False
    local: tuple[str, ...] = ()
    """of the exchange inside a node: alpha and volume, volume alone, or none"""
    between: tuple[str, ...] = ()
    """of the exchange between nodes"""
    overlap: bool = False
    """whether g is fitted; otherwise 1: nothing overlaps"""
    batch: bool = True
    """whether the part of computing that grows with the batch is told apart"""

    @property
    def names(self) -> list[str]:
        """Parameters in the order of their vector."""
        names = ["a", *(["c"] if self.batch else [])]
        names += [f"local_{name}" for name in self.local] + [f"between_{name}" for name in self.between]
        return names + ["g"] * self.overlap


class Places(NamedTuple):
    """Settings whose step time is asked for: arrays of one length."""

    nodes: Floats
    workers: Floats
    batch: Floats

    @classmethod
    def of(cls, rows: pd.DataFrame) -> "Places":
        """The settings of a table."""
        return cls(*(rows[name].to_numpy(float) for name in ("nodes", "workers", "batch")))


def ring(size: Floats, alpha: float, volume: float) -> Floats:
    """Seconds in which `size` workers sum what takes `volume` seconds to send once, at `alpha` seconds a message."""
    return 2 * (size - 1) * alpha + 2 * (size - 1) / size * volume


def parts(form: Form, parameters: dict[str, float], at: Places) -> tuple[Floats, Floats]:
    """Seconds of computing and of the exchange, each alone."""
    known = dict.fromkeys(("c", "local_alpha", "local_volume", "between_alpha", "between_volume"), 0.0) | parameters
    compute = known["a"] + known["c"] * at.batch
    local = known["local_alpha"], known["local_volume"]
    between = known["between_alpha"], known["between_volume"]
    if form.two_rings:
        inside = np.ceil(at.workers / at.nodes)
        return compute, ring(inside, *local) + ring(at.nodes, *between)
    return compute, np.where(at.nodes > 1, ring(at.workers, *between), ring(at.workers, *local))


def together(compute: Floats, exchange: Floats, g: float) -> Floats:
    """Seconds of a step whose parts overlap as `g` says: 1 is their sum, 10 nearly the longer of both."""
    longer, shorter = np.maximum(compute, exchange), np.minimum(compute, exchange)
    return np.asarray(longer * (1 + (shorter / longer) ** g) ** (1 / g))


def seconds(form: Form, parameters: dict[str, float], at: Places) -> Floats:
    """Seconds of a step."""
    return together(*parts(form, parameters, at), parameters.get("g", 1.0))


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


def fitted(rows: pd.DataFrame) -> System:
    """The system that rows of nodes, workers, batch and seconds tell of."""
    pace_sd = float(rows.pace_sd.median()) if "pace_sd" in rows else 0.0
    rows = rows.groupby(["nodes", "workers", "batch"])["seconds"].median().reset_index()
    form, error = chosen(rows)
    parameters = fit(form, rows)
    logs = residuals(form, parameters, rows)
    if error is None:
        error = float(np.mean(np.abs(np.expm1(logs))))
    draws = bootstrap(form, parameters, rows)
    return System(
        form=form,
        parameters=parameters,
        error=error,
        rows=rows,
        draws=draws,
        spread=widened(logs, form),
        pace_sd=pace_sd,
    )


def forms(rows: pd.DataFrame) -> list[Form]:
    """Every form that the rows can tell the parameters of, the simplest first."""
    local = exchange(rows[rows.nodes == 1], rows)
    between = exchange(rows[rows.nodes > 1], rows)
    batch = rows.batch.nunique() > 1
    plain = Form(local=local, between=between, batch=batch)
    found = [plain]
    if len(rows) > len(plain.names) + 1 and rows.batch.nunique() > 2 and (rows.workers > 1).any():
        found.append(plain._replace(overlap=True))
    if between and rows.nodes[rows.nodes > 1].nunique() > 1:
        inside = np.ceil(rows.workers.to_numpy() / rows.nodes.to_numpy())
        sizes = len(set(inside[inside > 1]))
        rings = ("alpha", "volume") if sizes > 1 else ("volume",) if sizes else ()
        found += [form._replace(two_rings=True, local=rings) for form in list(found)]
    return [form for form in found if len(rows) >= len(form.names)] or [plain]


def exchange(here: pd.DataFrame, rows: pd.DataFrame) -> tuple[str, ...]:
    """Parameters that rows tell: both need two sizes of the ring, and one worker or a third size beside them."""
    sizes = here.workers[here.workers > 1].nunique()
    if not sizes:
        return ()
    return ("alpha", "volume") if sizes > 2 or (sizes == 2 and (rows.workers == 1).any()) else ("volume",)


def chosen(rows: pd.DataFrame) -> tuple[Form, float | None]:
    """The form that predicts the rows of the most workers best from the others, and its error there."""
    counts = sorted(rows.workers.unique())
    if len(counts) > 2:
        first_held = counts[-(len(counts) // 3)]
        known, held = rows[rows.workers < first_held], rows[rows.workers >= first_held]
        candidates = [
            form for form in forms(known) if form in forms(rows) and len(known) >= len(form.names) + SURE_ROWS
        ]
        errors = {form: error(form, known, held) for form in candidates}
        if errors:
            best = min(errors, key=lambda form: errors[form])
            return best, errors[best]
    return forms(rows)[-1 if len(rows) > SURE_ROWS + len(forms(rows)[-1].names) else 0], None


def error(form: Form, known: pd.DataFrame, held: pd.DataFrame) -> float:
    """Mean relative error on rows held out."""
    return float(np.mean(np.abs(np.expm1(residuals(form, fit(form, known), held)))))


def residuals(form: Form, parameters: dict[str, float], rows: pd.DataFrame) -> Floats:
    """log(fit / measured) of each row."""
    return np.asarray(np.log(seconds(form, parameters, Places.of(rows)) / rows.seconds.to_numpy(float)))


def fit(form: Form, rows: pd.DataFrame, start: dict[str, float] | None = None) -> dict[str, float]:
    """Parameters with the least robust error in log seconds: the best of several starts, or of the one given."""
    free = least(form, rows, [start] if start else first_guesses(form, rows), pull=0.0)
    scatter = max(PRECISE, 1.4826 * float(np.median(np.abs(residuals(form, free, rows)))))
    return least(form, rows, [free], pull=scatter / UNUSUAL)


def least(form: Form, rows: pd.DataFrame, starts: Sequence[dict[str, float]], pull: float) -> dict[str, float]:
    """The best fit from any of the starts, alpha drawn to where it usually is."""
    measured, at = np.log(rows.seconds.to_numpy(float)), Places.of(rows)
    least_overlap = CROWDED if (rows.nodes == 1).all() else OVERLAPS[0]
    low = [np.log(least_overlap if name == "g" else SMALLEST) for name in form.names]
    high = [np.log(OVERLAPS[1] if name == "g" else LARGEST) for name in form.names]

    def off(logs: Floats) -> Floats:
        parameters = dict(zip(form.names, np.exp(logs), strict=True))
        return np.concatenate(
            [np.log(seconds(form, parameters, at)) - measured, np.multiply(pull, unusual(parameters))]
        )

    found = []
    for guess in starts:
        begin = np.clip(np.log([guess[name] for name in form.names]), np.add(low, 1e-6), np.subtract(high, 1e-6))
        found.append(least_squares(off, begin, bounds=(low, high), loss="soft_l1", f_scale=0.1, x_scale="jac"))
    best = min(found, key=lambda fit: fit.cost)
    return dict(zip(form.names, np.exp(best.x).tolist(), strict=True))


def unusual(parameters: dict[str, float]) -> list[float]:
    """How far an alpha lies from what it usually is beside its volume: small rings hardly tell one from the other.

    Without it a fit to at most four workers puts alpha at 0 and predicts large rings too fast.
    """
    return [
        float(np.log(parameters[f"{level}_alpha"] / (USUAL_ALPHA * parameters[f"{level}_volume"])))
        for level in ("local", "between")
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
            guess |= {f"{level}_{name}": volume / (50 if name == "alpha" else 2) for level in ("local", "between")
                      for name in ("alpha", "volume")}  # fmt: skip
            guesses.append(guess)
    return guesses


def bootstrap(form: Form, parameters: dict[str, float], rows: pd.DataFrame) -> list[dict[str, float]]:
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
        found.append(fit(form, drawn, start=parameters) if forms_hold(form, drawn) else parameters)
    return found


def forms_hold(form: Form, rows: pd.DataFrame) -> bool:
    """Whether a draw still tells all the parameters."""
    between, local = rows[rows.nodes > 1], rows[(rows.nodes == 1) & (rows.workers > 1)]
    return all(not names or here.workers.nunique() >= len(names) for names, here in ((form.between, between),
               (form.local, rows if form.two_rings else local))) and rows.batch.nunique() > form.batch  # fmt: skip


def widened(logs: Floats, form: Form) -> Floats:
    """Residuals made as large as errors are: the parameters have taken a part of them away."""
    return logs * float(np.sqrt(len(logs) / max(len(logs) - len(form.names), 1)))
