from dataclasses import replace

import numpy as np
import pytest
import torch
from PIL import Image

from equipoise.config import TrainConfig
from equipoise.drift.adaptation.fit_corruptions import CorruptionFit, fit_corruption_amounts
from equipoise.drift.adaptation.workload import (
    ADAPTED_WORKLOAD,
    AdaptationRecipe,
    CorruptionAmount,
    DriftCondition,
    apply_corruptions,
    read_recipe,
)
from equipoise.workloads import load_workload
from equipoise.workloads.vending.products import MACHINE_PRODUCTS
from equipoise.workloads.vending.renderer import Scene, render_images
from tests.support.errors import raises_code


def test_colour_temperature_scales_in_equal_steps_of_its_inverse():
    warmer = CorruptionAmount("colour temperature", "warmer", 4000.0)
    assert warmer.scaled_value(0) == pytest.approx(6500) and warmer.scaled_value(1) == pytest.approx(4000)
    assert 1e6 / warmer.scaled_value(0.5) == pytest.approx((1e6 / 6500 + 1e6 / 4000) / 2)
    assert CorruptionAmount("exposure", "darker", -1.0).scaled_value(0.5) == -0.5


@pytest.mark.parametrize(
    ("amount", "limit"),
    [
        (CorruptionAmount("contrast", "lower", 0.2), 0.2),
        (CorruptionAmount("compression", "", 10.0), 10),
        (CorruptionAmount("colour temperature", "cooler", 20000.0), 20000),
        (CorruptionAmount("geometry", "turned", -30.0), -30),
        (CorruptionAmount("exposure", "darker", -1e308), -3),
        (CorruptionAmount("noise", "", 1e308), 40),
    ],
)
def test_scaled_value_stays_within_the_sizes_that_are_tried(amount, limit):
    assert amount.scaled_value(1.4) == pytest.approx(limit)
    assert (
        min(amount.corruption.neutral_size, limit)
        <= amount.scaled_value(0.4)
        <= max(amount.corruption.neutral_size, limit)
    )


def test_unknown_corruption_is_refused():
    with raises_code("verdict-invalid", "weather"):
        _ = CorruptionAmount("weather", "", 1.0).corruption


@pytest.fixture
def recipe_folder(tmp_path):
    AdaptationRecipe("digits", str(tmp_path), DriftCondition((CorruptionAmount("exposure", "darker", -1.0),))).write(
        tmp_path
    )
    return tmp_path


def test_adapted_workload_has_data_with_and_without_the_drift(recipe_folder):
    base = load_workload(TrainConfig(workload="digits"))
    adapted = load_workload(TrainConfig(workload=ADAPTED_WORKLOAD, data=str(recipe_folder)))
    assert len(adapted.train) == 8 * len(base.train)
    assert len(adapted.test) == 2 * len(base.test)
    assert torch.equal(adapted.test.inputs[: len(base.test)], base.test.inputs)
    darker = adapted.test.inputs[len(base.test) :]
    assert darker.float().mean() < 0.8 * base.test.inputs.float().mean()
    assert torch.equal(adapted.reference.inputs, base.reference.inputs)  # as published, the first known condition


def test_recipe_is_read_as_it_was_written(tmp_path):
    warmer = CorruptionAmount("colour temperature", "warmer", 4000.0)
    darker = CorruptionAmount("exposure", "darker", -1.0)
    recipe = AdaptationRecipe(
        "digits", "data", DriftCondition((warmer,)), DriftCondition((darker,), {"0": 2.0, "1": 0.5}), train=3
    )
    recipe.write(tmp_path)
    assert read_recipe(tmp_path) == recipe
    assert recipe.combined_condition == DriftCondition((darker, warmer), {"0": 2.0, "1": 0.5})
    followed = recipe.combined_condition.followed_by(DriftCondition((), {"0": 0.5, "1": 0.5}))
    assert followed.weights == {"0": 1.0, "1": 0.25}


def test_class_weights_change_the_reference_and_not_the_training_data(tmp_path):
    base = load_workload(TrainConfig(workload="digits"))
    weights = {name: 3.0 if name in "01" else 1.0 for name in base.classes}
    AdaptationRecipe("digits", str(tmp_path), DriftCondition((), weights)).write(tmp_path)
    adapted = load_workload(TrainConfig(workload=ADAPTED_WORKLOAD, data=str(tmp_path)))
    shares = np.bincount(adapted.reference.targets, minlength=10) / len(adapted.reference)
    np.testing.assert_allclose(shares, np.array([*weights.values()]) / 14, atol=0.03)
    assert len(adapted.train) == 4 * len(base.train)


def test_second_adaptation_trains_with_the_earlier_drift_and_without_any(tmp_path):
    darker, lower_contrast = CorruptionAmount("exposure", "darker", -1.0), CorruptionAmount("contrast", "lower", -0.5)
    AdaptationRecipe("digits", str(tmp_path), DriftCondition((lower_contrast,)), DriftCondition((darker,))).write(
        tmp_path
    )
    base, adapted = (
        load_workload(TrainConfig(workload=name, data=str(tmp_path))) for name in ("digits", ADAPTED_WORKLOAD)
    )
    copies = adapted.train.inputs.split(len(base.train))
    assert len(copies) == 8
    assert torch.equal(copies[0], base.train.inputs) and torch.equal(copies[2], copies[0])
    assert torch.equal(copies[1], apply_corruptions(base.train.inputs, (darker,)))


def test_labelled_training_images_are_repeated_and_held_out_ones_are_not_used(recipe_folder):
    (recipe_folder / "labelled" / "3").mkdir(parents=True)
    for index in range(10):
        Image.fromarray(np.full((16, 16), 10 * index, np.uint8)).save(recipe_folder / "labelled" / "3" / f"{index}.png")
    replace(read_recipe(recipe_folder), train=7).write(recipe_folder)
    adapted = load_workload(TrainConfig(workload=ADAPTED_WORKLOAD, data=str(recipe_folder)))
    labelled_images = adapted.train.inputs[-7 * 6 :]
    assert set(adapted.train.targets[-7 * 6 :].tolist()) == {3}
    assert len({image.numpy().tobytes() for image in labelled_images}) == 7


def test_corruption_amounts_are_fitted_together_to_images_of_the_drift():
    clean, clean_labels = render_images(MACHINE_PRODUCTS, np.arange(5000, 5200), 7, 32)
    drifted, drifted_labels = render_images(
        MACHINE_PRODUCTS, np.arange(6000, 6100), 7, 32, Scene(kelvin=4000, veil=0.1)
    )
    initial_amounts = [
        CorruptionAmount("colour temperature", "warmer", 4800.0),
        CorruptionAmount("reflection", "all over", 0.05),
    ]
    fit = CorruptionFit(clean, clean_labels.numpy(), drifted, drifted_labels.numpy())
    temperature, reflection = fit_corruption_amounts(initial_amounts, fit)[:2]
    assert 1e6 / temperature.value == pytest.approx(1e6 / 4000, rel=0.06)
    assert reflection.value == pytest.approx(0.1, abs=0.025)


class DistanceByCount(CorruptionFit):
    """Fit whose distance depends on the number of corruptions alone."""

    distances = (1.0,)

    def squared_distance(self, amounts):
        return self.distances[min(len(amounts), len(self.distances)) - 1]


@pytest.mark.parametrize(
    ("distances", "count"), [((1.0, 0.8), 1), ((1.0, 0.74), 2), ((1.0, 0.7, 0.5, 0.3, 0.1), 4), ((1.0, 0.7, 0.6), 2)]
)
def test_corruptions_are_added_while_each_takes_a_quarter_of_the_distance(distances, count):
    clean, labels = render_images(MACHINE_PRODUCTS, np.arange(100), 7, 32)
    fit = DistanceByCount(clean, labels.numpy(), clean, labels.numpy())
    fit.distances = distances
    assert len(fit_corruption_amounts([CorruptionAmount("colour temperature", "warmer", 4800.0)], fit)) == count


def test_boxes_stay_where_they_are_under_another_light(tmp_path):
    recipe = AdaptationRecipe(
        "shelf", "data", DriftCondition((CorruptionAmount("colour temperature", "warmer", 3000.0),))
    )
    recipe.write(tmp_path)
    base = load_workload(TrainConfig(workload="shelf"))
    adapted = load_workload(TrainConfig(workload=ADAPTED_WORKLOAD, data=str(tmp_path)))
    copies = len(adapted.train) // len(base.train)
    assert copies == 8 and adapted.target is None and adapted.classes == base.classes
    assert torch.equal(adapted.train.targets, base.train.targets.repeat(copies, 1, 1))
    clean, warm = adapted.test.inputs.split(len(base.test))
    assert torch.equal(clean, base.test.inputs)
    assert warm[:, 2].float().mean() < clean[:, 2].float().mean() - 10
