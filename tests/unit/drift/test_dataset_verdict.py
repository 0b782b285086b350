import io
import json

import numpy as np
import pytest
import torch
from msgspec import structs
from PIL import Image, ImageEnhance, ImageFilter

from equipoise.drift.diagnosis.dataset_verdict import (
    ALPHA,
    PERMUTATION_COUNT,
    compute_dataset_verdict,
)
from equipoise.drift.diagnosis.verdict import DatasetVerdict
from equipoise.drift.features.image_schema import IMAGE_SCHEMA
from equipoise.images.camera import blackbody_gain, linear_to_srgb8, srgb8_to_linear
from tests.support.drift_data import CLASSES, extract_shape_features, render_shapes, score_shapes, shapes_profile


def compute_reference_outputs():
    """Return the model features and the predicted classes of the reference images."""
    logits, features = score_shapes(render_shapes(600, seed=1)[0])
    return features.numpy(), logits.numpy().argmax(1)


@pytest.fixture(scope="module")
def reference_outputs():
    return compute_reference_outputs()


def compute_checked_verdict(images, reference_outputs, permutation_count=PERMUTATION_COUNT):
    """Return the verdict on a set of images, after checking that it is JSON and counts them."""
    verdict = compute_dataset_verdict(
        shapes_profile(),
        extract_shape_features(images),
        score_shapes(images)[1].numpy(),
        *reference_outputs,
        permutation_count=permutation_count,
    )
    assert DatasetVerdict.from_json(json.loads(json.dumps(verdict.to_json(), allow_nan=False))) == verdict
    assert verdict.images == len(images)
    return verdict


def render_clean_images(seed=80, count=100):
    return render_shapes(count, seed)[0]


def build_pil_transform(change):
    """Return a transform of image tensors that applies `change` to each as a PIL image."""

    def transform(images):
        changed = [np.array(change(Image.fromarray(image.permute(1, 2, 0).numpy()))) for image in images]
        return torch.from_numpy(np.stack(changed)).permute(0, 3, 1, 2)

    return transform


def compress_as_jpeg(image):
    buffer = io.BytesIO()
    image.save(buffer, "JPEG", quality=20)
    return Image.open(buffer)


def build_lamp_transform(kelvin):
    gain = torch.tensor(blackbody_gain(np.array([float(kelvin)]))[0]).float().view(3, 1, 1)
    return lambda images: linear_to_srgb8(srgb8_to_linear(images) * gain)


def add_noise(images):
    grain = np.random.default_rng(0).normal(0, 10, images.shape)
    return torch.from_numpy(np.clip(images.numpy() + grain, 0, 255).round().astype(np.uint8))


def add_veil(images):
    return linear_to_srgb8(srgb8_to_linear(images) * 0.9 + 0.1)


@pytest.mark.slow
def test_sets_without_drift_are_called_drifted_as_rarely_as_requested(reference_outputs):
    states = [
        # 620 permutations are enough for p at the threshold, in a third of the time
        compute_checked_verdict(render_clean_images(seed, 40 + seed % 3 * 30), reference_outputs, 620).state
        for seed in range(1000, 1150)
    ]
    drift_share = np.mean([state == "drift" for state in states])
    assert set(states) <= {"ok", "drift"} and drift_share <= ALPHA + 2 * np.sqrt(ALPHA * (1 - ALPHA) / len(states))


@pytest.mark.parametrize(
    ("cause", "transform"),
    [
        ("colour temperature", build_lamp_transform(4500)),
        ("colour temperature", build_lamp_transform(9500)),
        ("exposure", build_pil_transform(lambda image: ImageEnhance.Brightness(image).enhance(0.75))),
        ("contrast", build_pil_transform(lambda image: ImageEnhance.Contrast(image).enhance(0.6))),
        ("reflection", add_veil),
        ("blur", build_pil_transform(lambda image: image.filter(ImageFilter.GaussianBlur(1.5)))),
        ("noise", add_noise),
        ("compression", build_pil_transform(compress_as_jpeg)),
        ("geometry", lambda images: torch.cat([images[:, :, 4:], images[:, :, -1:].expand(-1, -1, 4, -1)], 2)),
    ],
)
def test_each_cause_is_detected_and_named(reference_outputs, cause, transform):
    verdict = compute_checked_verdict(transform(render_clean_images()), reference_outputs)
    assert (verdict.state, verdict.cause) == ("drift", cause)
    assert verdict.charts[0].value > verdict.charts[0].threshold
    assert 0 < verdict.support.share < 1
    assert verdict.effects[0].cause == cause and verdict.why.startswith(f"{cause}: ")


def test_verdict_without_unreadable_images_counts_none():
    assert DatasetVerdict(state="ok").unread == 0


def test_examples_are_the_twelve_images_that_changed_most(reference_outputs):
    images = render_clean_images()
    warm = torch.arange(len(images)) % 2 == 1
    verdict = compute_checked_verdict(
        torch.where(warm[:, None, None, None], build_lamp_transform(4500)(images), images), reference_outputs
    )
    assert len(verdict.moved) == 12 and all(warm[int(index)] for index in verdict.moved)


def test_images_like_the_reference_give_verdict_ok_and_the_right_accuracy(reference_outputs):
    verdict = compute_checked_verdict(render_clean_images(), reference_outputs)
    assert verdict.state == "ok" and verdict.cause is None and not verdict.effects and verdict.support is None
    assert verdict.accuracy.low < 0.998 < verdict.accuracy.high
    assert {chart.name for chart in verdict.charts} == {*IMAGE_SCHEMA.names, "shape", "classes", "features"}
    assert all(chart.value < chart.threshold for chart in verdict.charts)


def test_missing_class_is_label_shift(reference_outputs):
    labels = np.random.default_rng(0).integers(1, CLASSES, 200)
    verdict = compute_checked_verdict(render_shapes(200, 81, labels)[0], reference_outputs)
    assert (verdict.state, verdict.cause) == ("drift", "label shift")
    (class_chart,) = (chart for chart in verdict.charts if chart.name == "classes")
    assert class_chart.effect.class_name == "0" and class_chart.effect.value == 0 and class_chart.effect.low >= 0
    assert verdict.accuracy.low < 0.998 < verdict.accuracy.high


def test_alternating_light_leaves_the_mean_and_is_detected_by_the_distribution(reference_outputs):
    images = render_clean_images(count=200)
    gain = torch.tensor([1.25, 1 / 1.25]).repeat(100).view(-1, 1, 1, 1)
    verdict = compute_checked_verdict((images.float() * gain).round().clamp(0, 255).to(torch.uint8), reference_outputs)
    is_alarming = {chart.name: chart.value > chart.threshold for chart in verdict.charts}
    assert verdict.state == "drift" and is_alarming["shape"] and not is_alarming["luminance"]


@pytest.mark.parametrize("count", [1, 29, 30])
def test_few_images_give_verdict_unknown(reference_outputs, count):
    verdict = compute_checked_verdict(render_clean_images(count=count), reference_outputs)
    assert verdict.state == ("unknown" if count < 30 else "ok")
    if count < 30:
        assert verdict.why == f"{count} images were given; at least 30 are needed" and verdict.accuracy == "unknown"


def test_verdict_does_not_depend_on_the_order_of_images(reference_outputs):
    images = build_lamp_transform(5500)(render_clean_images())
    forward, reverse = (compute_checked_verdict(ordered, reference_outputs) for ordered in (images, images.flip(0)))
    assert [*forward.moved] == [str(len(images) - 1 - int(index)) for index in reverse.moved]
    forward, reverse = (
        structs.replace(  # permutations and folds are drawn by position
            verdict,
            moved=(),
            support=None,
            charts=tuple(chart for chart in verdict.charts if chart.name != "features"),
        )
        for verdict in (forward, reverse)
    )
    assert are_verdicts_close(forward.to_json(), reverse.to_json())


def are_verdicts_close(left, right):
    """Return whether verdicts agree to single precision: features of a batch may round differently in another order."""
    if isinstance(left, dict):
        return left.keys() == right.keys() and all(are_verdicts_close(left[key], right[key]) for key in left)
    if isinstance(left, list | tuple):
        return len(left) == len(right) and all(map(are_verdicts_close, left, right))
    return left == pytest.approx(right, rel=1e-6) if isinstance(left, float) else left == right


@pytest.mark.parametrize(
    "transform", [lambda images: images * 0, lambda images: images * 0 + 255, lambda images: images // 8]
)
def test_images_without_visible_content_give_verdict_drift(reference_outputs, transform):
    assert compute_checked_verdict(transform(render_clean_images()), reference_outputs).state == "drift"
