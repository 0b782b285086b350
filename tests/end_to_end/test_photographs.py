"""A new user's path with their own photographs: the commands of docs/guides/photographs.md, one after the other."""

import json
import os
import re
import signal
import subprocess
import tempfile
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import pytest

from equipoise.bundle.bundle import load_bundle
from equipoise.planning.document import PlanDocument
from jobs.cluster.private_ray import ENVIRONMENT_BIN
from jobs.cluster.processes import find_free_ports, terminate_process_groups
from tests.support.doc_fences import read_fences
from tests.support.photographs import save_photographs, save_relit_photographs
from tests.support.ray_cluster import ROOT

FENCES = read_fences(ROOT / "docs" / "guides" / "photographs.md")
PHOTOGRAPHS_PER_CLASS, EVENING_PHOTOGRAPHS_PER_CLASS = 400, 20
WARM_LIGHT = np.array([1.25, 1.0, 0.65])  # factors on red, green and blue in linear light: about 4,000 K


@pytest.fixture(scope="module")
def project(tmp_path_factory):
    """Folder of a user, with photographs cut out of two large ones."""
    folder = tmp_path_factory.mktemp("project")
    save_photographs(folder / "photos", PHOTOGRAPHS_PER_CLASS)
    save_relit_photographs(folder / "evening", EVENING_PHOTOGRAPHS_PER_CLASS, WARM_LIGHT)
    return folder


class Shell:
    """Runs code blocks of the page as its reader would, with another port and a Ray of its own."""

    def __init__(self, folder, ray_folder):
        self.folder, self.port = folder, find_free_ports(1)[0]
        own = {name: value for name, value in os.environ.items() if not name.startswith("RAY_")}
        self.environment = own | {"PATH": f"{ENVIRONMENT_BIN}:{os.environ['PATH']}", "RAY_TMPDIR": ray_folder}

    def start(self, name, **options):
        text = FENCES[name].text.strip().replace(":8000", f":{self.port}")
        if "service" in FENCES[name].attributes:
            text += f" port={self.port}"
        return subprocess.Popen(
            ["/bin/bash", "-ec", text],
            cwd=self.folder,
            env=self.environment,
            start_new_session=True,
            text=True,
            **options,
        )

    def run(self, name, *other_statuses):
        """Run a code block to its end and return its exit status and output."""
        process = self.start(name, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        output, errors = process.communicate()
        expected = (int(FENCES[name].attributes.get("status", 0)), *other_statuses)
        assert process.returncode in expected, f"{name}: {output}{errors}"
        return process.returncode, output

    @contextmanager
    def serve(self, name):
        process = self.start(name, stderr=subprocess.PIPE)
        try:
            lines = iter(process.stderr.readline, "")
            assert any(line.startswith("answers at") for line in lines), f"{name} ended with {process.wait()}"
            yield
        finally:
            os.killpg(process.pid, signal.SIGINT)
            process.stderr.close()
            process.wait()
            terminate_process_groups([process])


@pytest.fixture(scope="module")
def shell(project):
    with tempfile.TemporaryDirectory(prefix="eq-", ignore_cleanup_errors=True) as ray_folder:
        yield Shell(project, ray_folder)


@pytest.mark.thorough
def test_every_command_of_the_page_works_on_photographs(shell, project):
    status, printed = shell.run("sweep", 1)  # 1: on a busy machine a run may take longer than predicted
    document = PlanDocument.read(project / "runs" / "sweep" / "plan.json")
    assert document.plan and re.search(r"^plan (confirmed|refuted): a run with", printed, re.MULTILINE)
    assert (document.status == "confirmed") == (status == 0)
    shell.run("train")
    record = json.loads((project / "runs" / "photos" / "record.json").read_text())
    assert record["status"] == "reached_target" and record["config"]["batch_size"] == document.plan.batch
    shell.run("publish")
    assert load_bundle(project / "bundles" / "photos").classes == ["flower", "lawn", "roof"]
    with shell.serve("serve"):
        assert json.loads(shell.run("predict")[1])["label"] == "roof"
    assert shell.run("check")[1].startswith("drift: colour temperature")
    for page in ("sweep/curve.html", "photos/run.html", "evening/drift.html"):
        assert (project / "runs" / page).stat().st_size > 10_000


def test_page_is_linked_from_the_readme():
    assert "docs/guides/photographs.md" in Path(ROOT, "README.md").read_text(encoding="utf-8")
