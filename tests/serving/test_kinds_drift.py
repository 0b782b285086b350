"""Drift of rows and texts on the running service: clean streams, a moved column, another language, a killed monitor."""

import json
import os
import signal
import time

import numpy as np
import pytest

from equipoise.bundle.bundle import load_bundle
from equipoise.drift.profiling.bundle_profile import load_bundle_profile
from equipoise.workloads import load_workload
from jobs.cluster.processes import wait_until
from services.limits import Limits
from services.monitoring.batch_features import extract_batch_features
from services.serving.inference import InferenceRequest
from services.serving.kinds.table_kind import EncodedRows, TableKind
from services.serving.model_versions import LoadedVersion
from tests.serving.conftest import FRIEDMAN_COLUMNS
from tests.support.ray_cluster import list_descendants
from tests.support.tables import friedman_table

GERMAN = (
    "Gestern Abend gingen wir noch lange durch die Stadt, und als es dunkel wurde, kehrten wir in ein kleines Wirtshaus"
    " ein. Dort saßen einige Leute am Kamin, die von ihrer Reise erzählten und sich wunderten, wie früh es in diesem"
    " Jahr kalt geworden war. Niemand wollte als Erster aufbrechen, denn draußen fiel schon der Schnee. "
)


def list_rows(count, seed, **shifts):
    """Return rows of Friedman's problem; some columns lie higher by so many standard deviations."""
    table = friedman_table(count, seed)[FRIEDMAN_COLUMNS[:-1]]
    for name, deviations in shifts.items():
        table[name] += deviations * 12**-0.5
    return table.to_dict("records")


def cut_texts(text, count, seed):
    """Return pieces of a text, of 20 to 120 characters."""
    rng = np.random.default_rng(seed)
    starts, lengths = rng.integers(0, len(text) - 120, count), rng.integers(20, 121, count)
    return [text[start : start + length] for start, length in zip(starts, lengths, strict=True)]


def ask(service, model, field, contents):
    for content in contents:
        service.request_json("POST", f"/models/{model}/predict", {field: content}, content_type="application/json")


def wait_for_verdict(service, model, min_examples):
    """Return the verdict on a model as soon as the monitor has counted so many of its examples."""

    def read_verdict():
        status, _, body = service.request("GET", f"/drift?model={model}")
        assert status in (200, 503)  # while the monitor restarts
        verdict = json.loads(body)
        return verdict.get("images", 0) >= min_examples and verdict

    return wait_until(read_verdict, 60)


def wait_for_late_reports(service, model):
    """Return how many examples of a model were counted, once their number has not changed for two seconds."""
    counts = [-1, wait_for_verdict(service, model, 1)["images"]]
    while counts[-1] != counts[-2]:
        time.sleep(2)  # nothing says that no report is still to come; a replica sends two a second
        counts.append(wait_for_verdict(service, model, 1)["images"])
    return counts[-1]


@pytest.fixture(scope="module")
def read_play(kind_bundles):
    """Text of the reference split of the language model."""
    bundle = load_bundle(kind_bundles["plays"])
    workload = load_workload(bundle.manifest.decode_config())
    return "".join(np.array([*workload.vocabulary.characters, "?"])[workload.reference.inputs.flatten().numpy()])


def test_clean_rows_are_ok_and_a_moved_column_is_named(mixed_service, cluster, webhook):
    webhook.messages.clear()
    mixed_service.request_json("POST", "/drift/reset?model=friedman")
    ask(mixed_service, "friedman", "row", list_rows(320, 11))
    verdict = wait_for_verdict(mixed_service, "friedman", 320)
    assert verdict["state"] == "ok" and verdict["why"].endswith("rows look like the reference")
    ask(mixed_service, "friedman", "row", list_rows(480, 12, x4=1.0))
    verdict = wait_for_verdict(mixed_service, "friedman", 800)
    assert (verdict["state"], verdict["cause"]) == ("drift", "column x4"), verdict["why"]
    assert verdict["effects"][0]["low"] - 0.2 < 1.0 < verdict["effects"][0]["high"] + 0.2
    wait_until(lambda: webhook.messages, 20)
    assert [message["cause"] for message in webhook.messages] == ["column x4"]
    _, _, metrics = mixed_service.request("GET", "/metrics")
    assert f'equipoise_drift{{model="friedman",version="{verdict["version"]}"}} 1.0' in metrics.decode()
    assert 'chart="spread of x4",model="friedman"' in metrics.decode()
    counted = wait_for_late_reports(mixed_service, "friedman")  # rows of other tests may have come late
    (monitor,) = [pid for pid, command in list_descendants(cluster.head_pid).items() if "ray::Drift" in command]
    os.kill(monitor, signal.SIGKILL)
    resumed = wait_for_verdict(mixed_service, "friedman", 800)
    assert (resumed["state"], resumed["cause"], resumed["images"]) == ("drift", "column x4", counted)


def test_missing_values_that_the_reference_does_not_have_are_named(mixed_service):
    mixed_service.request_json("POST", "/drift/reset?model=friedman")
    rows = list_rows(480, 13)
    ask(
        mixed_service,
        "friedman",
        "row",
        [row | {"x2": None} if index % 5 == 0 else row for index, row in enumerate(rows)],
    )
    verdict = wait_for_verdict(mixed_service, "friedman", 480)
    assert (verdict["state"], verdict["cause"]) == ("drift", "missing values of x2"), verdict["why"]


def test_texts_of_any_length_are_ok_and_another_language_is_named(mixed_service, read_play):
    ask(mixed_service, "plays", "text", cut_texts(read_play, 240, 1))
    verdict = wait_for_verdict(mixed_service, "plays", 240)
    assert verdict["state"] == "ok" and verdict["why"].endswith("texts look like the reference")
    ask(mixed_service, "plays", "text", cut_texts(GERMAN, 160, 2))
    verdict = wait_for_verdict(mixed_service, "plays", 400)
    assert verdict["state"] == "drift", verdict["why"]
    assert {effect["cause"] for effect in verdict["effects"]} <= {"language or topic", "characters"}, verdict["why"]


def test_status_page_and_captures_say_what_is_not_kept(mixed_service):
    verdict = mixed_service.request_json("GET", "/drift?model=grades")
    assert verdict["state"] == "unknown" and "40 rows; at least 100 are needed" in verdict["why"]
    status, _, page = mixed_service.request("GET", "/")
    assert status == 200 and b"friedman (drift)" in page and b"40 rows" in page
    assert mixed_service.request_json("GET", "/drift/charts?model=friedman")["charts"]["spread of x4"]


def test_rows_and_their_encoded_tensors_are_watched_alike(kind_bundles):
    bundle = load_bundle(kind_bundles["friedman"])
    version = LoadedVersion(bundle, "friedman", bundle.version, load_bundle_profile(bundle))
    kind, rows = TableKind(Limits()), list_rows(20, 14)
    encoded = EncodedRows(bundle.encode_rows(rows))
    features = []
    for contents in (rows, [encoded], [*rows[:3], EncodedRows(bundle.encode_rows(rows[3:]))]):
        requests = [InferenceRequest(content, version) for content in contents]
        _, batch = kind.run_version(version, [kind.decode_inputs(request) for request in requests], requests)
        assert len(batch.sources) == 20
        features.append(extract_batch_features(version.reference, [batch]))
    for other in features[1:]:
        np.testing.assert_allclose(other.statistics, features[0].statistics, atol=1e-5)
        np.testing.assert_allclose(other.fourier_features, features[0].fourier_features, atol=1e-5)
