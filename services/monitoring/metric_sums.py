"""Sums over the metrics of a service, as pages show them, from its registry or from what its /metrics answers."""

from collections.abc import Iterable
from typing import get_args

from prometheus_client import Metric

from dashboards.metrics_snapshot import MetricName

PREDICTION_PATHS = ("/predict", "/models/{name}/predict", "/v2/models/{name}/infer")
"""paths whose requests pages show; the requests of the pages themselves are left out"""


def aggregate_samples(families: Iterable[Metric]) -> dict[MetricName, dict[str, float]]:
    """Sum the metrics that pages show, by kind and then by label."""
    totals: dict[MetricName, dict[str, float]] = {name: {} for name in get_args(MetricName)}
    for sample in (sample for family in families for sample in family.samples):
        labels, name = sample.labels, sample.name.removeprefix("equipoise_")
        is_prediction = labels.get("path") in PREDICTION_PATHS
        if name == "requests_total" and is_prediction:
            count = totals["requests"], labels["status"]
        elif name == "request_seconds_bucket" and is_prediction:
            count = totals["seconds"], labels["le"]
        elif name == "refused_total":
            count = totals["refused"], labels["reason"]
        elif name == "pictures_total":
            count = totals["pictures"], f"{labels['model']} {labels['version']}"
        elif name == "batch_pictures_bucket":
            count = totals["batches"], labels["le"]
        else:
            continue
        counts, label = count
        counts[label] = counts.get(label, 0.0) + sample.value
    return totals
