"""Pages and endpoints of experiments and plans on a real port."""

import csv
import io
import json
import os
import re
import threading
from html import unescape
from urllib.parse import quote

import pytest

from equipoise.client import EquipoiseClient
from equipoise.errors import EquipoiseError
from services.site.experiments.experiments_part import ExperimentsPart
from tests.support.experiment_folders import write_results, write_run, write_trials
from tests.support.site import serve_site
from tests.support.sweep_folders import write_sweep_folder


@pytest.fixture(scope="module")
def results(tmp_path_factory):
    return write_results(tmp_path_factory.mktemp("site") / "results")


def build_indexed_part(context):
    """Build the part of experiments with an index that is complete."""
    part = ExperimentsPart(context)
    part.index.update_now()
    part.index.update_now()  # a second look at the same files finds the same
    return part


@pytest.fixture(scope="module")
def site(results):
    parts = []

    def build_part(context):
        parts.append(ExperimentsPart(context))
        parts[0].index.update_now()
        return parts[0]

    keys = ["run key-to-run", "label key-to-label Ada", "view key-to-view"]
    with serve_site(results, keys, [build_part]) as client:
        assert client.log_in("key-to-label") == 303
        yield client
    parts[0].index.close()


def test_the_table_lists_sorts_and_filters(site):
    status, html = site.page("/experiments?filter=kind%3Drun+lr%3E0&sort=lr")
    assert status == 200 and "1 to 2 of 2" in html
    assert html.index("/experiments/first") < html.index("/experiments/deep/second")
    assert 'aria-sort="ascending"' in html and "sort=-lr" in html
    assert len(html.encode()) < 150_000


def test_an_open_page_is_answered_with_news_alone(site):
    html = site.page("/experiments")[1]
    href = html.split('hx-get="')[1].split('"')[0].replace("&amp;", "&")
    assert site.page(href, hx_request="true")[0] == 204
    status, part = site.page(href.replace("version=", "version=1"), hx_request="true")
    assert status == 200 and "<html" not in part and "first" in part


def test_wrong_filters_are_refused_in_a_sentence(site):
    status, html = site.page("/experiments?filter=nothing%3D1")
    assert status == 400 and "there is no column" in html
    assert site.page("/experiments?offset=-1")[0] == 400


def test_broken_files_are_listed_with_their_problem(site):
    html = site.page("/experiments")[1]
    assert "cannot be read: the newest" in html and "is not valid JSON" in html
    status, html = site.page("/experiments/broken")
    assert status == 200 and "is not valid JSON" in html and "open its page" not in html


def test_the_page_of_a_sweep_leads_to_its_trials(site):
    html = site.page("/experiments/sweep")[1]
    href = unescape(html.split('href="/experiments?filter=')[1].split('"')[0])
    trials = site.page(f"/experiments?filter={href}")[1]
    assert "sweep/trials/batch-32-lr-0.05-seed-1" in trials and "/experiments/first" not in trials
    assert 'href="/experiments?filter=kind' not in site.page("/experiments/first")[1]


def test_home_shows_the_newest_results_without_trials_and_confirmation_runs(site):
    html = site.page("/")[1]
    shown = re.findall(r'href="/experiments/([^"]+)"', html.split("Newest results")[1])
    assert len(shown) == 5 and "sweep" in shown
    assert not any("trials/" in path or "confirm/" in path for path in shown)


def test_the_page_of_a_plan_belongs_to_the_experiments(site):
    assert '<a href="/experiments" aria-current="page">' in site.page("/plan/sweep")[1]


@pytest.mark.parametrize("name", ["first/run", "sweep/curve", "sweep/scaling", "sweep/trials/batch-32-lr-0.05-seed-1"])
def test_experiments_have_live_pages_of_their_own(site, name):
    status, html = site.page(f"/experiments/{name}.html")
    assert status == 200 and 'href="/experiments"' in html and "data-live=" in html
    status, update = site.page(f"/experiments/{name}.html/live")
    assert status == 200 and json.loads(update)["main"]


@pytest.mark.parametrize(("name", "heading"), [("first", "Curve"), ("sweep", "Predicted times"), ("odd", "")])
def test_the_page_of_an_experiment_draws_its_curve(site, name, heading):
    status, html = site.page(f"/experiments/{name}")
    assert status == 200 and html.count("data-figure=") == bool(heading) and f"<h2>{heading}" in html


@pytest.fixture(scope="module")
def odd_site(tmp_path_factory):
    """A site of results whose folders have names that other programs gave them, and of links that lead out of them."""
    folder = tmp_path_factory.mktemp("odd")
    results = folder / "results"
    for name in ("", "sweep", "deep/sweep", "Übung"):
        write_trials(write_sweep_folder(results / name), 2)
    for name in ("back\\slash", "no-break\xa0space", os.fsdecode(b"\xff" * 60), "/".join(["long" * 50] * 6)):
        write_run(results / name)
    write_run(folder / "outside")
    (results / "sweep" / "trials" / "link.json").symlink_to(folder / "outside" / "record.json")
    with serve_site(results, None, [build_indexed_part]) as client:
        yield client


def test_experiments_of_odd_names_have_a_page_and_can_be_compared(odd_site):
    rows = odd_site.api("GET", "/api/experiments?filter=kind%3Drun")[1]["experiments"]
    assert len(rows) == 4
    for path in (row["path"] for row in rows):
        status, html = odd_site.page(f"/experiments/{quote(path)}")
        assert status == 200 and "Training run" in html, path
        assert odd_site.page(f"/compare?path=sweep&path={quote(path)}")[0] == 200, path


@pytest.mark.parametrize("name", ["", "sweep", "deep/sweep", "Übung"])
def test_a_sweep_leads_to_its_own_trials_alone(odd_site, name):
    html = odd_site.page(f"/experiments/{quote(name)}")[1]
    href = unescape(html.split('href="/experiments?filter=')[1].split('"')[0])
    trials = odd_site.api("GET", f"/api/experiments?filter={href}")[1]["experiments"]
    names = {row["path"].rpartition("/")[0] for row in trials}
    assert names == {f"{name}/trials".removeprefix("/")} and len(trials) == 2 + (name == "sweep")


def test_the_record_behind_a_link_that_leads_out_is_not_drawn(odd_site):
    status, html = odd_site.page("/experiments/sweep/trials/link")
    assert status == 200 and "data-figure=" not in html


def test_results_that_are_a_sweep_lead_to_no_page_that_they_do_not_have(odd_site):
    status, html = odd_site.page("/experiments/")
    assert status == 200 and 'href="/plan/' not in html
    assert odd_site.page("/experiments/sweep")[1].count('href="/plan/sweep"') == 1


@pytest.mark.parametrize(
    ("path", "status"),
    [
        ("/experiments/missing/run.html", 404),
        ("/experiments/missing", 404),
        ("/experiments/..%2f..%2fetc/passwd.html", 400),
        ("/experiments/first%00/run.html", 400),
        ("/experiments/.site/run.html", 400),
        ("/experiments/sweep/trials/missing.html", 404),
        ("/compare?path=first", 400),
        ("/compare?path=first&path=missing", 404),
        ("/plan/first", 404),
        ("/plan/..%2f..", 400),
    ],
)
def test_what_is_not_there_or_outside_is_refused(site, path, status):
    assert site.page(path)[0] == status


def test_results_that_are_a_run_themselves_have_a_page(tmp_path):
    write_run(tmp_path / "results")
    parts = []

    def build_part(context):
        parts.append(ExperimentsPart(context))
        parts[0].index.update_now()
        return parts[0]

    with serve_site(tmp_path / "results", None, [build_part]) as client:
        status, html = client.page("/experiments/")  # where a browser goes for /experiments/.
        assert status == 200 and "Training run" in html and "<h2>Curve" in html
        assert client.submit("/tags/", {"tag": "whole"}, client.csrf_token("/experiments/"))[0].status == 303
        assert "whole" in client.page("/experiments")[1]
    parts[0].index.close()


def test_notes_and_tags_are_written_with_their_author(site):
    path = quote("deep/second")
    token = site.csrf_token(f"/experiments/{path}")
    assert site.submit(f"/notes/{path}", {"text": "<b>It</b> converges."}, token)[0].status == 303
    assert site.submit(f"/tags/{path}", {"tag": "baseline"}, token)[0].status == 303
    html = site.page(f"/experiments/{path}")[1]
    assert "&lt;b&gt;It&lt;/b&gt; converges." in html and "Ada" in html
    assert "1 to 1 of 1" in site.page("/experiments?filter=tag%3Dbaseline")[1]
    assert site.submit(f"/tags/{path}", {"remove": "baseline"}, token)[0].status == 303
    assert site.submit(f"/notes/{path}", {"text": "x"}, "wrong token")[0].status == 403
    assert site.submit("/notes/missing", {"text": "x"}, token)[0].status == 404
    reply = site.request("POST", f"/notes/{path}", "text=x", authorization="Bearer key-to-view", cookie="")[0]
    assert reply.status == 403


def test_experiments_are_compared_side_by_side(site):
    status, html = site.page("/compare?path=first&path=deep%2Fsecond&path=sweep%2Ftrials%2Fbatch-32-lr-0.05-seed-0")
    assert status == 200 and "Settings that differ" in html and "data-figure" in html
    differing = html.split("Settings that differ")[1].split("that are the same")[0]
    assert ">lr<" in differing and ">seed<" in differing and ">workload<" not in differing


def test_a_csv_holds_all_rows_of_a_filter(site):
    reply, body = site.request("GET", "/experiments.csv?filter=kind%3Drun&sort=path")
    rows = [*csv.DictReader(io.StringIO(body.decode()))]
    assert reply.getheader("content-disposition") and [row["path"] for row in rows][:2] == ["broken", "deep/second"]
    assert rows[1]["lr"] == "0.1" and rows[0]["problem"]


def test_a_plan_within_limits_is_shown_and_can_be_trained_with(site):
    status, html = site.page("/plan/sweep")
    assert status == 200 and "train with this plan" in html and "/new/train?workload=made-up&amp;plan=sweep" in html
    status, part = site.page("/plan/sweep?deadline=1h&price=3usd", hx_request="true")
    assert status == 200 and "<html" not in part and "dollars" in part and "batch-size=" in part
    assert "No plan" in site.page("/plan/sweep?deadline=1s")[1]
    status, part = site.page("/plan/sweep?deadline=soon", hx_request="true")
    assert "cannot parse the duration" in part and "train with" not in part


def test_programs_have_the_same(site):
    status, reply = site.api("GET", "/api/experiments?filter=kind%3Drun+lr%3E0&sort=lr", key="key-to-view")
    assert status == 200 and [row["path"] for row in reply["experiments"]] == ["first", "deep/second"]
    assert reply["total"] == 2 and reply["experiments"][0]["page"] == "/experiments/first/run.html"
    assert site.api("GET", "/api/experiments/first", key="key-to-view")[1]["lr"] == 0.05
    status, comparison = site.api("GET", "/api/comparison?path=first&path=deep%2Fsecond", key="key-to-view")
    differing = {row["name"] for row in comparison["settings"] if row["differs"]}
    assert status == 200 and {"lr", "seed"} <= differing
    status, plan = site.api("GET", "/api/plan/sweep?deadline=1h&price=3usd", key="key-to-view")
    assert status == 200 and plan["plan"]["dollars"] > 0 and plan["front"]
    note = {"text": "from a program", "add_tags": ["ci"]}
    assert site.api("POST", "/api/notes/first", note, "key-to-view")[0] == 403
    status, notes = site.api("POST", "/api/notes/first", note, "key-to-run")
    assert status == 200 and notes["tags"][0]["tag"] == "ci" and notes["notes"][0]["text"] == "from a program"
    half = {"text": "never written", "add_tags": ["good", "not good"]}
    assert site.api("POST", "/api/notes/first", half, "key-to-run")[0] == 400
    assert len(site.api("GET", "/api/notes/first", key="key-to-view")[1]["notes"]) == 1
    paths = site.api("GET", "/api/openapi.json", key="key-to-view")[1]["paths"]
    assert {"/api/experiments", "/api/plan/{name}", "/api/notes/{name}", "/api/comparison"} <= {*paths}


def test_the_client_has_a_method_for_each_endpoint(site):
    client = EquipoiseClient(site.url, "key-to-run")
    listed = client.list_experiments("kind=run lr>0", sort="lr", limit=1)
    assert listed["total"] == 2 and listed["experiments"][0]["path"] == "first"
    assert client.get_experiment("deep/second")["seed"] == 2
    assert client.compare_experiments(["first", "deep/second"])["paths"] == ["first", "deep/second"]
    assert client.write_note("sweep", "as expected", add_tags=["kept"])["tags"][0]["tag"] == "kept"
    assert client.get_notes("sweep")["notes"][0]["text"] == "as expected"
    assert client.get_plan("sweep", deadline="1h")["plan"]["workers"] >= 1
    with pytest.raises(EquipoiseError, match="cannot parse the duration"):
        client.get_plan("sweep", deadline="soon")


def test_plotly_is_sent_once_for_all_pages(site):
    html = site.page("/plan/sweep")[1]
    path = html.split('src="/figures/')[1].split('"')[0]
    reply, body = site.request("GET", f"/figures/{path}", accept_encoding="gzip")
    assert "immutable" in reply.getheader("cache-control") and len(body) < 1.6e6


def test_a_new_run_appears_without_a_restart(site, results):
    write_run(results / "newest", lr=0.7)
    for _ in range(600):
        reply = site.api("GET", "/api/experiments?filter=newest", key="key-to-view")[1]
        if reply["total"]:
            break
        threading.Event().wait(0.05)
    assert reply["experiments"][0]["lr"] == 0.7
