"""Traffic of a service from its own metrics: rate, latency and errors between two looks."""

import pytest
from prometheus_client import CollectorRegistry, Counter, Histogram, generate_latest

from services.site.models.deployments.service_traffic import WINDOW_SECONDS, TrafficWindow


class Metrics:
    """Metrics by the names that a service gives them."""

    def __init__(self):
        self.registry = CollectorRegistry()
        self.requests = Counter("equipoise_requests", "-", ["path", "status"], registry=self.registry)
        buckets = (0.001, 0.002, 0.005, 0.01)
        self.seconds = Histogram("equipoise_request_seconds", "-", ["path"], buckets=buckets, registry=self.registry)

    def answer(self, count, status=200, seconds=0.004, path="/predict"):
        self.requests.labels(path, status).inc(count)
        for _ in range(count):
            self.seconds.labels(path).observe(seconds)

    def text(self):
        return generate_latest(self.registry).decode()


def test_rate_latency_and_errors_are_those_since_the_first_look():
    metrics, window = Metrics(), TrafficWindow()
    metrics.answer(50)
    first = window.add_metrics(metrics.text(), 100.0)
    assert (first.seconds, first.total, first.median_ms) == (0.0, 50.0, None)
    metrics.answer(80)
    metrics.answer(15, status=429)
    metrics.answer(5, status=500)
    metrics.answer(1000, path="/metrics")
    second = window.add_metrics(metrics.text(), 110.0)
    assert (second.seconds, second.requests_per_second, second.total) == (10.0, 10.0, 150.0)
    assert second.refused == pytest.approx(0.15) and second.failed == pytest.approx(0.05)
    assert 2 < second.median_ms < second.p99_ms <= 5


def test_looks_older_than_a_minute_are_forgotten():
    metrics, window = Metrics(), TrafficWindow()
    metrics.answer(600)
    for second in range(0, 200, 10):
        reply = window.add_metrics(metrics.text(), float(second))
    assert reply.seconds == WINDOW_SECONDS and reply.requests_per_second == 0.0
    assert len(window.snapshots) == WINDOW_SECONDS / 10 + 1


def test_a_service_that_was_restarted_counts_from_zero():
    window = TrafficWindow()
    before, after = Metrics(), Metrics()
    before.answer(100)
    after.answer(20)
    window.add_metrics(before.text(), 0.0)
    assert window.add_metrics(after.text(), 10.0).requests_per_second == 2.0
