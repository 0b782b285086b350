"""Profiles of steps, alone or of an observed run, comparisons of workers, and links are experiments of the site."""

import json

import pytest

from equipoise.profiling.advice import add_advice
from equipoise.storage.atomic import write_json
from services.site.experiments.experiments_part import ExperimentsPart
from tests.support.device_comparisons import build_comparison
from tests.support.experiment_folders import write_run
from tests.support.link_reports import build_link_report
from tests.support.profile_reports import build_profile_report
from tests.support.site import serve_site


@pytest.fixture(scope="module")
def site(tmp_path_factory):
    results = tmp_path_factory.mktemp("measured") / "results"
    profile = add_advice(build_profile_report()).to_json()
    write_json(results / "profiled" / "profile.json", profile)
    write_json(write_run(results / "observed") / "profile.json", profile)
    write_json(results / "compared" / "comparison.json", build_comparison().to_json())
    write_json(results / "linked" / "links.json", build_link_report().to_json())
    write_json(results / "linked-damaged" / "links.json", build_link_report().to_json() | {"sums": []})
    for name in ("damaged", "damaged-run"):
        (results / name).mkdir()
        (results / name / "profile.json").write_text('{"schema": 1')
    write_run(results / "damaged-run")
    parts = []

    def build_part(context):
        parts.append(ExperimentsPart(context))
        parts[0].index.update_now()
        return parts[0]

    with serve_site(results, None, [build_part]) as client:
        yield client
    parts[0].index.close()


@pytest.mark.parametrize(
    ("name", "title"),
    [
        ("profiled/profile", "Profile: digits"),
        ("observed/profile", "Profile: digits"),
        ("compared/comparison", "1 worker or 2 workers: digits"),
        ("linked/links", "Links: 4 workers on 2 nodes"),
    ],
)
def test_measurements_have_live_pages(site, name, title):
    status, html = site.page(f"/experiments/{name}.html")
    assert status == 200 and f"<title>{title}" in html and "data-live=" in html
    status, update = site.page(f"/experiments/{name}.html/live")
    assert status == 200 and json.loads(update)["main"]


def test_the_page_of_an_observed_run_leads_to_its_profile_and_back(site):
    assert 'href="profile.html"' in site.page("/experiments/observed/run.html")[1]
    assert 'href="run.html"' in site.page("/experiments/observed/profile.html")[1]


def test_rows_say_what_was_measured_and_what_came_out(site):
    rows = {row["path"]: row for row in site.api("GET", "/api/experiments")[1]["experiments"]}
    profile, comparison = rows["profiled"], rows["compared"]
    assert (profile["kind"], profile["workload"], profile["workers"], profile["batch_size"]) == (
        *("profile", "digits"),
        *(2, 32),
    )
    assert profile["status"].startswith("100 ms a step, most for waiting for the exchange")
    assert comparison["kind"] == "comparison" and comparison["workers"] == 2
    assert comparison["status"].startswith("2 workers pay from a batch of ")
    linked, damaged = rows["linked"], rows["linked-damaged"]
    assert (linked["kind"], linked["workers"], linked["workload"]) == ("links", 4, None)
    assert linked["status"].startswith("192 Mbit/s between nodes, ") and "16 MiB" in linked["status"]
    assert (damaged["kind"], damaged["status"]) == ("links", "unreadable")
    assert rows["observed"]["kind"] == "run"
    for name, kind in (
        ("profiled", "Profile of a step"),
        ("compared", "One worker or several"),
        ("linked", "Links of a cluster"),
    ):
        assert kind in site.page(f"/experiments/{name}")[1]


def test_measurements_are_compared_by_all_their_options(site):
    status, html = site.page("/compare?path=profiled&path=compared")
    assert status == 200 and "momentum" in html and "a step" in html
    status, html = site.page("/compare?path=profiled&path=linked")
    assert status == 200 and "between nodes" in html


def test_a_damaged_profile_is_named_and_does_not_hide_its_run(site):
    rows = {row["path"]: row for row in site.api("GET", "/api/experiments")[1]["experiments"]}
    assert rows["damaged"]["status"] == "unreadable" and rows["damaged-run"]["kind"] == "run"
    status, html = site.page("/experiments/damaged-run/run.html")
    assert status == 200 and "profile.html" not in html
    assert site.page("/experiments/damaged-run/profile.html")[0] == 409
    assert site.page("/experiments/damaged/profile.html")[0] == 409
