"""jobs.profile on a real cluster: files are written, and what is tried has a verdict."""

import gzip
import json
import sys

import pytest

from equipoise.profiling.profile_report import ProfileReport

COMMAND = (sys.executable, "-m", "jobs.profile", "--workload", "digits", "--batch-size", "16", "--steps", "3")


@pytest.mark.slow
@pytest.mark.thorough
def test_command_writes_profile_page_and_trace(cluster, tmp_path):
    out = tmp_path / "profile"
    result = cluster.run(*COMMAND, "--workers", "2", "--consider", "twice the link", "--try", "--out", str(out))
    assert result.returncode == 0, result.stderr
    names = [".lock", "profile.html", "profile.json", "trace-worker-0.json.gz"]
    assert sorted(path.name for path in out.iterdir()) == names
    report = ProfileReport.from_json(json.loads((out / "profile.json").read_text()))
    (link,) = report.links
    assert link.level == "within a node" and report.memory.rows[-1].batch == 64
    assert len(report.steps.parts) == 2 and report.nodes == 1 and report.config.workers == 2
    tried = [proposal for proposal in report.proposals if proposal.gain.value >= 1.05]
    assert all(proposal.verdict for proposal in tried if proposal.options)
    assert json.loads(gzip.decompress((out / "trace-worker-0.json.gz").read_bytes()))["traceEvents"]
    assert "where it goes" in result.stdout and "what would help" in result.stdout
    assert "2 workers on 1 node" in (out / "profile.html").read_text()
