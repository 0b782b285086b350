"""Whether an adapted model may take the place of the one before."""

from pathlib import Path

import torch

from equipoise.bundle import bundle
from equipoise.drift.adaptation import workload as remedied
from equipoise.drift.adaptation.workload import Regime, Remedy
from equipoise.workloads import Split

CLEAN_LOSS = 0.005  # accuracy that may be lost on clean pictures
REGAINED = 0.5  # share of the accuracy lost by the drift, that must come back


def gate(old: bundle.Bundle, new: bundle.Bundle, remedy: Remedy, place: Path) -> bool:
    """Whether the new model is better where the old one fails, and no worse where it did not."""
    base = remedied.base(remedy, old.facts["trial"])
    few, labels = remedied.labelled(place / remedied.LABELLED, base)
    clean = {"clean": remedied.under(base.test, remedy.before)}
    if remedy.before != Regime():
        clean["at first"] = base.test
    drifted = {"drifted": remedied.under(base.test, remedy.now)} if remedy.drift != Regime() else {}
    if remedy.train is not None and len(labels) > remedy.train:
        drifted["labelled"] = Split(few[remedy.train :], labels[remedy.train :])
    rows = {name: (right(old, one), right(new, one)) for name, one in (clean | drifted).items()}
    for name, (before, after) in rows.items():
        print(f"{name:10} {before:7.2%} -> {after:7.2%}")
    usual, now = ([rows[name] for name in part] for part in (clean, drifted))
    why = refused_shares(rows["clean"], now) if remedy.drift.weights else refused(rows["clean"][0], usual, now)
    if why:
        print(f"refused: {why}")
    return why is None


def refused(usual: float, clean: list[tuple[float, float]], drifted: list[tuple[float, float]]) -> str | None:
    """The reason, by accuracies before and after; None if there is none. Where little was lost, none may be lost."""
    if not drifted:
        return "nothing shows the drift: label some pictures of it"
    worst = max(before - after for before, after in clean)
    if worst > CLEAN_LOSS:
        return f"{worst:.2%} lost on clean pictures, where {CLEAN_LOSS:.2%} may be"
    for before, after in drifted:
        lost = usual - before
        if after - before < (REGAINED * lost if lost > CLEAN_LOSS else -CLEAN_LOSS):
            return f"{after - before:.2%} came back of {lost:.2%} that the drift took, where {REGAINED:.0%} must"
    return None


def right(model: bundle.Bundle, split: Split) -> float:
    """Accuracy."""
    pictures = remedied.whole(split)
    called = torch.cat([model.run(some)[0].argmax(1) for some in pictures.split(64)])
    return float((called == split.labels).double().mean())


def refused_shares(clean: tuple[float, float], drifted: list[tuple[float, float]]) -> str | None:
    """The same where only classes come in other shares: what is expected more costs where it comes no more."""
    lost, won = clean[0] - clean[1], min(after - before for before, after in drifted)
    return (
        None if won >= max(lost, 0) else f"{lost:.2%} lost with the old shares of classes, {won:.2%} won with the new"
    )
