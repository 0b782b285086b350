"""A wrong argument of the service is reported in one sentence before anything starts."""

import importlib
import os
import socket
import warnings

import numpy as np
import pytest


@pytest.fixture(scope="module")
def app():
    with warnings.catch_warnings():  # Ray's own use of pydantic warns
        warnings.simplefilter("ignore")
        return importlib.import_module("services.app")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({}, "nothing to serve"),
        ({"bundel": "x"}, "bundel: there is no such argument; choose from host, port"),
        ({"bundle": ""}, "bundle: "),
        ({"port": "abc"}, "port: must be a whole number from 1 to 65535, got 'abc' [option-range]"),
        ({"port": "70000"}, "port: must be a whole number from 1 to 65535, got '70000'"),
        ({"report_seconds": "0"}, "report_seconds: must be a number from 0.1 to 3600, got '0'"),
        ({"drift_time_fraction": "0"}, "drift_time_fraction: must be a number from 0.001 to 1, got '0'"),
        ({"drift": "maybe"}, "drift: must be true or false, got 'maybe'"),
        ({"bundle": "BUNDLE", "reload_seconds": "0.001"}, "reload_seconds: "),
        ({"bundle": "BUNDLE", "engine": "nope"}, "no engine 'nope'"),
        ({"bundle": "BUNDLE", "replicas": "3", "max_replicas": "2"}, "max_replicas=2 is below replicas=3"),
        ({"bundle": "BUNDLE", "host": "0.0.0.0"}, "is open to other machines"),  # noqa: S104
        ({"bundle": "BUNDLE", "certfile": "a.pem"}, "give both, or none"),
        ({"bundle": "BUNDLE", "certfile": "a.pem", "keyfile": "b.pem"}, "cannot use certfile="),
        ({"bundle": "BUNDLE", "certfile": "", "keyfile": ""}, "certfile: "),
        ({"bundle": "BUNDLE", "api_keys_file": "FOLDER/none"}, "is not a file"),
        ({"bundle": "BUNDLE", "access_log": "FOLDER/none/log"}, "cannot write to access_log="),
        ({"bundle": "BUNDLE", "access_log": "FOLDER/pipe"}, "[path-kind]"),
        ({"bundle": "BUNDLE", "capture_dir": "FOLDER/file"}, "[path-kind]"),
        ({"bundle": "BUNDLE", "capture_dir": "FOLDER/pipe/x"}, "[path-kind]"),
        ({"bundle": "BUNDLE", "capture_dir": "memory://bucket/x"}, "[store-unsupported]"),
        ({"bundle": "BUNDLE", "webhook": "open-sesame"}, "[url-format]"),
        ({"bundle": "BUNDLE", "webhook": ""}, "[url-format]"),
        ({"bundle": "BUNDLE", "state_dir": "FOLDER/file"}, "cannot write to state_dir="),
        ({"bundle": "BUNDLE", "state_dir": "s3://bucket/state"}, "a URL is not supported"),
        ({"bundle": "BUNDLE", "capture_dir": "gopher://host/kept"}, "gopher"),
        ({"bundle": "BUNDLE", "webhook": "http://"}, "give a URL with a host"),
        ({"bundle": "BUNDLE", "webhook": "http://host:abc/"}, "webhook: "),
        ({"bundle": "BUNDLE", "webhook": "https://user:open-sesame@host/"}, "without a user"),
        ({"bundle": "BUNDLE", "webhook": "https://host/open-sesame here"}, "without a user"),
        ({"bundle": "BUNDLE", "webhook": "ftp://host/open-sesame"}, "webhook: "),
        ({"bundle": "s3://user:open-sesame@bucket/x"}, "has a password in it"),
        ({"models": {"a": {"bundle": "BUNDLE", "shadow": "http://user:open-sesame@host/x"}}}, "has a password in it"),
        ({"bundle": "BUNDLE", "capture_dir": "ftp://user:open-sesame@host/kept"}, "has a password in it"),
        ({"bundle": "BUNDLE", "limits": {"batch": 0}}, "limit batch must be above 0"),
        ({"models": {"a": {"bundle": "FOLDER/none"}}}, "is not a bundle"),
        ({"models": {"a/b": {"bundle": "BUNDLE"}}}, "models.a/b"),
        ({"models": {"a": {"bundle": "BUNDLE", "canary": "BUNDLE", "shadow": "BUNDLE"}}}, "give one"),
        ({"models": {"a": {"bundle": "BUNDLE", "canary": "BUNDLE", "share": 2}}}, "share"),
    ],
)
def test_wrong_service_argument_is_reported_in_one_sentence(app, bundles, tmp_path, capsys, arguments, message):
    def fill_placeholders(value):
        if isinstance(value, dict):
            return {name: fill_placeholders(item) for name, item in value.items()}
        return (
            value.replace("BUNDLE", str(bundles[0])).replace("FOLDER", str(tmp_path))
            if isinstance(value, str)
            else value
        )

    (tmp_path / "file").touch()
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(SystemExit) as exit_info:
        app.build(fill_placeholders(arguments))
    stderr = capsys.readouterr().err
    assert exit_info.value.code == 2
    assert stderr.startswith("error: ") and stderr.count("\n") == 1 and message in stderr
    assert "open-sesame" not in stderr


def test_port_of_another_program_is_refused_before_ray_starts(app, bundles, capsys):
    with socket.create_server(("127.0.0.1", 0)) as other:
        port = other.getsockname()[1]
        with pytest.raises(SystemExit) as exit_info:
            app.build({"bundle": str(bundles[0]), "port": str(port), "drift": "false"})
    assert exit_info.value.code == 2
    sentence = f"error: cannot listen on 127.0.0.1:{port} (Address already in use); choose another host or port"
    assert capsys.readouterr().err == f"{sentence} [port-in-use]\n"


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"runs": "/nowhere"}, "runs=/nowhere is not a folder"),
        ({"host": "0.0.0.0"}, "is open to other machines"),  # noqa: S104
        ({"folder": "runs"}, "folder: there is no such argument; choose from host, port"),
        ({"runs": ".", "certfile": "a.pem"}, "give both, or none"),
    ],
)
def test_wrong_pages_argument_is_reported_in_one_sentence(app, arguments, message):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        pages = importlib.import_module("services.pages")
    with pytest.raises(ValueError) as error_info:  # noqa: PT011 - its message is checked below
        pages.validate_settings(arguments)
    assert message in app.format_settings_error(error_info.value, pages.PagesSettings)


def test_bug_in_a_check_of_the_settings_is_not_a_wrong_argument(app, monkeypatch, tmp_path):
    monkeypatch.setattr("services.settings.is_loopback", lambda host: np.ones(2) + np.ones(3))
    with pytest.raises(ValueError, match="could not be broadcast"):
        app.build({"bundle": str(tmp_path)})


def test_bug_in_building_the_service_keeps_its_traceback(app, monkeypatch, tmp_path):
    monkeypatch.setattr(app, "build_application", lambda settings: np.ones(2) + np.ones(3))
    with pytest.raises(ValueError, match="could not be broadcast"):
        app.build({"bundle": str(tmp_path)})
