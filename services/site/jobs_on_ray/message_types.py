"""Bodies of the API's requests and replies about jobs."""

from typing import Annotated, Literal

from msgspec import Meta, Struct

OptionValue = str | int | float | bool | list[str | int | float] | None


class JobRequest(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Command to start as a job."""

    command: Annotated[str, Meta(description="sweep, train, plan, publish, check, adapt or profile")]
    options: Annotated[
        dict[str, OptionValue],
        Meta(description="its options by name without dashes, such as batch-size; out is a name below the results"),
    ]


class JobReply(Struct, frozen=True, kw_only=True):
    """A job as it is now."""

    id: str
    command: str
    command_line: Annotated[str, Meta(description="the same as one would type it")]
    out: Annotated[str, Meta(description="folder below the results that it writes to")]
    status: Literal["submitting", "waiting", "running", "stopping", "finished", "failed", "stopped", "lost"]
    exit_status: Annotated[int | None, Meta(description="of the command, once it has ended")]
    started_by: str
    submitted: Annotated[float, Meta(description="seconds since 1970")]
    seconds: Annotated[float, Meta(description="how long it has run, or ran")]
    seconds_left: Annotated[float | None, Meta(description="that it takes at most, if it says so")]
    progress: Annotated[str, Meta(description="last line of its log")]
    failure: Annotated[str, Meta(description="sentence with which it failed, with what to do; empty unless it failed")]


class JobListReply(Struct, frozen=True, kw_only=True):
    """Jobs of the site, the newest first."""

    jobs: list[JobReply]
    count: Annotated[int, Meta(description="how many there are in all")]


class LogReply(Struct, frozen=True, kw_only=True):
    """Last lines of a job's log."""

    lines: list[str]
    is_whole: Annotated[bool, Meta(description="false if the log has lines before them")]


class OptionReply(Struct, frozen=True, kw_only=True):
    """Option that a command takes."""

    name: str
    help: str
    default: Annotated[str, Meta(description="what holds if it is not given; empty for nothing")]
    choices: list[str]
    required: bool


class CommandReply(Struct, frozen=True, kw_only=True):
    """Command that can be started as a job."""

    command: str
    summary: str
    options: list[OptionReply]


class ClusterReply(Struct, frozen=True, kw_only=True):
    """Nodes and slots of the Ray on which jobs run."""

    nodes: int
    slots: float
    busy_slots: float
    unit: Annotated[str, Meta(description="what a slot is: CPU or GPU")]
    problem: Annotated[str, Meta(description="why nothing is known; empty if something is")]
