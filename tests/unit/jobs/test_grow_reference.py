"""`jobs.adapt --grow-reference`: requests that were answered without an alarm join the reference of a bundle."""

import json

import numpy as np
import pytest
import torch

from equipoise.bundle.bundle import load_bundle
from equipoise.captures.traffic import TrafficSample
from equipoise.config import TrainConfig
from equipoise.drift.adaptation.workload import CorruptionAmount, DriftCondition, apply_corruptions
from equipoise.drift.diagnosis.verdict import parse_verdict
from equipoise.workloads import load_workload
from jobs.adapt import main
from jobs.publishing.adaptation import build_recipe, load_profile
from jobs.publishing.grow_reference import add_images, plan_growth
from jobs.publishing.image_check import load_reference_outputs
from jobs.publishing.known_conditions import LearnedCondition, load_learned_conditions
from tests.support.captures import build_request
from tests.support.errors import raises_code

DARKER = DriftCondition((CorruptionAmount("exposure", "darker", -1.0),))
OK = parse_verdict({"state": "ok", "looked_at": 500})


def run_adapt(*arguments):
    return main([str(argument) for argument in arguments])


def keep_requests(folder, model, images):
    """Keep images as a service does with requests without an alarm, and return the location of the captures."""
    sample = TrafficSample(str(folder), model.version, since_alarm=False)
    for image in images:
        assert sample.offer(build_request(picture=image.numpy(), is_uniform=True))
    return folder


def build_condition(name, images, condition=DARKER, real_share=0.5):
    return LearnedCondition(name, condition, images, real_share)


@pytest.fixture(scope="module")
def images():
    return load_workload(TrainConfig(workload="digits")).test.inputs[:150]


@pytest.fixture(scope="module")
def captures(monitored_digits, images, tmp_path_factory):
    """Captures with 150 requests that look like the reference."""
    return keep_requests(tmp_path_factory.mktemp("grow") / "kept", load_bundle(monitored_digits), images)


@pytest.fixture
def verdict_file(tmp_path):
    path = tmp_path / "verdict.json"
    path.write_text(json.dumps({"state": "ok", "looked_at": 500}))
    return path


@pytest.mark.slow
def test_copy_has_the_same_model_and_a_larger_reference(monitored_digits, captures, verdict_file, images, tmp_path):
    link = tmp_path / "served"
    link.symlink_to(monitored_digits)
    options = ("--verdict", verdict_file, "--capture-dir", captures, "--out", tmp_path / "new")
    assert run_adapt("--link", link, *options, "--grow-reference") == 0
    old, new = load_bundle(monitored_digits), load_bundle(link)
    assert link.resolve() == tmp_path / "new" and new.version != old.version
    same = {name for name in old.manifest.files if old.manifest.files[name] == new.manifest.files[name]}
    assert old.manifest.files.keys() - same == {"reference.npz", "card.md"}
    before, after = load_profile(old), load_profile(new)
    assert after.condition_names == before.condition_names == ("as published",)
    assert after.image_count == before.image_count + len(images)
    assert after.labelled.prior == pytest.approx(before.labelled.prior)  # requests have no labels
    assert after.verified.held_out == before.verified.held_out
    assert len(load_reference_outputs(new).predictions) == len(load_reference_outputs(old).predictions) + len(images)
    assert "| as published | 150 | 100% |" in (tmp_path / "new" / "card.md").read_text()
    [growth] = load_learned_conditions(new)
    assert (growth.name, growth.condition, growth.real_share) == ("as published", DriftCondition(), 1.0)
    assert {image.numpy().tobytes() for image in growth.images} == {image.numpy().tobytes() for image in images}
    assert build_recipe(new, OK, None).known == ()  # it is no condition that a gate would judge


def test_requests_of_a_known_condition_join_it():
    first, second = torch.zeros(2, 1, 8, 8, dtype=torch.uint8), torch.ones(3, 1, 8, 8, dtype=torch.uint8)
    learned = [build_condition("darker", first), build_condition("paler", first)]
    grown = add_images(learned, {"as published": second, "darker": second})
    assert [part.name for part in grown] == ["as published", "darker", "paler"]
    assert [len(part.images) for part in grown] == [3, 5, 2]
    assert [part.real_share for part in grown] == [1.0, pytest.approx((0.5 * 2 + 3) / 5), 0.5]
    again = add_images(grown, {"as published": first})
    assert [len(part.images) for part in again] == [5, 5, 2] and again[0].condition == DriftCondition()
    assert [part.name for part in add_images(learned, {"paler": second})] == ["darker", "paler"]


def test_reference_grows_by_requests_alone_that_look_like_it(monitored_digits, images, captures, tmp_path):
    model = load_bundle(monitored_digits)
    assert plan_growth(model, OK, str(captures)).counts == {"as published": 150}
    dark = keep_requests(tmp_path / "dark", model, apply_corruptions(images, DARKER.changes))
    with raises_code("reference-unusable", "150 requests without an alarm", "exposure"):
        plan_growth(model, OK, str(dark))
    few = keep_requests(tmp_path / "few", model, images[:40])
    with raises_code("captures-empty", "40 requests", "wait for 100"):
        plan_growth(model, OK, str(few))
    with raises_code("captures-empty", "0 requests"):
        plan_growth(model, OK, str(tmp_path / "none"))
    for state in ("drift", "unknown"):
        with raises_code("reference-unusable", f"the verdict is {state}"):
            plan_growth(model, parse_verdict({"state": state, "looked_at": 5}), str(captures))


@pytest.mark.parametrize(
    ("options", "code"),
    [
        (["--grow-reference", "--capture-dir"], "option-missing"),
        (["--grow-reference", "--roll-back"], "option-conflict"),
        (["--grow-reference", "--forget", "darker"], "option-conflict"),
    ],
)
def test_options_that_do_not_fit_are_refused(monitored_digits, captures, verdict_file, capsys, options, code):
    is_complete = options[-1] != "--capture-dir"
    given = [*options, "--capture-dir", captures] if is_complete else options[:-1]
    assert run_adapt("--bundle", monitored_digits, "--verdict", verdict_file, *given) == 2
    error = capsys.readouterr().err
    assert error.endswith(f"[{code}]\n") and error.count("\n") == 1


def test_dry_run_says_which_requests_would_join(monitored_digits, captures, verdict_file, capsys):
    options = ("--verdict", verdict_file, "--capture-dir", captures, "--grow-reference")
    assert run_adapt("--bundle", monitored_digits, *options, "--dry-run") == 0
    assert "requests that join the reference: 150 of as published" in capsys.readouterr().out
    assert run_adapt("--bundle", monitored_digits, *options) == 2
    assert "--out is missing" in capsys.readouterr().err


def test_reference_outputs_hold_each_condition(monitored_digits, images):
    model = load_bundle(monitored_digits)
    reference = load_reference_outputs(model)
    assert len(reference.features) == len(reference.predictions) == len(reference.conditions)
    assert not np.any(reference.conditions)
