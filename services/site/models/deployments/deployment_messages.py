"""Bodies of the requests and replies of the site's API of models and deployments."""

from dataclasses import dataclass
from typing import Annotated

from msgspec import Meta

from services.site.models.deployments.deployment import Adaptation, BundleChange
from services.site.models.deployments.serve_config import DeploymentState

BundlePath = Annotated[
    str, Meta(min_length=1, max_length=1000, description="path of a bundle below the results folder")
]
CanaryShare = Annotated[float, Meta(gt=0, lt=1, description="fraction of the requests that the canary answers")]


@dataclass(frozen=True, kw_only=True)
class DeployBody:
    """Request to start a service of a bundle."""

    bundle: BundlePath
    name: Annotated[str | None, Meta(description="name of the deployment; that of the model if not given")] = None
    port: Annotated[
        Annotated[int, Meta(ge=1, le=65535)] | None, Meta(description="port on loopback; a free one if not given")
    ] = None
    replicas: Annotated[int, Meta(ge=1, le=64, description="number of replicas")] = 1
    requires_key: Annotated[bool, Meta(description="ask for an API key, which the site writes to a file")] = False


@dataclass(frozen=True, kw_only=True)
class CanaryBody:
    """Request to let a bundle answer a share of the requests."""

    bundle: BundlePath
    share: CanaryShare = 0.1


@dataclass(frozen=True, kw_only=True)
class PromoteBody:
    """Request to let a bundle answer all requests: the canary if none is named."""

    bundle: Annotated[str | None, Meta(description="bundle below the results folder; the canary if null")] = None


@dataclass(frozen=True, kw_only=True)
class RollBackBody:
    """Request to let the previous bundle answer again."""

    bundle: Annotated[
        str | None, Meta(description="previous bundle; another one is refused. Whichever it is if null")
    ] = None


@dataclass(frozen=True, kw_only=True)
class TrafficReply:
    """Requests for predictions over the last minute, or since the service was first looked at."""

    seconds: Annotated[float, Meta(description="length of the time that the figures are about")]
    requests_per_second: Annotated[float, Meta(description="requests per second")]
    median_ms: Annotated[float | None, Meta(description="median latency in milliseconds; null without requests")]
    p99_ms: Annotated[float | None, Meta(description="99th percentile of the latency in milliseconds")]
    refused: Annotated[float, Meta(description="share of the requests that were refused (4xx, 503)")]
    failed: Annotated[float, Meta(description="share of the requests that failed (5xx)")]
    total: Annotated[float, Meta(description="requests since the service started")]


@dataclass(frozen=True, kw_only=True)
class VerdictReply:
    """Drift verdict of a deployment in short; GET /drift of its service has the whole."""

    state: Annotated[str, Meta(description="ok, drift or unknown")]
    why: Annotated[str, Meta(description="reason in one sentence")] = ""
    cause: Annotated[str | None, Meta(description="cause of a drift")] = None
    since: Annotated[str | None, Meta(description="when the drift began, in UTC")] = None
    images: Annotated[int, Meta(description="requests answered")] = 0
    accuracy: Annotated[
        tuple[float, float, float] | None, Meta(description="estimated accuracy and the ends of its interval")
    ] = None
    conditions: Annotated[dict[str, float], Meta(description="share of the requests by known condition")]


@dataclass(frozen=True, kw_only=True)
class DeploymentReply:
    """Deployment with its state; what only the service knows is null while it does not answer."""

    name: Annotated[str, Meta(description="name of the deployment")]
    model: Annotated[str, Meta(description="name of the model")]
    url: Annotated[str, Meta(description="URL of the service on the site's machine")]
    state: Annotated[DeploymentState, Meta(description="running, starting, stopping, failed, or absent from Serve")]
    message: Annotated[str, Meta(description="reason of a state other than running")]
    bundle: Annotated[str, Meta(description="bundle that answers")]
    previous: Annotated[str | None, Meta(description="bundle that a roll-back returns to")]
    canary: Annotated[str | None, Meta(description="bundle that answers a share")]
    share: Annotated[float, Meta(description="fraction of the requests that the canary answers")]
    version: Annotated[str | None, Meta(description="version that answers now, as the service says")]
    not_loaded: Annotated[str | None, Meta(description="why the last bundles could not be loaded")]
    traffic: TrafficReply | None
    verdict: VerdictReply | None
    captures: Annotated[int, Meta(description="requests kept and not labelled yet")]
    labelled: Annotated[int, Meta(description="requests kept and labelled")]
    history: Annotated[list[BundleChange], Meta(description="changes of the bundles, the latest last")]
    adaptation: Adaptation | None


@dataclass(frozen=True, kw_only=True)
class DeploymentsReply:
    """All deployments of the site."""

    deployments: list[DeploymentReply]


@dataclass(frozen=True, kw_only=True)
class BundleReply:
    """Bundle below the results folder, with what its card says in short."""

    path: Annotated[str, Meta(description="path below the results folder")]
    model: Annotated[str | None, Meta(description="name of the model; null if the bundle cannot be read")]
    version: Annotated[str | None, Meta(description="first digits of its digest")]
    kind: Annotated[str | None, Meta(description="kind of data: image, table, text or boxes")]
    classes: Annotated[list[str], Meta(description="class names")]
    quality: Annotated[str, Meta(description="how well it does on the test split, with the interval of an accuracy")]
    engine: Annotated[str | None, Meta(description="engine that it is served with")]
    published: Annotated[str | None, Meta(description="date and time of the publication")]
    deployments: Annotated[list[str], Meta(description="deployments that it answers for, wholly or as canary")]
    problem: Annotated[str, Meta(description="why it cannot be read; empty if it can")]


@dataclass(frozen=True, kw_only=True)
class BundlesReply:
    """All bundles below the results folder, the latest first."""

    bundles: list[BundleReply]
