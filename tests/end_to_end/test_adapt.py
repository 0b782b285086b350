"""jobs.adapt from a verdict to a new bundle, twice in a row: for a label shift, then for darker light."""

import json
import sys

import numpy as np
import pytest
import torch
from scipy.special import softmax

from equipoise.bundle.bundle import load_bundle
from equipoise.config import TrainConfig
from equipoise.workloads import load_workload
from jobs.adapt import main
from jobs.publishing.adaptation import load_profile


@pytest.fixture(scope="module")
def new_class_shares(monitored_digits):
    """Shares of the classes after a shift that makes the two that the model recognizes worst three times as frequent.

    On them the new weights gain most, whatever the toy model has learned on this processor.
    """
    recall = np.diag(load_profile(load_bundle(monitored_digits)).labelled.confusion)
    shares = np.where(np.argsort(np.argsort(recall)) < 2, 3.0, 1.0)
    return shares / shares.sum()


@pytest.fixture(scope="module")
def reweighted_digits(monitored_digits, new_class_shares, tmp_path_factory):
    """The bundle adapted to a label shift."""
    out = tmp_path_factory.mktemp("reweighted-digits")
    predicted = 1400 * load_profile(load_bundle(monitored_digits)).labelled.confusion @ new_class_shares
    counts = dict(zip(map(str, range(10)), np.round(predicted).astype(int).tolist(), strict=True))
    verdict = {"state": "drift", "cause": "label shift", "why": "label shift", "effects": [], "classes": counts}
    (out / "verdict.json").write_text(json.dumps(verdict))
    flags = ["--bundle", str(monitored_digits), "--verdict", str(out / "verdict.json"), "--out", str(out / "digits")]
    assert main([*flags, "--dry-run"]) == 0 and not (out / "digits").exists()
    assert main(flags) == 0
    return out / "digits"


def test_label_shift_changes_only_the_class_weights(monitored_digits, reweighted_digits, new_class_shares):
    old, new = load_bundle(monitored_digits), load_bundle(reweighted_digits)
    images = load_workload(TrainConfig(workload="digits")).test.inputs
    before, after = (bundle.run_engine(images)[0].numpy() for bundle in (old, new))
    weights = np.array([new.manifest.remedy["weights"][name] for name in old.classes])
    frequent = new_class_shares > 0.1
    np.testing.assert_allclose(weights[frequent] / weights[~frequent].mean(), 3, rtol=0.15)
    expected = softmax(before / old.temperature + np.log(weights), 1)  # by Bayes' rule
    probabilities = torch.softmax(torch.from_numpy(after).double() / old.temperature, 1).numpy()
    np.testing.assert_allclose(probabilities, expected, atol=1e-4)
    assert torch.equal(*(torch.from_numpy(bundle.run_engine(images)[1].numpy()) for bundle in (old, new)))
    class_counts = np.bincount(new.load_reference_arrays()["labels"], minlength=10)
    np.testing.assert_allclose(class_counts / class_counts.sum(), new_class_shares, atol=0.04)


def test_second_adaptation_keeps_the_first(reweighted_digits, tmp_path, cluster):
    effect = {"cause": "exposure", "detail": "darker", "value": -1.5}
    verdict = {"state": "drift", "cause": "exposure", "why": "exposure", "effects": [effect]}
    (tmp_path / "verdict.json").write_text(json.dumps(verdict))
    link = tmp_path / "served"
    link.symlink_to(reweighted_digits)
    arguments = ["--verdict", str(tmp_path / "verdict.json"), "--link", str(link)]
    result = cluster.run(sys.executable, "-m", "jobs.adapt", *arguments, "--out", str(tmp_path / "darker"))
    assert result.returncode == 0, result.stdout + result.stderr
    new = load_bundle(link)
    assert link.resolve() == tmp_path / "darker"
    assert (new.manifest.workload, new.manifest.decode_config().workload) == ("digits", "digits")
    assert [change["cause"] for change in new.manifest.remedy["changes"]] == ["exposure"]
    assert new.manifest.remedy["weights"] == load_bundle(reweighted_digits).manifest.remedy["weights"]
    # the darker reference looks as much like the darker held-out images as the one before
    assert images_per_false_alarm(new) > images_per_false_alarm(load_bundle(reweighted_digits)) / 2
    assert "Adapted to a drift" in (link / "card.md").read_text()
    assert main(["--link", str(link), "--roll-back"]) == 0 and link.resolve() == reweighted_digits


def images_per_false_alarm(bundle):
    """Return how many held-out images came to a false alarm when the bundle was published."""
    _, images, alarms, *_ = bundle.load_reference_arrays()["drift.verified"]
    return images / max(alarms, 1)


def test_few_requests_do_not_suffice_to_adapt_to_a_label_shift(monitored_digits, tmp_path, capsys):
    verdict = {"state": "drift", "cause": "label shift", "why": "label shift", "effects": [], "classes": {"0": 40}}
    (tmp_path / "verdict.json").write_text(json.dumps(verdict))
    out = str(tmp_path / "out")
    assert main(["--bundle", str(monitored_digits), "--verdict", str(tmp_path / "verdict.json"), "--out", out]) == 2
    assert "only 40 requests since the classes changed; wait for 300" in capsys.readouterr().err
