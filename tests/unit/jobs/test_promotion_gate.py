"""The gate between an adapted model and its publication: its rules at their limits, and the images that it looks at."""

from dataclasses import asdict, replace
from types import SimpleNamespace

import pytest
import torch
from PIL import Image

from equipoise.config import TrainConfig
from equipoise.drift.adaptation.gate_report import GATE_FILE, GateReport
from equipoise.drift.adaptation.labelled_images import load_labelled_images
from equipoise.drift.adaptation.workload import (
    LABELLED_FOLDER,
    AdaptationRecipe,
    CorruptionAmount,
    DriftCondition,
    apply_condition,
)
from equipoise.workloads import Split, load_workload
from jobs.publishing.promotion_gate import (
    DriftComparison,
    label_shift_rejection_reason,
    measure_accuracy,
    passes_gate,
    rejection_reason,
)
from tests.support.manifests import build_manifest

CONFIG = TrainConfig(workload="digits")
DARKER = DriftCondition((CorruptionAmount("exposure", "darker", -2.0),))
LOWER_CONTRAST = DriftCondition((CorruptionAmount("contrast", "lower", 0.5),))
RECIPE = AdaptationRecipe("digits", CONFIG.data, DARKER)


@pytest.mark.parametrize(
    ("clean", "drifted", "expected_reason"),
    [
        ([(0.97, 0.966)], [(0.5, 0.95)], None),
        ([(0.97, 0.964)], [(0.5, 0.95)], "0.60% accuracy lost on clean images"),
        ([(0.97, 0.97), (0.96, 0.95)], [(0.5, 0.95)], "1.00% accuracy lost on clean images"),
        ([(0.97, 0.97)], [(0.5, 0.7)], "20.00% regained of 47.00%"),
        ([(0.97, 0.97)], [(0.5, 0.95), (0.6, 0.7)], "10.00% regained of 37.00%"),
        ([(0.97, 0.97)], [(0.969, 0.968)], None),
        ([(0.97, 0.97)], [(0.969, 0.960)], "0.90% accuracy lost on drifted images"),
    ],
)
def test_model_passes_if_better_on_drifted_and_no_worse_on_clean_images(clean, drifted, expected_reason):
    reason = rejection_reason(clean, [DriftComparison(0.97, *pair) for pair in drifted])
    assert reason is None if expected_reason is None else expected_reason in reason


@pytest.mark.parametrize(("loss", "passes"), [(0.005, True), (0.0051, False), (-0.5, True)])
def test_half_a_percent_may_be_lost_on_clean_images(loss, passes):
    pairs = [(0.5, 0.5), (loss, 0.0)] if loss > 0 else [(0.0, -loss)]
    assert (rejection_reason(pairs, [DriftComparison(1.0, 0.5, 1.0)]) is None) == passes


@pytest.mark.parametrize(("after", "passes"), [(0.75, True), (0.749, False), (1.0, True), (0.5, False)])
def test_half_of_what_the_drift_cost_must_be_regained(after, passes):
    assert (rejection_reason([(1.0, 1.0)], [DriftComparison(1.0, 0.5, after)]) is None) == passes


@pytest.mark.parametrize(
    ("clean_accuracy", "before", "after", "passes"),
    [
        (0.005, 0.0, 0.0, True),  # a loss of half a percent need not be regained
        (0.0051, 0.0, 0.0, False),
        (0.005, 0.005, 0.0, True),  # and as much may be lost again
        (0.0051, 0.0051, 0.0, False),
    ],
)
def test_drift_that_cost_little_need_not_be_regained(clean_accuracy, before, after, passes):
    assert (rejection_reason([(1.0, 1.0)], [DriftComparison(clean_accuracy, before, after)]) is None) == passes


def test_model_without_images_of_the_drift_is_refused():
    assert "no held-out images" in rejection_reason([(1.0, 1.0)], [])


@pytest.mark.parametrize(
    ("clean", "drifted", "passes"),
    [
        ((0.91, 0.88), (0.89, 0.94), True),
        ((0.91, 0.88), (0.89, 0.91), False),
        ((0.97, 0.97), (0.97, 0.97), True),
        ((0.5, 0.25), (0.5, 0.75), True),
        ((0.5, 0.25), (0.5, 0.749), False),
        ((0.5, 0.75), (0.5, 0.499), False),
        ((0.5, 0.75), (0.5, 0.5), True),
    ],
)
def test_label_shift_gain_must_be_at_least_the_loss_on_clean_images(clean, drifted, passes):
    assert (label_shift_rejection_reason(clean, [drifted]) is None) == passes
    assert (label_shift_rejection_reason(clean, [(0.0, 1.0), drifted]) is None) == passes


class KnownImages:
    """Model that gives the right label to the images of some splits, and class 0 to all others."""

    def __init__(self, *splits, wrong=()):
        self.labels = {
            bytes(picture.numpy()): int(label)
            for split in splits
            for picture, label in zip(split.inputs, split.targets, strict=True)
        }
        for picture in wrong:
            del self.labels[bytes(picture.numpy())]
        self.batch_sizes = []
        self.manifest = build_manifest(config=asdict(CONFIG))

    def run_engine(self, images):
        self.batch_sizes.append(len(images))
        labels = [self.labels.get(bytes(picture.numpy()), 0) for picture in images]
        return torch.nn.functional.one_hot(torch.tensor(labels), 10).float(), images.flatten(1).float()


@pytest.fixture(scope="module")
def splits():
    """Return the clean test split of the digits and what it becomes by the drifts."""
    test = load_workload(CONFIG).test
    return SimpleNamespace(
        clean=test,
        darker=apply_condition(test, DARKER),
        lower=apply_condition(test, LOWER_CONTRAST),
        both=apply_condition(test, LOWER_CONTRAST.followed_by(DARKER)),
    )


def list_rows(capsys):
    """Return the accuracies that the gate printed, by the name of their images, and what else it printed."""
    lines = capsys.readouterr().out.splitlines()
    rows = {line[:10].strip(): line[10:].replace("%", "").split(" -> ") for line in lines if " -> " in line}
    return {name: tuple(map(float, row)) for name, row in rows.items()}, [line for line in lines if "->" not in line]


def test_accuracy_is_that_of_the_highest_scores(splits):
    model = KnownImages(splits.clean)
    assert measure_accuracy(model, splits.clean) == 1.0
    assert sum(model.batch_sizes) == len(splits.clean) and max(model.batch_sizes) == 64
    zeros = int((splits.clean.targets == 0).sum())
    assert measure_accuracy(KnownImages(), splits.clean) == pytest.approx(zeros / len(splits.clean))
    part = Split(splits.clean.inputs[:70], splits.clean.targets[:70])
    assert measure_accuracy(model, replace(part, targets=(part.targets + 1) % 10)) == 0.0


def test_model_that_learned_the_drift_passes(splits, tmp_path, capsys):
    old, new = KnownImages(splits.clean), KnownImages(splits.clean, splits.darker)
    assert passes_gate(old, new, RECIPE, tmp_path)
    rows, others = list_rows(capsys)
    zeros = 100 * float((splits.clean.targets == 0).double().mean())
    assert rows == {"clean": (100.0, 100.0), "drifted": (pytest.approx(zeros, abs=0.01), 100.0)} and others == []
    report = GateReport.read(tmp_path / GATE_FILE)
    assert {row.images: (100 * row.before, 100 * row.after) for row in report.rows} == {
        name: pytest.approx(pair, abs=0.01) for name, pair in rows.items()
    }
    assert report.refusal is None
    assert not passes_gate(new, old, RECIPE, tmp_path)
    assert "accuracy lost on drifted images" in list_rows(capsys)[1][0]
    assert "accuracy lost on drifted images" in str(GateReport.read(tmp_path / GATE_FILE).refusal)


def test_model_that_forgot_an_earlier_condition_is_refused(splits, tmp_path, capsys):
    recipe = replace(RECIPE, before=LOWER_CONTRAST)
    old = KnownImages(splits.clean, splits.lower)
    assert passes_gate(old, KnownImages(splits.clean, splits.lower, splits.both), recipe, tmp_path)
    assert [*list_rows(capsys)[0]] == ["clean", "at first", "drifted"]
    for known in ((splits.lower, splits.both), (splits.clean, splits.both)):
        assert not passes_gate(old, KnownImages(*known), recipe, tmp_path)
        assert "lost on clean images" in list_rows(capsys)[1][0]


def test_only_labelled_images_that_were_held_out_are_measured(splits, tmp_path, capsys):
    chosen = (splits.darker.targets == 7).nonzero()[:3, 0]
    folder = tmp_path / LABELLED_FOLDER / "7"
    folder.mkdir(parents=True)
    pictures = 255 - splits.darker.inputs[chosen]
    for index, picture in enumerate(pictures):
        Image.fromarray(picture[0].numpy()).save(folder / f"{index}.png")
    images, labels = load_labelled_images(folder.parent, load_workload(CONFIG))
    old, drift = KnownImages(splits.clean), (splits.clean, splits.darker, Split(images, labels))
    for wrong, train, held_out in ((images[:2], 2, 100.0), (images[2:], 2, 0.0), (images[:1], 1, 100.0)):
        new = KnownImages(*drift, wrong=wrong)
        assert passes_gate(old, new, replace(RECIPE, train=train), tmp_path) == (held_out == 100.0)
        assert list_rows(capsys)[0]["labelled"] == (0.0, held_out)
    for train in (3, 4, None):
        assert passes_gate(old, KnownImages(*drift), replace(RECIPE, train=train), tmp_path)
        assert "labelled" not in list_rows(capsys)[0]


def test_without_a_known_drift_labelled_images_are_needed(splits, tmp_path, capsys):
    model = KnownImages(splits.clean)
    assert not passes_gate(model, model, replace(RECIPE, drift=DriftCondition()), tmp_path)
    rows, [refusal] = list_rows(capsys)
    assert [*rows] == ["clean"] and "no held-out images show the drift" in refusal


def test_label_shift_is_judged_by_its_own_rule(splits, tmp_path):
    weights = {str(digit): 8.0 if digit == 3 else 1.0 for digit in range(10)}
    recipe = replace(RECIPE, drift=DriftCondition((), weights))
    threes = splits.clean.inputs[splits.clean.targets == 3]
    ones = splits.clean.inputs[splits.clean.targets == 1]
    old = KnownImages(splits.clean, wrong=threes[:10])
    new = KnownImages(splits.clean, wrong=ones[:12])  # loses 2 images in 270, and gains most where 3 is frequent
    assert passes_gate(old, new, recipe, tmp_path)
    assert not passes_gate(new, old, recipe, tmp_path)
