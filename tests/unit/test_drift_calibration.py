from dataclasses import fields
from functools import cache

import numpy as np
import pytest

from equipoise.drift.baseline import FIGURES, baseline
from equipoise.drift.charts import Step, charts, rules
from equipoise.drift.publishing import looked_at
from equipoise.drift.waves import waves
from tests.drifting import CLASSES, known, model, pictures

ASKED = 2000.0
REFERENCES, EACH, PICTURES = 12, 16, 4096  # of streams: about 20 alarms a reference and 250 in all, if rightly set
ARRAY = np.ndarray


@cache
def answered(count, seed):
    """Pictures, what they show, and what the model says of them."""
    some, labels = pictures(count, seed)
    return some, labels, *(one.numpy() for one in model(some))


@cache
def held(seed):
    """A reference of its own, without thresholds, and 4,000 fresh pictures against it."""
    some, _, logits, features = answered(600, seed)
    directions = waves(features)
    base = baseline(looked_at(some, logits, directions(features), 1.0), CLASSES, directions, 1.0)
    fresh, labels, logits, features = answered(4000, 7)
    seen = base.seen(fresh.numpy(), logits, features)
    counts = np.eye(CLASSES)[seen.classes]
    rest = seen.waves - base.usual.waves[seen.classes]
    return base.usual, labels, np.concatenate([counts, base.usual.scores(seen), rest], 1)


def alarms(seed, length, size, count=PICTURES):
    """How often thresholds of the shared reference are reached by streams against another; charts begin anew then."""
    usual, labels, table = held(seed)
    rng, sizes = np.random.default_rng(seed), np.full(EACH, float(size))
    state, new = (charts(rules(usual), len(FIGURES), usual.waves.shape[1], streams) for streams in (EACH, 1))
    members = [np.flatnonzero(labels == one) for one in range(CLASSES)]
    shown, found = rng.integers(0, CLASSES, EACH), 0
    for _ in range(count // size):
        drawn, begins = rng.integers(0, CLASSES, (EACH, size)), rng.random((EACH, size)) < 1 / length
        drawn = np.concatenate([shown[:, None], drawn], 1)
        since = np.maximum.accumulate(np.where(begins, np.arange(1, size + 1), 0), 1)
        called = np.take_along_axis(drawn, since, 1)
        shown = called[:, -1]
        places = np.choose(called, [rng.choice(one, called.shape) for one in members])
        sums = table[places].sum(1)
        state.step(Step(*np.split(sums, [CLASSES, CLASSES + len(FIGURES)], 1)))
        conditions = sizes, state.runs.length()
        values = known().calibration.scaled(state.values(), *conditions).max(1)
        high = values >= known().calibration.threshold(ASKED, *conditions)
        begin_anew(state, new, high)
        begin_anew(state.runs, new.runs, high)
        found += int(high.sum())
    return found


def begin_anew(state, new, high):
    for name in (one.name for one in fields(state)):
        if isinstance(values := getattr(state, name), np.ndarray):
            values[high] = getattr(new, name)


@pytest.mark.parametrize("length", [1.0, 20.0])
@pytest.mark.parametrize("size", [16, 64])
def test_a_false_alarm_comes_about_as_rarely_as_asked(size, length):
    found = np.array([alarms(seed, length, size) for seed in range(20, 20 + REFERENCES)])
    print(found, EACH * PICTURES / found.sum(), np.mean(EACH * PICTURES / found))
    run_lengths = EACH * PICTURES / np.maximum(found, 1)
    assert 0.6 * ASKED < run_lengths.mean() < 1.7 * ASKED
