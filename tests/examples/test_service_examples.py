"""Clients get the labels that the model itself predicts, and the loop adapts the model to a drift, on one service."""

import subprocess

import numpy as np
import pytest
import torch

from equipoise import TrainConfig, load_bundle, load_workload
from equipoise.drift.corruptions import adjust_exposure
from jobs.cluster.processes import find_free_ports, terminate_process_groups, wait_until
from tests.serving.conftest import start_service
from tests.support.example_programs import EXAMPLES, build_environment, run_example, write_png_files

CLEAN_REQUESTS, DARK_REQUESTS = 400, 300
STOPS = -1.5  # the light of the drift


@pytest.fixture(scope="module")
def digit_images():
    workload = load_workload(TrainConfig(workload="digits"))
    return torch.cat([workload.test.inputs, workload.validation.inputs])


@pytest.fixture(scope="module")
def service(cluster, monitored_digits, tmp_path_factory):
    """The service of a link to a bundle, as examples/adapt_loop.sh wants it."""
    folder = tmp_path_factory.mktemp("served")
    link = folder / "digits"
    link.symlink_to(monitored_digits)
    arguments = ("reload_seconds=0.5", "report_seconds=0.2", f"capture_dir={folder / 'kept'}")
    with start_service(cluster, [link], folder / "log", *arguments) as service:
        yield service


@pytest.fixture(scope="module")
def image_files(digit_images, tmp_path_factory):
    return write_png_files(digit_images[:5], tmp_path_factory.mktemp("images"))


@pytest.fixture(scope="module")
def expected_lines(service, image_files):
    """Lines with the label and score of each image, from the bundle itself."""
    model = load_bundle(service.bundle)
    prediction = model.predict(model.preprocess(image_files))
    answers = zip(image_files, prediction.labels, prediction.scores.max(1).values.tolist(), strict=True)
    return [f"{path}: {label} ({score:.0%})" for path, label, score in answers]


def test_client_of_the_standard_library(service, image_files, expected_lines):
    printed = run_example("client_python.py", f"http://127.0.0.1:{service.port}", *image_files)
    assert printed.splitlines() == expected_lines


def test_client_of_the_standard_library_prints_why_there_is_no_answer(service, image_files, tmp_path):
    (tmp_path / "no-image.png").write_text("text")
    for port, path in ((service.port, tmp_path / "no-image.png"), (find_free_ports(1)[0], image_files[0])):
        command = ["python", EXAMPLES / "client_python.py", f"http://127.0.0.1:{port}", path]
        result = subprocess.run(command, env=build_environment(), capture_output=True, text=True)
        assert result.returncode == 1 and result.stderr.startswith(f"cannot predict {path}: ")
        assert result.stderr.count("\n") == 1


def test_client_of_triton(service, image_files, expected_lines):
    inputs, outputs, *answers = run_example(
        "client_triton.py", f"127.0.0.1:{service.port}", "digits", *image_files
    ).splitlines()
    assert "encoded BYTES" in inputs and "labels BYTES" in outputs
    assert answers == expected_lines


def test_loop_adapts_the_model_to_darker_images(service, digit_images, monitored_digits, tmp_path, cluster):
    images = digit_images[np.random.default_rng(1).integers(0, len(digit_images), CLEAN_REQUESTS + DARK_REQUESTS)]
    request_predictions(service, images[:CLEAN_REQUESTS], tmp_path)
    request_predictions(service, adjust_exposure(images[CLEAN_REQUESTS:], STOPS), tmp_path)
    wait_until(lambda: service.request_json("GET", "/drift")["state"] == "drift", 30)
    old_version = load_bundle(monitored_digits).version
    arguments = (f"http://127.0.0.1:{service.port}", str(service.bundle), str(service.bundle.with_name("kept")))
    environment = build_environment(cluster.environment) | {"CHECK_SECONDS": "2"}
    with (tmp_path / "log").open("w") as log:
        loop = subprocess.Popen(
            [EXAMPLES / "adapt_loop.sh", *arguments, "--epochs", "4"],
            env=environment,
            stdout=log,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
        try:
            wait_until(lambda: loop.poll() is not None or read_version(service) != old_version, 150)
        finally:
            terminate_process_groups([loop])
    log_text = (tmp_path / "log").read_text()
    assert read_version(service) != old_version, log_text
    assert service.bundle.readlink().name.startswith("adapted-")
    new = load_bundle(service.bundle)
    causes = [change["cause"] for change in new.manifest.remedy["changes"]]
    assert causes[0] == "exposure"  # where few requests could be observed, smaller changes are named beside it


def request_predictions(service, images, folder):
    """Request a prediction for each image."""
    for path in write_png_files(images, folder / "requests"):
        service.request_json("POST", "/predict", path.read_bytes(), content_type="image/png")


def read_version(service):
    """Return the version of the bundle that answers."""
    return service.request_json("GET", "/drift")["version"]
