"""What of the deployments waits for a person: alarms, captures to label, adapted models behind their gate."""

from collections.abc import Mapping, Sequence

from dashboards.theme import format_percent
from equipoise.formatting import format_number, pluralize
from services.site.models.adaptation_jobs import AdaptationReply
from services.site.models.deployments.deployment_states import DeploymentLook
from services.site.site_parts import HomeItem

MIN_LABELS = 30
"""labels from which an adaptation can use them where the cause does not say what changed"""
ADAPTATION_TEXTS = {
    "passed": "an adapted model passed its gate: compare it, then promote or dismiss it",
    "refused": "the gate refused an adapted model: see why",
    "ended": "the adaptation ended without a model: see what it needs",
}


def list_person_tasks(
    looks: Sequence[DeploymentLook], adaptations: Mapping[str, AdaptationReply | None]
) -> list[HomeItem]:
    """Return what waits for a person, deployment by deployment."""
    return [item for look in looks for item in list_deployment_tasks(look, adaptations.get(look.deployment.name))]


def list_deployment_tasks(look: DeploymentLook, adaptation: AdaptationReply | None) -> list[HomeItem]:
    """Return what of one deployment waits for a person, the most urgent first."""
    name, verdict = look.deployment.name, look.service.verdict
    items = []
    if look.serve.state == "failed":
        items.append(HomeItem(text=f"{name} does not run", href=f"/models/{name}", detail=look.serve.message))
    if look.service.models and look.service.models.not_loaded:
        detail = look.service.models.not_loaded
        items.append(HomeItem(text=f"{name} could not load a bundle", href=f"/models/{name}", detail=detail))
    has_alarm = verdict is not None and verdict.state == "drift"
    if adaptation is not None and (text := ADAPTATION_TEXTS.get(adaptation.state)):
        items.append(HomeItem(text=f"{name}: {text}", href=f"/models/{name}#adaptation"))
    elif has_alarm and adaptation is None:
        cause = verdict.cause if verdict else ""
        detail = f"{pluralize(look.labelled, 'label')} so far"
        items.append(
            HomeItem(text=f"{name}: answer its drift ({cause})", href=f"/models/{name}#adaptation", detail=detail)
        )
    if has_alarm and look.captures and look.labelled < MIN_LABELS:
        detail = f"{look.captures} wait, {look.labelled} labelled"
        items.append(HomeItem(text=f"{name}: label captures", href=f"/labels/{name}/", detail=detail))
    return items


def describe_served_model(look: DeploymentLook) -> HomeItem:
    """Return the line of a served model: its rate, latency, errors and verdict."""
    traffic, verdict = look.service.traffic, look.service.verdict
    parts: list[str] = [look.serve.state]
    if traffic is not None and traffic.seconds > 0:
        parts.append(f"{format_number(traffic.requests_per_second)} requests/s")
        if traffic.median_ms is not None:
            parts.append(f"{format_number(traffic.median_ms)} ms")
        if traffic.failed:
            parts.append(f"{format_percent(traffic.failed)} failed")
    if verdict is not None:
        parts.append(f"drift: {verdict.cause}" if verdict.state == "drift" else f"verdict {verdict.state}")
    return HomeItem(text=look.deployment.name, href=f"/models/{look.deployment.name}", detail=", ".join(parts))
