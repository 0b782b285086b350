"""Conditions that an adapted model has learned: their names, images and place in a bundle."""

import math
from dataclasses import replace

import numpy as np
import pytest
import torch

from equipoise.captures.traffic import TrafficSample
from equipoise.drift.adaptation.workload import DriftCondition, apply_corruptions
from jobs.publishing.known_conditions import (
    MIN_CONDITION_IMAGES,
    condition_arrays,
    condition_entries,
    learn_condition,
    limit_images,
    load_learned_conditions,
    load_traffic,
)
from tests.support.captures import build_request
from tests.support.drift_data import render_shapes
from tests.support.errors import raises_code
from tests.support.known_conditions import (
    DARKER,
    NAMES,
    NOISE,
    WARMER,
    build_condition,
    build_model,
    build_recipe,
    build_verdict,
)


def sample_traffic(folder, images, model):
    """Keep images as a service does with requests since an alarm, and return the location of the captures.

    A store lists its files at each request, so a thousand are kept ten times faster in ten folders that are joined.
    """
    kept = folder / f"traffic-{model.manifest.version}"
    kept.mkdir(parents=True, exist_ok=True)
    for index, part in enumerate(images.split(100)):
        sample = TrafficSample(str(folder / f"part {index}"), model.manifest.version)
        for image in part:
            assert sample.offer(build_request(picture=image.numpy(), is_uniform=True), 0.0)
        for file in (folder / f"part {index}" / kept.name).iterdir():
            file.rename(kept / file.name)
    return str(folder)


def darken(count, seed):
    return apply_corruptions(render_shapes(count, seed)[0], [DARKER])


def share_of_images_in(images, others):
    """Return the share of images that are among others, pixel by pixel."""
    known = {image.numpy().tobytes() for image in others}
    return sum(image.numpy().tobytes() in known for image in images) / len(images)


def test_sample_of_a_thousand_requests_is_all_that_is_learned_from(shapes, tmp_path, capsys):
    model, requests = build_model(), darken(1000, seed=3)
    location = sample_traffic(tmp_path / "kept", requests, model)
    condition = learn_condition(model, build_recipe(DARKER), build_verdict(), location, shapes)
    assert (condition.real_share, len(condition.images)) == (1.0, 1000)
    assert share_of_images_in(condition.images, requests) == 1.0
    assert "learned from 1,000 images, 100% of them requests" in capsys.readouterr().out


def test_few_requests_are_filled_up_with_simulated_images(shapes, tmp_path, capsys):
    model, requests = build_model(), darken(20, seed=3)
    location = sample_traffic(tmp_path / "kept", requests, model)
    condition = learn_condition(model, build_recipe(DARKER), build_verdict(), location, shapes)
    assert len(condition.images) == MIN_CONDITION_IMAGES
    assert condition.real_share == pytest.approx(20 / MIN_CONDITION_IMAGES)
    assert share_of_images_in(condition.images, requests) == pytest.approx(condition.real_share)
    simulated = apply_corruptions(shapes.reference.inputs, [DARKER])
    assert share_of_images_in(condition.images, simulated) == pytest.approx(1 - condition.real_share)
    assert "darker, -1 stops: learned from 300 images, 7% of them requests" in capsys.readouterr().out


def delete_pictures(folder):
    """Delete the pictures of captures, and leave what describes them."""
    pictures = [*folder.rglob("*.png")]
    for path in pictures:
        path.unlink()
    return len(pictures)


def truncate_pictures(folder):
    """Cut the files of captured pictures short."""
    pictures = [*folder.rglob("*.png")]
    for path in pictures:
        path.write_bytes(path.read_bytes()[:40])
    return len(pictures)


@pytest.mark.parametrize("damage", [delete_pictures, truncate_pictures])
def test_without_any_picture_the_condition_is_simulated(shapes, tmp_path, capsys, damage):
    model = build_model()
    location = sample_traffic(tmp_path / "kept", darken(20, seed=3), model)
    assert damage(tmp_path / "kept") == 20
    for captures in (location, str(tmp_path / "none"), None):
        condition = learn_condition(model, build_recipe(DARKER), build_verdict(), captures, shapes)
        assert (condition.real_share, len(condition.images)) == (0.0, MIN_CONDITION_IMAGES)
        assert "learned from 300 images, 0% of them requests, the others simulated" in capsys.readouterr().out


def test_requests_from_before_the_drift_or_to_another_version_are_not_learned_from(shapes, tmp_path):
    model = build_model()
    location = sample_traffic(tmp_path / "kept", darken(5, seed=3), model)
    assert len(load_traffic(model, 0.0, location)) == 5
    assert load_traffic(model, math.inf, location).shape == (0, 3, 32, 32)
    other = build_model(manifest=replace(model.manifest, digest="2" * 64))
    assert len(load_traffic(other, 0.0, location)) == 0


def test_unexplained_change_needs_a_hundred_requests(shapes, tmp_path, capsys):
    model, verdict = build_model(), build_verdict(effects=[], since={"at": "2020-03-05T10:00:00+00:00"})
    location = sample_traffic(tmp_path / "kept", darken(99, seed=3), model)
    assert learn_condition(model, build_recipe(), verdict, location, shapes) is None
    assert "99 requests show the new condition" in capsys.readouterr().out
    sample_traffic(tmp_path / "kept", darken(1, seed=4), model)
    condition = learn_condition(model, build_recipe(), verdict, location, shapes)
    assert (condition.name, condition.real_share, len(condition.images)) == ("change of 2020-03-05", 1.0, 100)


def test_new_class_shares_are_no_condition_of_images(shapes):
    recipe = replace(build_recipe(), drift=DriftCondition((), dict.fromkeys(NAMES, 1.0)))
    assert learn_condition(build_model(), recipe, build_verdict(), None, shapes) is None


def test_requests_of_one_condition_are_all_kept(shapes, tmp_path):
    """A third of requests in slightly darker light look like the old light, as a third of simulated images do."""
    slightly_darker = replace(DARKER, value=-0.2)
    model, requests = build_model(), apply_corruptions(render_shapes(300, seed=3)[0], [slightly_darker])
    location = sample_traffic(tmp_path / "kept", requests, model)
    condition = learn_condition(model, build_recipe(slightly_darker), build_verdict(), location, shapes)
    assert (condition.real_share, len(condition.images)) == (1.0, 300)


def test_mixture_is_sorted_into_old_and_new_requests(shapes, tmp_path):
    model, old, new = build_model(), render_shapes(200, seed=4)[0], darken(200, seed=3)
    location = sample_traffic(tmp_path / "kept", torch.cat([old, new]), model)
    condition = learn_condition(model, build_recipe(DARKER), build_verdict(), location, shapes)
    kept_of_new = share_of_images_in(new, condition.images)
    assert share_of_images_in(old, condition.images) < 0.05 and kept_of_new > 0.95
    assert len(condition.images) == MIN_CONDITION_IMAGES  # filled up with simulated ones
    assert condition.real_share == pytest.approx(200 / MIN_CONDITION_IMAGES, abs=0.03)


def test_requests_under_a_condition_learned_before_are_sorted_out_too(shapes, tmp_path):
    """Without what was learned before, requests in even darker light would be nearest to the new condition."""
    darkest = replace(DARKER, value=-2.0)
    model = build_model([build_condition(darkest, name="darkest", count=300)])
    earlier = apply_corruptions(render_shapes(200, seed=4)[0], [darkest])
    location = sample_traffic(tmp_path / "kept", torch.cat([earlier, darken(200, seed=3)]), model)
    condition = learn_condition(model, build_recipe(DARKER), build_verdict(), location, shapes)
    assert share_of_images_in(earlier, condition.images) < 0.05
    assert condition.real_share == pytest.approx(200 / MIN_CONDITION_IMAGES, abs=0.03)


def test_images_of_a_condition_are_limited_by_number_and_by_bytes():
    assert limit_images(torch.arange(2500, dtype=torch.uint8).view(-1, 1, 1, 1)).shape == (1000, 1, 1, 1)
    large = torch.zeros(1, 1, 1, 1, dtype=torch.uint8).expand(40, 1, 1024, 4096)  # 4 MiB each
    assert len(limit_images(large)) == 16
    assert len(limit_images(large[:3])) == 3 and len(limit_images(large[:0])) == 0


def test_conditions_are_read_as_they_were_written():
    learned = [build_condition(DARKER), build_condition(WARMER, NOISE, name="warmer", seed=8, count=150)]
    read = load_learned_conditions(build_model(learned))
    assert [(entry.name, entry.condition, entry.real_share) for entry in read] == [
        (entry.name, entry.condition, entry.real_share) for entry in learned
    ]
    assert all(torch.equal(*(entry.images for entry in pair)) for pair in zip(read, learned, strict=True))
    assert [(entry.name, entry.images) for entry in condition_entries(learned)] == [("darker", 120), ("warmer", 150)]
    assert load_learned_conditions(build_model()) == []


@pytest.mark.parametrize(
    "images",
    [
        None,
        np.zeros((120, 1, 32, 32), np.uint8),
        np.zeros((120, 3, 16, 16), np.uint8),
        np.zeros((120, 3, 32), np.uint8),
        np.zeros((120, 3, 32, 32), np.float32),
    ],
)
def test_bundle_without_the_images_of_its_condition_is_refused(images):
    learned = [build_condition(WARMER, name="warmer"), build_condition(DARKER)]
    arrays = condition_arrays(learned)
    arrays.pop("condition 1")
    if images is not None:
        arrays["condition 1"] = images
    with raises_code("bundle-invalid", "bundle", "no images of its condition darker"):
        load_learned_conditions(build_model(learned, load_reference_arrays=lambda: arrays))


def test_conditions_of_another_model_are_refused():
    model = build_model([build_condition(DARKER)], shape=(1, 32, 32))
    with raises_code("bundle-invalid", "no images of its condition darker"):
        load_learned_conditions(model)
