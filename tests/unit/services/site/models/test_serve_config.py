"""Document for Ray Serve: what it says of each deployment, whose applications it keeps, and the states in return."""

import pytest

from services.site.models.deployments.deployment import Deployment
from services.site.models.deployments.serve_config import (
    MAX_MESSAGE_LENGTH,
    DeploymentFolders,
    build_serve_config,
    find_other_applications,
    read_serve_states,
    shorten_message,
)

DIGITS = Deployment(name="digits", model="net", bundle="bundles/a", port=8001)


def read_application(config, index=0):
    application = config["applications"][index]
    return application, application["deployments"][0]["user_config"]


def test_a_deployment_listens_on_loopback_and_keeps_all_below_the_results(tmp_path):
    application, models = read_application(build_serve_config([DIGITS], tmp_path))
    assert application["import_path"] == "services.app:build"
    assert application["args"] == {
        "host": "127.0.0.1",
        "port": 8001,
        "state_dir": f"{tmp_path}/services/digits/drift",
        "capture_dir": f"{tmp_path}/services/digits/captures",
    }
    assert models == {"net": {"bundle": f"{tmp_path}/bundles/a"}}


def test_a_canary_changes_nothing_but_what_is_swapped_in_place(tmp_path):
    before = read_application(build_serve_config([DIGITS], tmp_path))[0]
    changed = DIGITS.start_canary("bundles/b", 0.2, 1.0)
    after, models = read_application(build_serve_config([changed], tmp_path))
    assert models == {"net": {"bundle": f"{tmp_path}/bundles/a", "canary": f"{tmp_path}/bundles/b", "share": 0.2}}
    assert {key: value for key, value in after.items() if key != "deployments"} == {
        key: value for key, value in before.items() if key != "deployments"
    }


def test_a_key_is_named_by_its_file_alone(tmp_path):
    deployment = Deployment(name="digits", model="net", bundle="bundles/a", port=8001, requires_key=True)
    arguments = read_application(build_serve_config([deployment], tmp_path))[0]["args"]
    assert arguments["api_keys_file"] == str(DeploymentFolders(results=tmp_path, name="digits").keys_file)


def test_applications_that_others_have_declared_are_repeated(tmp_path):
    theirs = {"name": "theirs", "import_path": "their.app"}
    details = {
        "applications": {
            "theirs": {"source": "declarative", "deployed_app_config": theirs},
            "by-hand": {"source": "imperative", "deployed_app_config": None},
            "equipoise-site-old": {"source": "declarative", "deployed_app_config": {"name": "equipoise-site-old"}},
        }
    }
    others = find_other_applications(details)
    names = [application["name"] for application in build_serve_config([DIGITS], tmp_path, others)["applications"]]
    assert others == [theirs] and names == ["theirs", "equipoise-site-digits"]
    assert find_other_applications({}) == []


@pytest.mark.parametrize(
    ("status", "state"),
    [("RUNNING", "running"), ("DEPLOYING", "starting"), ("DEPLOY_FAILED", "failed"), ("?", "failed")],
)
def test_states_are_read_with_the_reason_of_those_that_do_not_run(status, state):
    details = {
        "applications": {
            "equipoise-site-digits": {
                "status": status,
                "message": "whole",
                "deployments": {"Predictor": {"message": "no slot is free"}},
            },
            "theirs": {"status": "RUNNING"},
        }
    }
    states = read_serve_states(details)
    assert [*states] == ["digits"]
    assert (states["digits"].state, states["digits"].message) == (
        state,
        "" if state == "running" else "no slot is free",
    )


def test_of_a_traceback_the_sentence_is_kept():
    lines = ("Deploying failed:", "Traceback (most recent call last):", "  File x")
    text = "\n".join((*lines, "equipoise.errors.EquipoiseError: cannot load a; publish it again"))
    assert shorten_message(text) == "cannot load a; publish it again"
    assert shorten_message("one\ntwo") == "one" and shorten_message("") == ""
    assert len(shorten_message("x" * 999)) == MAX_MESSAGE_LENGTH + 3
