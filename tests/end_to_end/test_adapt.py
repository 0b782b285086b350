"""jobs.adapt from a verdict to a bundle, twice in a row: classes in other shares, then darker light."""

import json
import sys

import numpy as np
import pytest
import torch

from equipoise.bundle.bundle import load_bundle
from equipoise.config import TrainConfig
from equipoise.drift.stats.label_shift import adapt_posteriors
from equipoise.workloads import load_workload
from jobs.adapt import main
from jobs.publishing.adaptation import load_profile

MIX = np.array([3, 3, 1, 1, 1, 1, 1, 1, 1, 1]) / 14


@pytest.fixture(scope="module")
def mixed(watched_digits, tmp_path_factory):
    """The bundle after classes came in other shares."""
    out = tmp_path_factory.mktemp("mixed")
    called = 1400 * load_profile(load_bundle(watched_digits)).labelled.confusion @ MIX
    counts = dict(zip(map(str, range(10)), np.round(called).astype(int).tolist(), strict=True))
    verdict = {"state": "drift", "cause": "label shift", "why": "label shift", "effects": [], "classes": counts}
    (out / "verdict.json").write_text(json.dumps(verdict))
    arguments = ["--bundle", str(watched_digits), "--verdict", str(out / "verdict.json"), "--out", str(out / "digits")]
    assert main([*arguments, "--dry-run"]) == 0 and not (out / "digits").exists()
    assert main(arguments) == 0
    return out / "digits"


def test_classes_in_other_shares_change_what_is_expected_and_nothing_else(watched_digits, mixed):
    old, new = load_bundle(watched_digits), load_bundle(mixed)
    pictures = load_workload(TrainConfig(workload="digits")).test.pictures
    before, after = (one.run_engine(pictures)[0].numpy() for one in (old, new))
    weights = np.array([new.manifest["remedy"]["weights"][name] for name in old.classes])
    np.testing.assert_allclose(weights[:2] / weights[2:].mean(), 3, rtol=0.15)
    wanted = adapt_posteriors(before, old.temperature, weights)
    found = torch.softmax(torch.from_numpy(after).double() / old.temperature, 1).numpy()
    np.testing.assert_allclose(found, wanted, atol=1e-4)
    assert torch.equal(*(torch.from_numpy(one.run_engine(pictures)[1].numpy()) for one in (old, new)))
    shown = np.bincount(new.load_reference_arrays()["labels"], minlength=10)
    np.testing.assert_allclose(shown / shown.sum(), MIX, atol=0.04)


def test_an_adapted_bundle_is_adapted_again_and_forgets_nothing(mixed, tmp_path, cluster):
    effect = {"cause": "exposure", "detail": "darker", "value": -1.5}
    verdict = {"state": "drift", "cause": "exposure", "why": "exposure", "effects": [effect]}
    (tmp_path / "verdict.json").write_text(json.dumps(verdict))
    link = tmp_path / "served"
    link.symlink_to(mixed)
    arguments = ["--verdict", str(tmp_path / "verdict.json"), "--link", str(link)]
    done = cluster.run(sys.executable, "-m", "jobs.adapt", *arguments, "--out", str(tmp_path / "darker"))
    assert done.returncode == 0, done.stdout + done.stderr
    new = load_bundle(link)
    assert link.resolve() == tmp_path / "darker"
    assert (new.manifest["workload"], new.manifest["config"]["workload"]) == ("digits", "digits")
    assert [one["cause"] for one in new.manifest["remedy"]["changes"]] == ["exposure"]
    assert new.manifest["remedy"]["weights"] == load_bundle(mixed).manifest["remedy"]["weights"]
    verified = load_bundle(link).load_reference_arrays()["drift.verified"]
    assert verified[1] / max(verified[2], 1) > verified[0] / 4  # its reference and what is held against it look alike
    assert "Adapted to a drift" in (link / "card.md").read_text()
    assert main(["--link", str(link), "--roll-back"]) == 0 and link.resolve() == mixed


def test_few_requests_tell_no_shares(watched_digits, tmp_path, capsys):
    verdict = {"state": "drift", "cause": "label shift", "why": "label shift", "effects": [], "classes": {"0": 40}}
    (tmp_path / "verdict.json").write_text(json.dumps(verdict))
    out = str(tmp_path / "out")
    assert main(["--bundle", str(watched_digits), "--verdict", str(tmp_path / "verdict.json"), "--out", out]) == 2
    assert "only 40 requests since the classes changed; wait for 300" in capsys.readouterr().err
