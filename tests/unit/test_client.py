"""The client of the site against a real one, which runs without Ray."""

import socket

import pytest

from equipoise.client import EquipoiseClient
from equipoise.errors import EquipoiseError
from tests.support.site import serve_site


@pytest.fixture(scope="module")
def url(tmp_path_factory):
    with serve_site(tmp_path_factory.mktemp("client") / "results", ["run key-of-run", "view key-of-view"]) as site:
        yield site.url


@pytest.fixture
def client(url):
    return EquipoiseClient(url, "key-of-run")


def test_commands_have_their_options_with_help_and_choices(client):
    commands = {command["command"]: command for command in client.list_commands()}
    options = {option["name"]: option for option in commands["train"]["options"]}
    assert options["precision"]["choices"] == ["fp32", "bf16", "fp64"] and options["out"]["required"]
    assert commands.keys() == {"sweep", "train", "plan", "publish", "check", "adapt", "profile"}


@pytest.mark.parametrize(
    ("options", "code", "sentence"),
    [
        ({"workload": "digits", "lr": "fast"}, "option-format", "--lr must be a number, got 'fast'"),
        ({"workload": "digits", "color": "red"}, "option-unknown", "unknown option --color; see equipoise train"),
        ({}, "option-missing", "missing: --workload or --command; give one of the two"),
        ({"workload": "digits", "batch_size": 8, "compile": False}, "cluster-unreachable", "runs without Ray"),
    ],
)
def test_what_the_site_refuses_is_the_sentence_and_code_of_the_command(client, options, code, sentence):
    with pytest.raises(EquipoiseError) as caught:
        client.start_job("train", out="first", **options)
    assert caught.value.code == code and sentence in str(caught.value)


def test_an_unknown_job_and_a_body_that_is_none_are_refused(client):
    with pytest.raises(EquipoiseError, match="cannot find the job 'a b'"):
        client.get_job("a b")
    with pytest.raises(EquipoiseError, match="cannot read the job in the request"):
        client.request("POST", "jobs", {"command": "train", "options": {"lr": {}}})
    with pytest.raises(EquipoiseError, match="command must be one of sweep, train"):
        client.start_job("rm")
    assert client.list_jobs() == [] and "no Ray" in client.get_cluster()["problem"]


def test_a_key_may_come_from_a_file_and_is_never_shown(url):
    assert EquipoiseClient(url, "key-of-view\n").list_jobs() == []
    for key in ("run key-of-run", "key-of-run\nkey-of-view", "key-of-run\u20ac"):
        with pytest.raises(EquipoiseError, match="cannot use this key") as caught:
            EquipoiseClient(url, key)
        assert "key-of" not in str(caught.value)


def test_a_key_without_the_role_and_no_key_are_told_what_is_needed(url):
    with pytest.raises(EquipoiseError, match="it needs the role run"):
        EquipoiseClient(url, "key-of-view").start_job("train", workload="digits", out="first")
    with pytest.raises(EquipoiseError, match="an API key is required"):
        EquipoiseClient(url).list_jobs()


@pytest.mark.parametrize("url", ["127.0.0.1:8080", "http://", "http://127.0.0.1:many", "http://[::1"])
def test_an_address_that_is_none_is_refused(url):
    with pytest.raises(EquipoiseError, match=r"cannot use url .*; give one such as http://127"):
        EquipoiseClient(url)


def test_a_site_that_does_not_answer_in_time_is_told_as_such():
    with socket.create_server(("127.0.0.1", 0)) as silent:
        client = EquipoiseClient(f"http://127.0.0.1:{silent.getsockname()[1]}")
        with pytest.raises(EquipoiseError, match=r"has not answered within 0.2 s; it may still do what was asked"):
            client.request("POST", "deployments", {}, timeout_seconds=0.2)


def test_an_address_without_a_site_is_told(url):
    with pytest.raises(EquipoiseError, match=r"cannot reach the site at http://127.0.0.1:1") as caught:
        EquipoiseClient("http://127.0.0.1:1").list_jobs()
    assert caught.value.code == "service-unavailable"
