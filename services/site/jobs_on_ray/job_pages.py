"""Pages of the forms and of the jobs that were started with them."""

import asyncio
from collections.abc import Mapping
from dataclasses import dataclass, replace

from starlette.datastructures import FormData
from starlette.requests import Request
from starlette.responses import RedirectResponse, Response

from equipoise.errors import EquipoiseError
from services.site.jobs_on_ray.cluster_view import describe_cluster_use
from services.site.jobs_on_ray.command_forms import CommandForm, load_command_form
from services.site.jobs_on_ray.command_topics import LAYOUTS
from services.site.jobs_on_ray.form_arguments import SWITCH_OFF, SWITCH_ON, format_command_line
from services.site.jobs_on_ray.job_log import TAIL_BYTES
from services.site.jobs_on_ray.job_store import JobConflict, SubmittedJob
from services.site.jobs_on_ray.job_summary import JobSummary, list_home_lines, summarize_job
from services.site.jobs_on_ray.validation import check_form
from services.site.roles import Role
from services.site.site_parts import HomeLists, SiteContext
from services.site.site_routes import SiteRoute, action_route, page_route

JOBS_PER_PAGE = 50
MAX_PAGE_DIGITS = 6


@dataclass(frozen=True, kw_only=True)
class FormState:
    """A form with what somebody has filled in, and what is wrong with it."""

    form: CommandForm
    values: Mapping[str, str]
    arguments: tuple[str, ...]
    """of the command, as far as they can be built"""
    problem: str
    """what is wrong with the values; empty if nothing is"""

    @property
    def command_line(self) -> str:
        """The command that the form stands for; empty if its arguments cannot be built."""
        return format_command_line(self.form.command, self.arguments) if self.arguments else ""


class JobPages:
    """Handlers of /new and /jobs."""

    def __init__(self, site: SiteContext) -> None:
        self.site, self.desk = site, site.jobs

    def routes(self) -> list[SiteRoute]:
        """Return the routes of forms and jobs."""
        return [
            page_route("/new", self.get_commands),
            page_route("/new/{command}", self.get_form),
            action_route("/new/{command}", self.post_form, Role.RUN),
            action_route("/new/{command}/preview", self.post_preview, Role.RUN),
            page_route("/jobs", self.get_jobs),
            page_route("/jobs/{id}", self.get_job),
            page_route("/jobs/{id}/now", self.get_job_now),
            action_route("/jobs/{id}/stop", self.post_stop, Role.RUN),
            action_route("/jobs/{id}/resume", self.post_resume, Role.RUN),
        ]

    def list_home_items(self) -> HomeLists:
        """Return what the home page shows of jobs and of the cluster."""
        self.desk.refresh_jobs()
        return list_home_lines(self.desk, describe_cluster_use(self.site.ray))

    async def get_commands(self, request: Request) -> Response:
        """Answer GET /new: the commands that have a form."""
        return self.site.renderer.render_page(request, "new.html", layouts=LAYOUTS)

    async def get_form(self, request: Request) -> Response:
        """Answer GET /new/COMMAND: its form, filled with the values of the query."""
        form = await load_form(request)
        values = {name: text for name, text in request.query_params.items() if name in list_names(form)}
        is_empty = not values
        if "out" not in values:
            values = {"out": await asyncio.to_thread(self.propose_name, form.command), **values}
        state = await asyncio.to_thread(self.build_state, form, values)
        if is_empty:  # nobody has made a mistake yet
            state = replace(state, problem="")
        return self.render_form(request, state, 200)

    async def post_preview(self, request: Request) -> Response:
        """Answer POST /new/COMMAND/preview: the command line of what is filled in, and what is wrong with it."""
        form = await load_form(request)
        state = await asyncio.to_thread(self.build_state, form, read_values(await request.form()))
        return self.site.renderer.render_page(request, "form_preview.html", state=state)

    async def post_form(self, request: Request) -> Response:
        """Answer POST /new/COMMAND: submit the job and lead to its page, or show what is wrong."""
        form = await load_form(request)
        state = await asyncio.to_thread(self.build_state, form, read_values(await request.form()))
        if state.problem:
            return self.render_form(request, state, 400)
        try:
            viewer = request.state.viewer.name
            job = await asyncio.to_thread(self.desk.start_job, form.command, state.arguments, viewer)
        except JobConflict as conflict:  # two people with the same plan: the second is led to the job of the first
            return RedirectResponse(f"/jobs/{conflict.other.id}?led=1", 303)
        return RedirectResponse(f"/jobs/{job.id}", 303)

    async def get_jobs(self, request: Request) -> Response:
        """Answer GET /jobs: all jobs, the newest first."""
        page = parse_page_number(request.query_params.get("page", "1"))
        summaries, count = await asyncio.to_thread(self.list_summaries, page)
        return self.site.renderer.render_page(
            request, "jobs.html", jobs=summaries, page=page, is_last=page * JOBS_PER_PAGE >= count, count=count
        )

    async def get_job(self, request: Request) -> Response:
        """Answer GET /jobs/ID: a job with its log."""
        job, others = await asyncio.to_thread(self.load_job, request.path_params["id"])
        return self.site.renderer.render_page(
            request, "job.html", job=job, others=others, was_led="led" in request.query_params
        )

    async def get_job_now(self, request: Request) -> Response:
        """Answer GET /jobs/ID/now: the part of a job's page that changes."""
        job, _ = await asyncio.to_thread(self.load_job, request.path_params["id"])
        if request.query_params.get("version") == job.version:
            return Response(status_code=204)  # the page stays as it is, and its log where it was scrolled to
        return self.site.renderer.render_page(request, "job_now.html", job=job)

    async def post_stop(self, request: Request) -> Response:
        """Answer POST /jobs/ID/stop: ask the job to stop."""
        job = await asyncio.to_thread(self.desk.stop_job, request.path_params["id"])
        return RedirectResponse(f"/jobs/{job.id}", 303)

    async def post_resume(self, request: Request) -> Response:
        """Answer POST /jobs/ID/resume: submit the same command again."""
        job = await asyncio.to_thread(self.desk.find_job, request.path_params["id"])
        try:
            resumed = await asyncio.to_thread(self.desk.resume_job, job, request.state.viewer.name)
        except JobConflict as conflict:
            return RedirectResponse(f"/jobs/{conflict.other.id}?led=1", 303)
        return RedirectResponse(f"/jobs/{resumed.id}", 303)

    def build_state(self, form: CommandForm, values: Mapping[str, str]) -> FormState:
        """Check the values of a form with the command's own parser."""
        arguments, problem = check_form(form, values, self.site.settings.results)
        return FormState(form=form, values=values, arguments=tuple(arguments), problem=problem)

    def render_form(self, request: Request, state: FormState, status: int) -> Response:
        """Render a form with what is filled in."""
        return self.site.renderer.render_page(request, "form.html", status, state=state, form=state.form)

    def propose_name(self, command: str) -> str:
        """Propose the name of a new folder below the results."""
        names = {path.name for path in self.site.settings.results.iterdir()}
        return next(name for number in range(1, len(names) + 2) if (name := f"{command}-{number}") not in names)

    def list_summaries(self, page: int) -> tuple[list[JobSummary], int]:
        """Return the jobs of a page of the list, and how many there are in all."""
        self.desk.refresh_jobs()
        jobs = self.desk.store.list_jobs(JOBS_PER_PAGE, (page - 1) * JOBS_PER_PAGE)
        return [summarize_job(job, self.desk) for job in jobs], self.desk.store.count_jobs()

    def load_job(self, job_id: str) -> tuple[JobSummary, list[SubmittedJob]]:
        """Return a job with its log, and the other jobs of its folder."""
        job = self.desk.find_job(job_id)
        others = [other for other in self.desk.store.list_jobs_of_folder(job.out) if job.out and other.id != job.id]
        return summarize_job(job, self.desk, TAIL_BYTES), others


async def load_form(request: Request) -> CommandForm:
    """Return the form that a request names; the first call of all waits until the commands are imported."""
    command = request.path_params["command"]
    if command not in LAYOUTS:
        names = ", ".join(LAYOUTS)
        raise EquipoiseError("path-missing", f"cannot find a form of {command[:60]!r}", f"there are: {names}")
    return await asyncio.to_thread(load_command_form, command)


def list_names(form: CommandForm) -> set[str]:
    """Return the names of a form's fields."""
    return {field.name for field in form.fields}


def read_values(fields: FormData) -> dict[str, str]:
    """Return the values of a posted form; a switch sends `off`, and `on` behind it if it is set."""
    values = {name: [text for text in fields.getlist(name) if isinstance(text, str)] for name in fields}
    values.pop("csrf_token", None)
    return {
        name: SWITCH_ON if texts == [SWITCH_OFF, SWITCH_ON] else texts[-1] for name, texts in values.items() if texts
    }


def parse_page_number(text: str) -> int:
    """Return the number of a page of a list; the first one for anything else."""
    is_number = text.isascii() and text.isdigit() and len(text) <= MAX_PAGE_DIGITS
    return max(int(text), 1) if is_number else 1
