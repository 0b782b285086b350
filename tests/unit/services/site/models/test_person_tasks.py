"""What of the deployments waits for a person, as the home page lists it."""

import pytest

from equipoise.drift.diagnosis.verdict import StreamVerdict
from services.site.models.adaptation_jobs import AdaptationReply
from services.site.models.deployments.deployment import Deployment
from services.site.models.deployments.deployment_messages import TrafficReply
from services.site.models.deployments.deployment_states import DeploymentLook, ServiceLook
from services.site.models.deployments.serve_config import ServeState
from services.site.models.person_tasks import describe_served_model, list_person_tasks

DIGITS = Deployment(name="digits", model="digits", bundle="bundles/a", port=8001)
DRIFT = ServiceLook(verdict=StreamVerdict(state="drift", cause="blur"))


def build_look(service=DRIFT, state="running", captures=0, labelled=0):
    serve = ServeState(state=state, message="" if state == "running" else "no slot is free")
    return DeploymentLook(deployment=DIGITS, serve=serve, service=service, captures=captures, labelled=labelled)


def list_links(look, adaptation=None):
    return [(item.href, item.text) for item in list_person_tasks([look], {"digits": adaptation})]


def test_a_quiet_deployment_waits_for_nobody():
    assert list_links(build_look(ServiceLook(verdict=StreamVerdict(state="ok")), captures=200)) == []


def test_an_alarm_is_to_be_answered_and_captures_to_be_labelled_until_there_are_enough():
    alarm = ("/models/digits#adaptation", "digits: answer its drift (blur)")
    assert list_links(build_look(captures=40, labelled=29)) == [alarm, ("/labels/digits/", "digits: label captures")]
    assert list_links(build_look(captures=40, labelled=30)) == [alarm]


@pytest.mark.parametrize(("state", "word"), [("passed", "promote"), ("refused", "refused"), ("ended", "ended")])
def test_an_adapted_model_waits_behind_its_gate(state, word):
    reply = AdaptationReply(state=state, job="j", bundle="bundles/b", report=None)
    ((href, text),) = list_links(build_look(), reply)
    assert href == "/models/digits#adaptation" and word in text


def test_nobody_is_asked_while_an_adaptation_runs():
    assert list_links(build_look(), AdaptationReply(state="running", job="j", bundle="b", report=None)) == []


def test_a_service_that_does_not_run_is_named_with_its_reason():
    (item,) = list_person_tasks([build_look(ServiceLook(), state="failed")], {})
    assert (item.text, item.detail) == ("digits does not run", "no slot is free")


def test_a_served_model_shows_rate_latency_errors_and_verdict():
    traffic = TrafficReply(
        seconds=60, requests_per_second=12.345, median_ms=1.2345, p99_ms=9.0, refused=0.0, failed=0.02, total=9.0
    )
    look = build_look(ServiceLook(verdict=DRIFT.verdict, traffic=traffic))
    assert describe_served_model(look).detail == "running, 12.3 requests/s, 1.23 ms, 2.0% failed, drift: blur"
