"""Changes of a deployment: what each makes of the bundles that answer, and which are refused."""

import pytest

from services.site.models.deployments.deployment import (
    MAX_HISTORY,
    Adaptation,
    Deployment,
    require_deployment_name,
)
from tests.support.errors import raises_code

DIGITS = Deployment(name="digits", model="digits", bundle="bundles/a", port=8001)


def list_bundles(deployment):
    return deployment.bundle, deployment.canary, deployment.previous


def test_a_canary_is_promoted_and_rolled_back_and_back_again():
    with_canary = DIGITS.start_canary("bundles/b", 0.25, 1.0)
    assert list_bundles(with_canary) == ("bundles/a", "bundles/b", None) and with_canary.share == 0.25
    promoted = with_canary.promote_canary(2.0)
    assert list_bundles(promoted) == ("bundles/b", None, "bundles/a")
    rolled_back = promoted.roll_back(3.0)
    assert list_bundles(rolled_back) == ("bundles/a", None, "bundles/b")
    assert list_bundles(rolled_back.roll_back(4.0)) == list_bundles(promoted)
    changes = [(change.kind, change.bundle, change.at) for change in rolled_back.history]
    expected = [("canary", "bundles/b", 1.0), ("promote", "bundles/b", 2.0), ("roll back", "bundles/a", 3.0)]
    assert changes == expected


def test_of_two_people_who_roll_back_at_the_same_moment_one_does():
    promoted = DIGITS.promote_bundle("bundles/b", 1.0)
    rolled_back = promoted.roll_back(2.0, "bundles/a")
    assert rolled_back.bundle == "bundles/a"
    with raises_code("rollback-impossible", "open the page again"):
        rolled_back.roll_back(3.0, "bundles/a")


def test_a_canary_that_is_stopped_answers_no_more():
    stopped = DIGITS.start_canary("bundles/b", 0.25, 1.0).stop_canary(2.0)
    assert list_bundles(stopped) == ("bundles/a", None, None)
    assert [change.kind for change in stopped.history] == ["canary", "stop canary"]


def test_a_promoted_adaptation_no_longer_waits_and_another_does():
    adapted = Adaptation(job="j", bundle="bundles/warm", report="r", at=0.0)
    waiting = Deployment(name="digits", model="digits", bundle="bundles/a", port=8001, adaptation=adapted)
    assert waiting.promote_bundle("bundles/b", 1.0).adaptation == adapted
    assert waiting.promote_bundle("bundles/warm", 1.0).adaptation is None


@pytest.mark.parametrize(
    ("change", "code"),
    [
        (lambda deployment: deployment.start_canary("bundles/b", 0.0, 1.0), "option-range"),
        (lambda deployment: deployment.start_canary("bundles/b", 1.0, 1.0), "option-range"),
        (lambda deployment: deployment.start_canary("bundles/a", 0.5, 1.0), "option-conflict"),
        (lambda deployment: deployment.stop_canary(1.0), "option-missing"),
        (lambda deployment: deployment.promote_canary(1.0), "option-missing"),
        (lambda deployment: deployment.promote_bundle("bundles/a", 1.0), "option-conflict"),
        (lambda deployment: deployment.roll_back(1.0), "rollback-impossible"),
    ],
)
def test_changes_without_a_sense_are_refused(change, code):
    with raises_code(code):
        change(DIGITS)


def test_only_the_last_changes_are_remembered():
    deployment = DIGITS
    for number in range(MAX_HISTORY + 5):
        deployment = deployment.record_change("deploy", "bundles/a", float(number))
    assert len(deployment.history) == MAX_HISTORY and deployment.history[-1].at == MAX_HISTORY + 4


@pytest.mark.parametrize("name", ["", "a/b", "..", "-a", "a" * 51, "ü", "bundles", "now", "a b", "a\0"])
def test_names_that_cannot_be_part_of_an_address_are_refused(name):
    with raises_code("option-format"):
        require_deployment_name(name)


def test_plain_names_are_taken():
    assert require_deployment_name("digits-2_b") == "digits-2_b"
