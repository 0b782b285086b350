from dataclasses import replace

import numpy as np
import pytest
import torch
from PIL import Image

from equipoise.config import Trial
from equipoise.drift.adaptation import fit_corruptions as refined
from equipoise.drift.adaptation import workload as remedied
from equipoise.drift.adaptation.workload import Change, Regime, Remedy
from equipoise.workloads import workload
from equipoise.workloads.vending.products import MACHINE
from equipoise.workloads.vending.renderer import Scene, rendered


def test_light_is_shared_by_equal_steps_of_its_inverse():
    warm = Change("colour temperature", "warmer", 4000.0)
    assert warm.sized(0) == pytest.approx(6500) and warm.sized(1) == pytest.approx(4000)
    assert 1e6 / warm.sized(0.5) == pytest.approx((1e6 / 6500 + 1e6 / 4000) / 2)
    assert Change("exposure", "darker", -1.0).sized(0.5) == -0.5


@pytest.mark.parametrize(
    ("change", "most"),
    [
        (Change("contrast", "lower", 0.2), 0.2),
        (Change("compression", "", 10.0), 10),
        (Change("colour temperature", "cooler", 20000.0), 20000),
        (Change("geometry", "turned", -30.0), -30),
        (Change("exposure", "darker", -1e308), -3),
        (Change("noise", "", 1e308), 40),
    ],
)
def test_no_share_of_a_change_is_more_than_was_tried(change, most):
    assert change.sized(1.4) == pytest.approx(most)
    assert min(change.kind.none, most) <= change.sized(0.4) <= max(change.kind.none, most)


def test_a_change_that_is_none_is_refused():
    with pytest.raises(ValueError, match="there is no change of weather"):
        _ = Change("weather", "", 1.0).kind


@pytest.fixture
def recipe(tmp_path):
    Remedy("digits", str(tmp_path), Regime((Change("exposure", "darker", -1.0),))).write(tmp_path)
    return tmp_path


def test_a_remedy_learns_with_and_without_the_drift_and_is_judged_by_both(recipe):
    base = workload(Trial(workload="digits"))
    made = workload(Trial(workload=remedied.NAME, data=str(recipe)))
    assert len(made.train) == 2 * remedied.COPIES * len(base.train)
    assert len(made.test) == 2 * len(base.test)
    assert torch.equal(made.test.pictures[: len(base.test)], base.test.pictures)
    assert made.reference.pictures.float().mean() < 0.8 * base.reference.pictures.float().mean()
    assert torch.equal(made.reference.labels, base.reference.labels)


def test_a_recipe_comes_back_as_it_was_written(tmp_path):
    warm, dark = Change("colour temperature", "warmer", 4000.0), Change("exposure", "darker", -1.0)
    remedy = Remedy("digits", "data", Regime((warm,)), Regime((dark,), {"0": 2.0, "1": 0.5}), train=3)
    remedy.write(tmp_path)
    assert remedied.read(tmp_path) == remedy
    assert remedy.now == Regime((dark, warm), {"0": 2.0, "1": 0.5})
    twice = remedy.now.followed(Regime((), {"0": 0.5, "1": 0.5}))
    assert twice.weights == {"0": 1.0, "1": 0.25}


def test_classes_in_other_shares_are_those_of_reference_and_judgement_alone(tmp_path):
    base = workload(Trial(workload="digits"))
    weights = {name: 3.0 if name in "01" else 1.0 for name in base.classes}
    Remedy("digits", str(tmp_path), Regime((), weights)).write(tmp_path)
    made = workload(Trial(workload=remedied.NAME, data=str(tmp_path)))
    shares = np.bincount(made.reference.labels, minlength=10) / len(made.reference)
    np.testing.assert_allclose(shares, np.array([*weights.values()]) / 14, atol=0.03)
    assert len(made.train) == remedied.COPIES * len(base.train)


def test_a_second_remedy_learns_with_the_drift_before_and_without_any(tmp_path):
    dark, blur = Change("exposure", "darker", -1.0), Change("contrast", "lower", -0.5)
    Remedy("digits", str(tmp_path), Regime((blur,)), Regime((dark,))).write(tmp_path)
    base, made = (workload(Trial(workload=name, data=str(tmp_path))) for name in ("digits", remedied.NAME))
    copies = made.train.pictures.split(len(base.train))
    assert len(copies) == 2 * remedied.COPIES
    assert torch.equal(copies[0], base.train.pictures) and torch.equal(copies[2], copies[0])
    assert torch.equal(copies[1], remedied.changed(base.train.pictures, (dark,)))


def test_labelled_pictures_are_shown_often_and_those_held_out_never(recipe):
    (recipe / "labelled" / "3").mkdir(parents=True)
    for place in range(10):
        Image.fromarray(np.full((16, 16), 10 * place, np.uint8)).save(recipe / "labelled" / "3" / f"{place}.png")
    replace(remedied.read(recipe), train=7).write(recipe)
    made = workload(Trial(workload=remedied.NAME, data=str(recipe)))
    last = made.train.pictures[-7 * remedied.AGAIN :]
    assert set(made.train.labels[-7 * remedied.AGAIN :].tolist()) == {3}
    assert len({one.numpy().tobytes() for one in last}) == 7


def test_sizes_are_found_together_by_pictures_of_the_drift():
    plain, labels = rendered(MACHINE, np.arange(5000, 5200), 7, 32)
    drifted, shown = rendered(MACHINE, np.arange(6000, 6100), 7, 32, Scene(kelvin=4000, veil=0.1))
    guess = [Change("colour temperature", "warmer", 4800.0), Change("reflection", "all over", 0.05)]
    fit = refined.Fit(plain, labels.numpy(), drifted, shown.numpy())
    warm, veil = refined.refined(guess, fit)[:2]
    assert 1e6 / warm.value == pytest.approx(1e6 / 4000, rel=0.06)
    assert veil.value == pytest.approx(0.1, abs=0.025)
