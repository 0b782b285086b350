"""Secrets do not appear in errors, URLs or records and are not sent to the target of a redirect."""

import getpass
import json
import os
import platform
import subprocess
import sys
import tempfile
import threading
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from urllib.error import HTTPError

import pytest
import torch

from equipoise.hardware import describe_hardware
from equipoise.storage.atomic import download_folder
from equipoise.storage.directory import open_directory
from equipoise.storage.location import reject_credentials
from services.monitoring.webhook import post_event
from services.settings import ReplicaSettings
from tests.support.errors import raises_code


@pytest.mark.parametrize("open_url", [download_folder, open_directory])
@pytest.mark.parametrize("url", ["s3://id:open-sesame@bucket/x", "ftp://:open-sesame@host/x", "http://a:open-sesame@h"])
def test_url_with_a_password_is_refused_without_showing_it(open_url, url):
    with raises_code("url-secret") as raised:
        open_url(url)
    assert "open-sesame" not in str(raised.value)


def test_new_capture_folder_is_accessible_only_to_its_owner(tmp_path):
    open_directory(str(tmp_path / "kept")).write_file("one.png", b"a face")
    assert (tmp_path / "kept").stat().st_mode & 0o777 == 0o700
    (tmp_path / "shared").mkdir(mode=0o755)
    open_directory(str(tmp_path / "shared")).write_file("one.png", b"a face")
    assert (tmp_path / "shared").stat().st_mode & 0o777 == 0o755


@pytest.mark.parametrize(
    "url", ["abfs://container@account/x", "http://host:80/a@b", "s3://bucket/a:b@c", "s3://bucket"]
)
def test_at_sign_outside_of_credentials_is_allowed(url):
    reject_credentials(url)


def test_settings_error_does_not_show_the_values():
    with pytest.raises(ValueError) as raised:  # noqa: PT011 - Ray logs this error for settings in YAML
        ReplicaSettings.model_validate({"webhook": "htps://host/open-sesame"})
    assert "webhook" in str(raised.value) and "open-sesame" not in str(raised.value)


class RedirectHandler(BaseHTTPRequestHandler):
    """Handler that redirects every POST to /inside and records the requested paths."""

    def do_POST(self):
        self.server.requested_paths.append(self.path)
        self.rfile.read(int(self.headers["content-length"]))
        self.send_response(302)
        self.send_header("location", "/inside")
        self.end_headers()

    def do_GET(self):
        self.server.requested_paths.append(self.path)
        self.send_response(200)
        self.end_headers()

    def log_message(self, *_):
        pass


def test_webhook_redirect_is_not_followed_and_its_error_does_not_show_the_url():
    server = HTTPServer(("127.0.0.1", 0), RedirectHandler)
    server.requested_paths = []
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    try:
        with pytest.raises(HTTPError) as raised:
            post_event(f"http://127.0.0.1:{server.server_port}/open-sesame", {"event": "alarm"})
        raised.value.close()
    finally:
        server.shutdown()
        thread.join()
        server.server_close()
    assert server.requested_paths == ["/open-sesame"]
    assert "open-sesame" not in str(raised.value)


READ_KEYS_SCRIPT = """
import os, sys
from services.settings import ReplicaSettings
os.setgroups([])
os.setgid(12346)
os.setuid(12345)
print(ReplicaSettings(api_keys_file=sys.argv[1]).read_api_keys())
"""


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give a file to root")
@pytest.mark.parametrize(
    ("owner", "mode", "message"),
    [
        (0, 0o440, "('open-sesame',)"),
        (0, 0o444, "can be read by others"),
        (12345, 0o440, "can be read by others"),
        (12345, 0o400, "('open-sesame',)"),
    ],
)
def test_key_file_may_be_group_readable_only_if_root_owns_it(owner, mode, message):
    with tempfile.TemporaryDirectory() as folder:
        keys = Path(folder, "keys")
        keys.write_text("open-sesame\n")
        keys.chmod(mode)
        os.chown(keys, owner, 12346)
        Path(folder).chmod(0o755)
        command = [sys.executable, "-c", READ_KEYS_SCRIPT, keys]
        result = subprocess.run(command, cwd=Path(__file__).parents[3], capture_output=True, text=True)
    assert message in result.stdout + result.stderr


def test_hardware_record_does_not_name_machine_or_user():
    facts = describe_hardware(torch.device("cpu")).to_json()
    record = json.dumps(facts)
    assert not [name for name in (platform.node(), getpass.getuser(), str(Path.home())) if f'"{name}"' in record]
    assert facts.keys() <= {"processor", "cores", "system", "python", "torch", "equipoise", "device", "gpu"}
