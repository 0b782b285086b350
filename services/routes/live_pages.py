"""Live pages of runs, sweeps and checks: built on each request from the files of an experiment."""

from dataclasses import replace
from pathlib import Path

from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import HTMLResponse, Response

from dashboards.experiments import READ_ERRORS, experiment_at, mark_unreadable
from dashboards.page import Page, build_live_update, render_html
from dashboards.reports import build_page, run_page
from equipoise.errors import EquipoiseError
from equipoise.runs.folder import read_record
from services.http.errors import page_cannot_be_shown
from services.http.responses import compress_response, json_response
from services.routes.status_page import CONTENT_SECURITY_POLICY

TRIALS_FOLDER = "trials"  # of a sweep, whose files are records of one trial each


def build_experiment_page(root: Path, name: str) -> Page:
    """Build the page of an experiment below a folder by its name without the suffix, such as `first/run`.

    Raise the 404 for a page that no experiment has, and the 409 for an experiment that cannot be shown.
    """
    if Path(name).parent.name == TRIALS_FOLDER:
        return build_trial_page(root, name)
    experiment = experiment_at(root, Path(name).parent)
    if experiment is None or name not in experiment.page_names(root):
        raise HTTPException(404)
    if experiment.problem:
        raise page_cannot_be_shown(name, experiment.problem)
    try:
        return build_page(experiment, name.rpartition("/")[2])
    except READ_ERRORS as error:
        raise page_cannot_be_shown(name, mark_unreadable(experiment, error).problem) from None


def build_trial_page(root: Path, name: str) -> Page:
    """Build the page of a trial of a sweep, from its record."""
    sweep = experiment_at(root, Path(name).parent.parent)
    file = root / f"{name}.json"
    if sweep is None or sweep.kind != "sweep" or not file.is_file() or file.is_symlink():
        raise HTTPException(404)
    try:
        return run_page(read_record(file))
    except (*READ_ERRORS, OSError) as error:
        problem = str(error) if isinstance(error, EquipoiseError) else f"it is damaged ({type(error).__name__})"
        raise page_cannot_be_shown(name, problem) from None


def answer_live_page(page: Page, live_url: str, request: Request) -> Response:
    """Return a page as HTML, or for its `/live` URL the JSON that updates an open page."""
    if request.url.path.endswith("/live"):
        return compress_response(json_response(build_live_update(page)), request)
    headers = {"content-security-policy": CONTENT_SECURITY_POLICY, "cache-control": "no-store"}
    return HTMLResponse(render_html(replace(page, live_url=live_url)), headers=headers)
