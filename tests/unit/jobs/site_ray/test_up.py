"""Mistakes in the options of `equipoise up`, told before a Ray is started."""

import pytest

from jobs.site_ray.up import main

KEYS_OPTION = "--api-keys-file"


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (["--port", "0"], "--port must be from 1 to 65535, got 0"),
        (["--cpus", "0"], "--cpus must be from 1 to 4096, got 0"),
        (["--cpus", "2", "--ray", "http://127.0.0.1:1"], "--cpus has no effect with --ray"),
        (["--ray", "127.0.0.1:6379"], "cannot use --ray '127.0.0.1:6379': it is not an HTTP URL"),
        (["--ray", "http://127.0.0.1:many"], "give one such as http://127.0.0.1:8265"),
        (["--ray", "http://[::1"], "cannot use --ray 'http://[::1': Invalid IPv6 URL"),
        (["--ray", "http://ada:secret@host"], "http://... has a password in it"),
        (["--ray", "http://127.0.0.1:1"], "cannot reach Ray at http://127.0.0.1:1"),
        (["--host", "0.0.0.0"], "give --api-keys-file FILE"),  # noqa: S104 - refused
        ([KEYS_OPTION, "nowhere"], "nowhere is not a file"),
        (["--certfile", "cert.pem"], "TLS needs --certfile FILE and --keyfile FILE"),
        (["--results", "s3://bucket/runs"], "--results"),
    ],
)
def test_a_mistake_is_told_in_one_sentence(arguments, sentence, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    assert main(arguments) == 2
    printed = capsys.readouterr().err
    assert printed.startswith("error: ") and sentence in printed and printed.count("\n") == 1


def test_a_key_file_with_an_unknown_role_is_refused_without_its_keys(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "keys").write_text("admin very-secret\n")
    (tmp_path / "keys").chmod(0o600)
    assert main([KEYS_OPTION, "keys"]) == 2
    printed = capsys.readouterr().err
    assert "write one of view, label, run before each key" in printed and "very-secret" not in printed
