from dataclasses import replace

import numpy as np
import pytest
import torch
from PIL import Image

from equipoise.config import TrainConfig
from equipoise.drift.adaptation.fit_corruptions import CorruptionFit, fit_corruption_amounts
from equipoise.drift.adaptation.workload import (
    ADAPTED_WORKLOAD,
    COPIES_PER_IMAGE,
    LABELLED_REPEATS,
    AdaptationRecipe,
    CorruptionAmount,
    DriftCondition,
    apply_corruptions,
    read_recipe,
)
from equipoise.workloads import load_workload
from equipoise.workloads.vending.products import MACHINE_PRODUCTS
from equipoise.workloads.vending.renderer import Scene, render_images


def test_light_is_shared_by_equal_steps_of_its_inverse():
    warm = CorruptionAmount("colour temperature", "warmer", 4000.0)
    assert warm.scaled_value(0) == pytest.approx(6500) and warm.scaled_value(1) == pytest.approx(4000)
    assert 1e6 / warm.scaled_value(0.5) == pytest.approx((1e6 / 6500 + 1e6 / 4000) / 2)
    assert CorruptionAmount("exposure", "darker", -1.0).scaled_value(0.5) == -0.5


@pytest.mark.parametrize(
    ("change", "most"),
    [
        (CorruptionAmount("contrast", "lower", 0.2), 0.2),
        (CorruptionAmount("compression", "", 10.0), 10),
        (CorruptionAmount("colour temperature", "cooler", 20000.0), 20000),
        (CorruptionAmount("geometry", "turned", -30.0), -30),
        (CorruptionAmount("exposure", "darker", -1e308), -3),
        (CorruptionAmount("noise", "", 1e308), 40),
    ],
)
def test_no_share_of_a_change_is_more_than_was_tried(change, most):
    assert change.scaled_value(1.4) == pytest.approx(most)
    assert (
        min(change.corruption.neutral_size, most)
        <= change.scaled_value(0.4)
        <= max(change.corruption.neutral_size, most)
    )


def test_a_change_that_is_none_is_refused():
    with pytest.raises(ValueError, match="unknown corruption 'weather'"):
        _ = CorruptionAmount("weather", "", 1.0).corruption


@pytest.fixture
def recipe(tmp_path):
    AdaptationRecipe("digits", str(tmp_path), DriftCondition((CorruptionAmount("exposure", "darker", -1.0),))).write(
        tmp_path
    )
    return tmp_path


def test_a_remedy_learns_with_and_without_the_drift_and_is_judged_by_both(recipe):
    base = load_workload(TrainConfig(workload="digits"))
    made = load_workload(TrainConfig(workload=ADAPTED_WORKLOAD, data=str(recipe)))
    assert len(made.train) == 2 * COPIES_PER_IMAGE * len(base.train)
    assert len(made.test) == 2 * len(base.test)
    assert torch.equal(made.test.pictures[: len(base.test)], base.test.pictures)
    assert made.reference.pictures.float().mean() < 0.8 * base.reference.pictures.float().mean()
    assert torch.equal(made.reference.labels, base.reference.labels)


def test_a_recipe_comes_back_as_it_was_written(tmp_path):
    warm, dark = CorruptionAmount("colour temperature", "warmer", 4000.0), CorruptionAmount("exposure", "darker", -1.0)
    remedy = AdaptationRecipe(
        "digits", "data", DriftCondition((warm,)), DriftCondition((dark,), {"0": 2.0, "1": 0.5}), train=3
    )
    remedy.write(tmp_path)
    assert read_recipe(tmp_path) == remedy
    assert remedy.combined_condition == DriftCondition((dark, warm), {"0": 2.0, "1": 0.5})
    twice = remedy.combined_condition.followed_by(DriftCondition((), {"0": 0.5, "1": 0.5}))
    assert twice.weights == {"0": 1.0, "1": 0.25}


def test_classes_in_other_shares_are_those_of_reference_and_judgement_alone(tmp_path):
    base = load_workload(TrainConfig(workload="digits"))
    weights = {name: 3.0 if name in "01" else 1.0 for name in base.classes}
    AdaptationRecipe("digits", str(tmp_path), DriftCondition((), weights)).write(tmp_path)
    made = load_workload(TrainConfig(workload=ADAPTED_WORKLOAD, data=str(tmp_path)))
    shares = np.bincount(made.reference.labels, minlength=10) / len(made.reference)
    np.testing.assert_allclose(shares, np.array([*weights.values()]) / 14, atol=0.03)
    assert len(made.train) == COPIES_PER_IMAGE * len(base.train)


def test_a_second_remedy_learns_with_the_drift_before_and_without_any(tmp_path):
    dark, blur = CorruptionAmount("exposure", "darker", -1.0), CorruptionAmount("contrast", "lower", -0.5)
    AdaptationRecipe("digits", str(tmp_path), DriftCondition((blur,)), DriftCondition((dark,))).write(tmp_path)
    base, made = (
        load_workload(TrainConfig(workload=name, data=str(tmp_path))) for name in ("digits", ADAPTED_WORKLOAD)
    )
    copies = made.train.pictures.split(len(base.train))
    assert len(copies) == 2 * COPIES_PER_IMAGE
    assert torch.equal(copies[0], base.train.pictures) and torch.equal(copies[2], copies[0])
    assert torch.equal(copies[1], apply_corruptions(base.train.pictures, (dark,)))


def test_labelled_pictures_are_shown_often_and_those_held_out_never(recipe):
    (recipe / "labelled" / "3").mkdir(parents=True)
    for place in range(10):
        Image.fromarray(np.full((16, 16), 10 * place, np.uint8)).save(recipe / "labelled" / "3" / f"{place}.png")
    replace(read_recipe(recipe), train=7).write(recipe)
    made = load_workload(TrainConfig(workload=ADAPTED_WORKLOAD, data=str(recipe)))
    last = made.train.pictures[-7 * LABELLED_REPEATS :]
    assert set(made.train.labels[-7 * LABELLED_REPEATS :].tolist()) == {3}
    assert len({one.numpy().tobytes() for one in last}) == 7


def test_sizes_are_found_together_by_pictures_of_the_drift():
    plain, labels = render_images(MACHINE_PRODUCTS, np.arange(5000, 5200), 7, 32)
    drifted, shown = render_images(MACHINE_PRODUCTS, np.arange(6000, 6100), 7, 32, Scene(kelvin=4000, veil=0.1))
    guess = [CorruptionAmount("colour temperature", "warmer", 4800.0), CorruptionAmount("reflection", "all over", 0.05)]
    fit = CorruptionFit(plain, labels.numpy(), drifted, shown.numpy())
    warm, veil = fit_corruption_amounts(guess, fit)[:2]
    assert 1e6 / warm.value == pytest.approx(1e6 / 4000, rel=0.06)
    assert veil.value == pytest.approx(0.1, abs=0.025)
