"""What is secret is told nobody: not by an error, not by a URL, not to who sends us elsewhere."""

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


@pytest.mark.parametrize("opened", [download_folder, open_directory])
@pytest.mark.parametrize(
    "text", ["s3://id:open-sesame@bucket/x", "ftp://:open-sesame@host/x", "http://a:open-sesame@h"]
)
def test_a_url_with_a_password_is_refused_without_it(opened, text):
    with pytest.raises(ValueError, match="a password") as raised:
        opened(text)
    assert "open-sesame" not in str(raised.value)


def test_a_new_folder_of_captures_is_its_owners_alone(tmp_path):
    open_directory(str(tmp_path / "kept")).write_file("one.png", b"a face")
    assert (tmp_path / "kept").stat().st_mode & 0o777 == 0o700
    (tmp_path / "shared").mkdir(mode=0o755)
    open_directory(str(tmp_path / "shared")).write_file("one.png", b"a face")
    assert (tmp_path / "shared").stat().st_mode & 0o777 == 0o755


@pytest.mark.parametrize(
    "place", ["abfs://container@account/x", "http://host:80/a@b", "s3://bucket/a:b@c", "s3://bucket"]
)
def test_another_at_sign_is_no_password(place):
    reject_credentials(place)


def test_an_error_of_the_arguments_does_not_show_them():
    with pytest.raises(ValueError) as raised:  # noqa: PT011 - as Ray logs it where they stand in YAML
        ReplicaSettings.model_validate({"webhook": "htps://host/open-sesame"})
    assert "webhook" in str(raised.value) and "open-sesame" not in str(raised.value)


class Elsewhere(BaseHTTPRequestHandler):
    """Sends who tells it something to ask for something else."""

    def do_POST(self):
        self.server.asked.append(self.path)
        self.rfile.read(int(self.headers["content-length"]))
        self.send_response(302)
        self.send_header("location", "/inside")
        self.end_headers()

    def do_GET(self):
        self.server.asked.append(self.path)
        self.send_response(200)
        self.end_headers()

    def log_message(self, *_):
        pass


def test_a_webhook_leads_nowhere_else_and_its_error_does_not_name_it():
    server = HTTPServer(("127.0.0.1", 0), Elsewhere)
    server.asked = []
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
    assert server.asked == ["/open-sesame"]
    assert "open-sesame" not in str(raised.value)


READ = """
import os, sys
from services.settings import ReplicaSettings
os.setgroups([])
os.setgid(12346)
os.setuid(12345)
print(ReplicaSettings(api_keys_file=sys.argv[1]).read_api_keys())
"""


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give a file to root")
@pytest.mark.parametrize(
    ("owner", "mode", "said"),
    [
        (0, 0o440, "('open-sesame',)"),
        (0, 0o444, "can be read by others"),
        (12345, 0o440, "can be read by others"),
        (12345, 0o400, "('open-sesame',)"),
    ],
)
def test_keys_may_be_read_by_the_group_that_root_gave_them_to(owner, mode, said):
    with tempfile.TemporaryDirectory() as place:
        keys = Path(place, "keys")
        keys.write_text("open-sesame\n")
        keys.chmod(mode)
        os.chown(keys, owner, 12346)
        Path(place).chmod(0o755)
        command = [sys.executable, "-c", READ, keys]
        found = subprocess.run(command, cwd=Path(__file__).parents[3], capture_output=True, text=True)
    assert said in found.stdout + found.stderr


def test_a_record_does_not_say_whose_machine_it_was():
    told = json.dumps(describe_hardware(torch.device("cpu")))
    assert not [one for one in (platform.node(), getpass.getuser(), str(Path.home())) if f'"{one}"' in told]
    assert set(describe_hardware(torch.device("cpu"))) <= {
        "processor",
        "cores",
        "system",
        "python",
        "torch",
        "device",
        "gpu",
    }
