"""Pages of forms and jobs on a site without Ray: what a form shows, refuses and would start, and lists of jobs."""

import time

import pytest

from equipoise.storage.atomic import write_json
from services.site.jobs_on_ray.job_log import SHORT_TAIL_BYTES
from services.site.jobs_on_ray.job_store import JobStore, SubmittedJob
from services.site.jobs_on_ray.jobs_part import JobsPart
from tests.support.profile_reports import build_profile_report
from tests.support.site import serve_site

LONG_LOG = "".join(f"step {number} of many\n" for number in range(2000)) + "error: out of patience [option-range]\n"


@pytest.fixture(scope="module")
def results(tmp_path_factory):
    return tmp_path_factory.mktemp("job-pages") / "results"


@pytest.fixture(scope="module")
def site(results):
    with serve_site(results, None, [JobsPart]) as client:
        store = JobStore(results / ".site" / "jobs.sqlite")
        store.claim_job(build_job(results, "train-1", "train", "first"), "first")
        store.claim_job(build_job(results, "profile-1", "profile", "profiled"), "profiled")
        (results / ".site" / "logs" / "train-1.log").write_text(LONG_LOG)
        yield client


def build_job(results, name, command, out):
    """Build a job that has failed."""
    return SubmittedJob(
        id=name,
        command=command,
        arguments=("--out", f"{results}/{out}"),
        out=f"{results}/{out}",
        folder=str(results),
        started_by="Ada",
        submitted=time.time(),
        status="failed",
    )


def test_a_form_shows_the_command_that_it_stands_for_and_what_is_wrong_with_it(site):
    status, html = site.page("/new/train?workload=digits&lr=fast")
    assert status == 200 and "equipoise train" in html and "--lr must be a number" in html
    fields = {"workload": "digits", "out": "new"}
    assert "--workload digits" in site.submit("/new/train/preview", fields)[1]


def test_a_form_with_a_mistake_is_shown_again_and_a_good_one_needs_a_ray(site):
    reply, html = site.submit("/new/train", {"workload": "digits", "out": "new", "lr": "-1"})
    assert reply.status == 400 and 'value="digits"' in html and 'id="problem"' in html
    reply, html = site.submit("/new/train", {"workload": "digits", "out": "new"})
    assert reply.status == 503 and "this site runs without Ray" in html


def test_the_page_of_a_job_has_more_of_its_log_than_a_list(site):
    page = site.page("/jobs/train-1")[1]
    assert "out of patience" in page and len(page) > 2 * SHORT_TAIL_BYTES
    status, reply = site.api("GET", "/api/jobs?limit=500")
    assert status == 200
    assert {"out of patience"} == {job["failure"] for job in reply["jobs"] if job["id"] == "train-1"}


def test_the_page_of_a_profile_is_linked_once_it_is_there(site, results):
    link = 'href="/experiments/profiled/profile.html"'
    (results / "profiled").mkdir()
    (results / "profiled" / "run.lock").touch()  # of the command, while it measures
    assert link not in site.page("/jobs/profile-1")[1]
    write_json(results / "profiled" / "profile.json", build_profile_report().to_json())
    assert link in site.page("/jobs/profile-1")[1]


@pytest.mark.parametrize("page", ["0", "x", "1" + "0" * 40, "000000001" + "9" * 20])
def test_a_page_that_is_none_is_the_first_one(site, page):
    status, html = site.page(f"/jobs?page={page}")
    assert status == 200 and "train-1" in html
