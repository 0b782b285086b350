"""Page of the environment variables that the code reads or sets; a test finds them in the sources."""

from dataclasses import dataclass

from docs.generate.markdown import MISSING, build_page, format_code, format_table
from equipoise.storage.retry import DEFAULT_RETRY_SECONDS
from jobs.ray_tune.tuner import STOP_SECONDS

VARIABLES_INTRODUCTION = """\
Variables whose names begin with `EQUIPOISE_` are the project's own. All others belong to Ray, to the stores and to the
libraries below it. Variables are read on the machine on which a process runs: on a cluster, set them on every node."""


@dataclass(frozen=True)
class EnvironmentVariable:
    """Environment variable: its value by default, or the one that is set, and what it does."""

    name: str
    value: str
    meaning: str
    in_sources: bool = True
    """false for variables that only libraries read"""


GROUPS: dict[str, tuple[str, list[EnvironmentVariable]]] = {
    "Equipoise": (
        "",
        [
            EnvironmentVariable(
                "EQUIPOISE_STORE_RETRY_SECONDS",
                f"{DEFAULT_RETRY_SECONDS:g}",
                "Seconds for which a command retries while an object store does not answer; 0 gives up at once.",
            ),
            EnvironmentVariable(
                "EQUIPOISE_CACHE_DIR",
                "~/.cache/equipoise",
                "Folder on each machine for copies of data behind a URL. A copy may be removed while no run reads it.",
            ),
            EnvironmentVariable(
                "XDG_CACHE_HOME", "~/.cache", "Folder of the user's caches, in which the one above lies by default."
            ),
            EnvironmentVariable(
                "EQUIPOISE_COMMAND_ID",
                "",
                "Mark that Equipoise sets for a training program of `--command`, by which it finds and ends all"
                " processes that the program has started. Do not set it.",
            ),
            EnvironmentVariable(
                "RANK", "0", "Number of a training process, as torchrun sets it: only 0 prints reports of progress."
            ),
        ],
    ),
    "Object stores": (
        "Credentials are never part of a URL. They come from the role of the machine, from files such as"
        " `~/.aws/credentials`, or from these variables on the machine on which a process runs; a submitted job does"
        " not bring them along.",
        [
            EnvironmentVariable("AWS_ACCESS_KEY_ID", "", "Key for `s3://` URLs.", in_sources=False),
            EnvironmentVariable("AWS_SECRET_ACCESS_KEY", "", "Secret of that key.", in_sources=False),
            EnvironmentVariable(
                "AWS_ENDPOINT_URL", "", "Address of an S3 server other than Amazon's.", in_sources=False
            ),
        ],
    ),
    "Behind a proxy": (
        "",
        [
            EnvironmentVariable(
                "FORWARDED_ALLOW_IPS",
                "",
                "Addresses of proxies, with commas between them, that may tell a replica who the client is, for its"
                " access log. Without it no such header is believed.",
            )
        ],
    ),
    "Joining a Ray cluster": (
        "A command joins the Ray that these name or that runs on this machine, and starts one of its own otherwise. Its"
        " own listens on loopback alone and takes jobs from nobody else: the command sets `RAY_AUTH_MODE`,"
        " `RAY_AUTH_TOKEN` and `RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER` for it.",
        [
            EnvironmentVariable("RAY_ADDRESS", "", "Address of the cluster to join. Ray sets it for a submitted job."),
            EnvironmentVariable("RAY_API_SERVER_ADDRESS", "", "Address to which `ray job submit` sends jobs."),
            EnvironmentVariable("RAY_AUTH_MODE", "", "`token`: whoever calls Ray must have the token."),
            EnvironmentVariable("RAY_AUTH_TOKEN", "", "The token itself; otherwise it is read from a file."),
            EnvironmentVariable(
                "RAY_AUTH_TOKEN_PATH", "~/.ray/auth_token", "File with the token, readable by its owner only."
            ),
            EnvironmentVariable(
                "RAY_JOB_STOP_WAIT_TIME_S",
                "3",
                "Seconds between SIGTERM and SIGKILL for a job that is stopped; 60 on the Ray of `equipoise up`.",
            ),
            EnvironmentVariable(
                "RAY_TMPDIR", "", "Folder in which Ray keeps its sessions, and in which a running one is found."
            ),
            EnvironmentVariable(
                "RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER",
                "",
                "`0` makes Ray take loopback as the address of this machine, on Linux too in spite of its name.",
            ),
        ],
    ),
    "Set unless you set them": (
        "The value is what Equipoise sets; one of your own holds.",
        [
            EnvironmentVariable("RAY_USAGE_STATS_ENABLED", "0", "Ray sends no usage statistics to its makers."),
            EnvironmentVariable("ORT_DISABLE_TELEMETRY", "1", "onnxruntime reports no loaded models to its vendor."),
            EnvironmentVariable("RAY_worker_niceness", "0", "Replicas run at normal priority; Ray would lower it."),
            EnvironmentVariable(
                "RAY_TRAIN_HEALTH_CHECK_INTERVAL_S",
                "0.2",
                "Seconds between two looks at the workers, at which their reports are passed on. On a cluster it must"
                " be set where the head is started.",
            ),
            EnvironmentVariable(
                "RAY_TRAIN_ENABLE_PREEMPTION_WATCHER",
                "0",
                "No watch for nodes about to be preempted, where there is only one node.",
            ),
            EnvironmentVariable("RAY_AIR_NEW_OUTPUT", "0", "Ray Tune prints no table of its own during a sweep."),
            EnvironmentVariable(
                "TUNE_DISABLE_AUTO_CALLBACK_LOGGERS", "1", "Ray Tune writes no log files for each trial."
            ),
            EnvironmentVariable(
                "TUNE_GLOBAL_CHECKPOINT_S", "inf", "Ray Tune keeps no state: the records of trials are the state."
            ),
            EnvironmentVariable("TUNE_DISABLE_SIGINT_HANDLER", "1", "Ctrl-C ends the sweep, not only its search."),
            EnvironmentVariable(
                "TUNE_FORCE_TRIAL_CLEANUP_S",
                str(STOP_SECONDS),
                "Seconds after which a trial that does not stop is ended.",
            ),
        ],
    ),
    "Always set": (
        "Equipoise sets these itself, whatever their value was before.",
        [
            EnvironmentVariable(
                "RAY_TRAIN_WORKER_GROUP_START_TIMEOUT_S",
                "10, 60 or 600",
                "Seconds to wait for the slots of a worker group: 10 if it may continue with fewer workers, 600 on an"
                " autoscaling cluster, 60 otherwise.",
            ),
            EnvironmentVariable("OMP_NUM_THREADS", "1", "Threads of a replica of the service, which computes on one."),
            EnvironmentVariable(
                "PROMETHEUS_MULTIPROC_DIR", "", "Folder in which the replicas of a service share their metrics."
            ),
            EnvironmentVariable(
                "MASTER_ADDR", "", "Address of the first worker, set by Ray Train and read by the others."
            ),
        ],
    ),
    "Inside a cluster on this machine": (
        "`equipoise local-cluster` sets these for the head and the nodes that it starts. They are of no use elsewhere.",
        [
            EnvironmentVariable("RAY_FAKE_CLUSTER", "1", "Lets Ray's provider for nodes on this machine start."),
            EnvironmentVariable(
                "RAY_enable_autoscaler_v2", "1", "Version of the autoscaler, the same as that of `ray up`."
            ),
            EnvironmentVariable("RAY_CLOUD_INSTANCE_ID", "", "Name by which the autoscaler knows a node."),
            EnvironmentVariable("RAY_NODE_TYPE_NAME", "", "Type of a node in the cluster file."),
            EnvironmentVariable("RAY_OVERRIDE_NODE_ID_FOR_TESTING", "", "Id of a node, the same as its name."),
            EnvironmentVariable(
                "AUTOSCALER_UPDATE_INTERVAL_S", "1", "Seconds between two decisions of the autoscaler."
            ),
            EnvironmentVariable("PYTHONPATH", "", "Folder in which the autoscaler finds the provider."),
            EnvironmentVariable("PATH", "", "Begins with the folder of this Python, for commands of submitted jobs."),
        ],
    ),
}
"""introduction and variables of each section"""


def build_environment_page() -> str:
    """Build the page of all variables, docs/reference/environment.md."""
    sections = [
        (
            f"## {title}",
            text,
            format_table(
                ("variable", "value" if "set" in title.lower() or "Inside" in title else "default", "meaning"),
                [
                    (format_code(row.name), format_code(row.value) if row.value else MISSING, row.meaning)
                    for row in rows
                ],
            ),
        )
        for title, (text, rows) in GROUPS.items()
    ]
    return build_page(
        "Environment variables", VARIABLES_INTRODUCTION, *(block for section in sections for block in section)
    )


def list_variables() -> list[EnvironmentVariable]:
    """List the variables of all sections."""
    return [variable for _, variables in GROUPS.values() for variable in variables]
