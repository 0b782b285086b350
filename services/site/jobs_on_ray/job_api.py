"""Endpoints of the API about commands, jobs and the cluster."""

import asyncio
import shlex

from starlette.requests import Request
from starlette.responses import Response

from equipoise.errors import EquipoiseError
from equipoise.storage.json_decoding import decode_json_bytes
from services.http.query_numbers import parse_whole_number
from services.http.responses import typed_response
from services.site.jobs_on_ray.cluster_view import describe_cluster_use
from services.site.jobs_on_ray.command_forms import CommandForm, load_command_form
from services.site.jobs_on_ray.command_topics import LAYOUTS
from services.site.jobs_on_ray.form_arguments import SWITCH_OFF, SWITCH_ON, build_arguments
from services.site.jobs_on_ray.job_desk import MAX_LOG_LINES
from services.site.jobs_on_ray.job_store import SubmittedJob
from services.site.jobs_on_ray.job_summary import summarize_job
from services.site.jobs_on_ray.message_types import (
    ClusterReply,
    CommandReply,
    JobListReply,
    JobReply,
    JobRequest,
    LogReply,
    OptionReply,
    OptionValue,
)
from services.site.jobs_on_ray.validation import parse_arguments
from services.site.roles import Role
from services.site.site_parts import SiteContext
from services.site.site_routes import ApiDescription, SiteRoute, api_route

MAX_LISTED_JOBS = 500


class JobApi:
    """Handlers of /api/commands, /api/jobs and /api/cluster."""

    def __init__(self, site: SiteContext) -> None:
        self.site, self.desk = site, site.jobs

    def routes(self) -> list[SiteRoute]:
        """Return the routes of the endpoints, with their descriptions."""
        job = ApiDescription(summary="a job", returns="the job as it is now", reply=JobReply, rejections=(404,))
        return [
            api_route("GET /api/commands", self.get_commands, Role.VIEW, ApiDescription(
                summary="the commands that can be started, with their options",
                returns="all of them", reply=list[CommandReply])),
            api_route("POST /api/jobs", self.post_job, Role.RUN, ApiDescription(
                summary="start a command as a job", returns="the job", reply=JobReply, body=JobRequest,
                rejections=(400, 409, 503), status=201)),
            api_route("GET /api/jobs", self.get_jobs, Role.VIEW, ApiDescription(
                summary="the jobs, the newest first", returns="some of them, and how many there are",
                reply=JobListReply, query={"limit": f"at most {MAX_LISTED_JOBS}; 50 if left out"}, rejections=(400,))),
            api_route("GET /api/jobs/{id}", self.get_job, Role.VIEW, job),
            api_route("GET /api/jobs/{id}/log", self.get_log, Role.VIEW, ApiDescription(
                summary="the end of a job's log", returns="its last lines", reply=LogReply, rejections=(400, 404),
                query={"lines": f"at most {MAX_LOG_LINES}; so many if left out"})),
            api_route("POST /api/jobs/{id}/stop", self.post_stop, Role.RUN, ApiDescription(
                summary="stop a job, which writes a checkpoint first", returns="the job", reply=JobReply,
                rejections=(404, 409, 503))),
            api_route("POST /api/jobs/{id}/resume", self.post_resume, Role.RUN, ApiDescription(
                summary="start the command of a job again, which goes on where it was stopped",
                returns="the new job", reply=JobReply, rejections=(404, 409, 503), status=201)),
            api_route("GET /api/cluster", self.get_cluster, Role.VIEW, ApiDescription(
                summary="nodes and slots of the cluster", returns="how many there are, and how many are busy",
                reply=ClusterReply)),
        ]  # fmt: skip

    async def get_commands(self, _: Request) -> Response:
        """Answer GET /api/commands: all commands with their options."""
        forms = [await asyncio.to_thread(load_command_form, command) for command in LAYOUTS]
        return typed_response([describe_command(form) for form in forms])

    async def post_job(self, request: Request) -> Response:
        """Answer POST /api/jobs: start a command, or say why not in the command's own words."""
        body = decode_json_bytes(
            await request.body(), JobRequest, code="option-format", problem="cannot read the job in the request"
        )
        job = await asyncio.to_thread(self.start_job, body, request.state.viewer.name)
        return typed_response(await asyncio.to_thread(self.describe_job, job), 201)

    async def get_jobs(self, request: Request) -> Response:
        """Answer GET /api/jobs: the newest jobs."""
        limit = parse_whole_number("limit", request.query_params.get("limit", "50"), 1, MAX_LISTED_JOBS)
        return typed_response(await asyncio.to_thread(self.list_jobs, limit))

    async def get_job(self, request: Request) -> Response:
        """Answer GET /api/jobs/ID: a job as it is now."""
        job = await asyncio.to_thread(self.desk.find_job, request.path_params["id"])
        return typed_response(await asyncio.to_thread(self.describe_job, job))

    async def get_log(self, request: Request) -> Response:
        """Answer GET /api/jobs/ID/log: the last lines of its log."""
        lines = parse_whole_number("lines", request.query_params.get("lines", str(MAX_LOG_LINES)), 1, MAX_LOG_LINES)
        job = await asyncio.to_thread(self.desk.find_job, request.path_params["id"])
        tail = await asyncio.to_thread(self.desk.read_log, job.id, lines)
        return typed_response(LogReply(lines=[*tail.lines], is_whole=tail.is_whole))

    async def post_stop(self, request: Request) -> Response:
        """Answer POST /api/jobs/ID/stop: ask the job to stop."""
        job = await asyncio.to_thread(self.desk.stop_job, request.path_params["id"])
        return typed_response(await asyncio.to_thread(self.describe_job, job))

    async def post_resume(self, request: Request) -> Response:
        """Answer POST /api/jobs/ID/resume: submit the same command again."""
        job = await asyncio.to_thread(self.desk.find_job, request.path_params["id"])
        resumed = await asyncio.to_thread(self.desk.resume_job, job, request.state.viewer.name)
        return typed_response(await asyncio.to_thread(self.describe_job, resumed), 201)

    async def get_cluster(self, _: Request) -> Response:
        """Answer GET /api/cluster: nodes and slots."""
        use = await asyncio.to_thread(describe_cluster_use, self.site.ray)
        return typed_response(
            ClusterReply(
                nodes=use.nodes, slots=use.slots, busy_slots=use.busy_slots, unit=use.unit, problem=use.problem
            )
        )

    def start_job(self, body: JobRequest, started_by: str) -> SubmittedJob:
        """Check the options of a request by the command's own parser, and submit the job."""
        if body.command not in LAYOUTS:
            raise EquipoiseError(
                "option-choice", f"command must be one of {', '.join(LAYOUTS)}, got {body.command[:60]!r}"
            )
        form = load_command_form(body.command)
        values = {name: format_value(value) for name, value in body.options.items()}
        arguments = build_arguments(form, values, self.site.settings.results)
        parse_arguments(form, arguments)
        return self.desk.start_job(body.command, arguments, started_by)

    def list_jobs(self, limit: int) -> JobListReply:
        """Return the newest jobs, and how many there are in all."""
        self.desk.refresh_jobs()
        jobs = [self.describe_job(job) for job in self.desk.store.list_jobs(limit)]
        return JobListReply(jobs=jobs, count=self.desk.store.count_jobs())

    def describe_job(self, job: SubmittedJob) -> JobReply:
        """Describe a job for the API."""
        summary = summarize_job(job, self.desk)
        return JobReply(
            id=job.id,
            command=job.command,
            command_line=summary.command_line,
            out=summary.out_name,
            status=job.status,  # type: ignore[arg-type] # the store holds no others
            exit_status=job.exit_status,
            started_by=job.started_by,
            submitted=job.submitted,
            seconds=summary.seconds,
            seconds_left=summary.log.seconds_left if job.is_active else None,
            progress=summary.progress,
            failure=summary.failure,
        )


def describe_command(form: CommandForm) -> CommandReply:
    """Describe a command and its options for the API."""
    return CommandReply(
        command=form.command,
        summary=form.layout.lead,
        options=[
            OptionReply(
                name=field.name,
                help=field.help,
                default=field.default,
                choices=[*field.option.choices],
                required=field.is_required,
            )
            for field in form.fields
        ],
    )


def format_value(value: OptionValue) -> str:
    """Return the value of an option as a form would send it; nothing for None."""
    if isinstance(value, bool):
        return SWITCH_ON if value else SWITCH_OFF
    if isinstance(value, list):
        return shlex.join(map(str, value))
    return "" if value is None else str(value)
