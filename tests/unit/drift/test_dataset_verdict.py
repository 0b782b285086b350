import io
import json

import numpy as np
import pytest
import torch
from PIL import Image, ImageEnhance, ImageFilter

from equipoise.drift.charts.baseline import CHARTED_FEATURES
from equipoise.drift.diagnosis import dataset_verdict as folder
from equipoise.drift.diagnosis.dataset_verdict import ALPHA, MIN_DATASET_IMAGES, compute_dataset_verdict
from equipoise.images.camera import blackbody_gain, linear_to_srgb8, srgb8_to_linear
from tests.support.drift_data import CLASSES, extract_shape_features, render_shapes, score_shapes, shapes_profile


def reference():
    """Features of the toy's reference, and what its pictures were called."""
    logits, features = score_shapes(render_shapes(600, seed=1)[0])
    return features.numpy(), logits.numpy().argmax(1)


@pytest.fixture(scope="module")
def beside():
    return reference()


def verdict(some, beside):
    found = compute_dataset_verdict(
        shapes_profile(), extract_shape_features(some), score_shapes(some)[1].numpy(), *beside
    )
    assert json.loads(json.dumps(found, allow_nan=False)) == found
    assert found["images"] == len(some)
    return found


def some(seed=80, count=100):
    return render_shapes(count, seed)[0]


def by_pil(change):
    def changed(shown):
        made = [np.array(change(Image.fromarray(one.permute(1, 2, 0).numpy()))) for one in shown]
        return torch.from_numpy(np.stack(made)).permute(0, 3, 1, 2)

    return changed


def through_jpeg(image):
    held = io.BytesIO()
    image.save(held, "JPEG", quality=20)
    return Image.open(held)


def lamp(kelvin):
    gain = torch.tensor(blackbody_gain(np.array([float(kelvin)]))[0]).float().view(3, 1, 1)
    return lambda shown: linear_to_srgb8(srgb8_to_linear(shown) * gain)


def noisy(shown):
    grain = np.random.default_rng(0).normal(0, 10, shown.shape)
    return torch.from_numpy(np.clip(shown.numpy() + grain, 0, 255).round().astype(np.uint8))


def veiled(shown):
    return linear_to_srgb8(srgb8_to_linear(shown) * 0.9 + 0.1)


def test_sets_without_drift_are_called_drifted_as_rarely_as_asked(beside, monkeypatch):
    monkeypatch.setattr(folder, "PERMUTATION_COUNT", 620)  # enough for p at the threshold, in a third of the time
    sets = [verdict(some(seed, 40 + seed % 3 * 30), beside)["state"] for seed in range(1000, 1150)]
    wrong = np.mean([state == "drift" for state in sets])
    assert set(sets) <= {"ok", "drift"} and wrong <= ALPHA + 2 * np.sqrt(ALPHA * (1 - ALPHA) / len(sets))


@pytest.mark.parametrize(
    ("name", "change"),
    [
        ("colour temperature", lamp(4500)),
        ("colour temperature", lamp(9500)),
        ("exposure", by_pil(lambda image: ImageEnhance.Brightness(image).enhance(0.75))),
        ("contrast", by_pil(lambda image: ImageEnhance.Contrast(image).enhance(0.6))),
        ("reflection", veiled),
        ("blur", by_pil(lambda image: image.filter(ImageFilter.GaussianBlur(1.5)))),
        ("noise", noisy),
        ("compression", by_pil(through_jpeg)),
        ("geometry", lambda shown: torch.cat([shown[:, :, 4:], shown[:, :, -1:].expand(-1, -1, 4, -1)], 2)),
    ],
)
def test_each_cause_is_found_and_named(beside, name, change):
    found = verdict(change(some()), beside)
    assert (found["state"], found["cause"]) == ("drift", name)
    assert found["charts"][0]["value"] > found["charts"][0]["threshold"]
    assert 0 < found["support"]["share"] < 1
    assert found["effects"][0]["cause"] == name and found["why"].startswith(f"{name}: ")


def test_pictures_like_the_reference_are_ok_and_as_well_told(beside):
    found = verdict(some(), beside)
    assert found["state"] == "ok" and found["cause"] is None and not found["effects"] and found["support"] is None
    assert found["accuracy"]["low"] < 0.998 < found["accuracy"]["high"]
    assert {one["name"] for one in found["charts"]} == {*CHARTED_FEATURES, "shape", "classes", "features"}
    assert all(one["value"] < one["threshold"] for one in found["charts"])


def test_a_class_that_is_missing_is_a_shift_of_labels(beside):
    labels = np.random.default_rng(0).integers(1, CLASSES, 200)
    found = verdict(render_shapes(200, 81, labels)[0], beside)
    assert (found["state"], found["cause"]) == ("drift", "label shift")
    (chart,) = (one for one in found["charts"] if one["name"] == "classes")
    assert chart["effect"]["class"] == 0 and chart["effect"]["value"] == 0 and chart["effect"]["low"] >= 0
    assert found["accuracy"]["low"] < 0.998 < found["accuracy"]["high"]


def test_light_that_comes_and_goes_changes_no_mean_and_is_found_by_its_shape(beside):
    shown = some(count=200)
    gain = torch.tensor([1.25, 1 / 1.25]).repeat(100).view(-1, 1, 1, 1)
    found = verdict((shown.float() * gain).round().clamp(0, 255).to(torch.uint8), beside)
    over = {one["name"]: one["value"] > one["threshold"] for one in found["charts"]}
    assert found["state"] == "drift" and over["shape"] and not over["luminance"]


@pytest.mark.parametrize("count", [1, MIN_DATASET_IMAGES - 1, MIN_DATASET_IMAGES])
def test_of_few_pictures_nothing_is_known(beside, count):
    found = verdict(some(count=count), beside)
    assert found["state"] == ("unknown" if count < MIN_DATASET_IMAGES else "ok")
    if count < MIN_DATASET_IMAGES:
        assert found["why"] == f"{count} images were given; at least 30 are needed" and found["accuracy"] == "unknown"


def test_order_of_pictures_is_nothing_to_a_verdict(beside):
    shown = lamp(5500)(some())
    one, other = (verdict(each, beside) for each in (shown, shown.flip(0)))
    places = [len(shown) - 1 - place for place in other.pop("moved")]
    assert one.pop("moved") == places
    for verdict_ in (one, other):  # permutations and folds are drawn by place
        verdict_.pop("support")
        verdict_["charts"] = [chart for chart in verdict_["charts"] if chart["name"] != "features"]
    assert close(one, other)


def close(left, right):
    """Whether two verdicts agree to single precision: features of a batch may round differently in another order."""
    if isinstance(left, dict):
        return left.keys() == right.keys() and all(close(left[key], right[key]) for key in left)
    if isinstance(left, list):
        return len(left) == len(right) and all(map(close, left, right))
    return left == pytest.approx(right, rel=1e-6) if isinstance(left, float) else left == right


@pytest.mark.parametrize("change", [lambda shown: shown * 0, lambda shown: shown * 0 + 255, lambda shown: shown // 8])
def test_pictures_that_are_nothing_any_more_are_drift(beside, change):
    assert verdict(change(some()), beside)["state"] == "drift"
