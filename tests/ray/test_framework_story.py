"""Models of transformers and timm, from a sweep or a pretrained folder to answers of a service."""

import json
import sys
from contextlib import closing
from http.client import HTTPConnection
from importlib.util import find_spec

import pytest
import torch
from safetensors.torch import load_file

from equipoise.bundle.bundle import load_bundle
from equipoise.config import TrainConfig
from equipoise.images.png import encode_png
from equipoise.runs.folder import read_record
from equipoise.training.torch_state import load_weights
from equipoise.workloads import load_workload
from jobs.cluster.processes import find_free_ports, wait_until

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(
        not all(map(find_spec, ("peft", "timm", "transformers"))), reason="not installed: make test-frameworks"
    ),
]
GPT2 = "hf:gpt2:1x32"
TEXT = "To be, or not to "


def run_command(cluster, name, *arguments):
    result = cluster.run(sys.executable, "-m", f"jobs.{name}", *map(str, arguments), timeout=500)
    assert result.returncode == 0, result.stdout + result.stderr


def publish(cluster, run):
    bundle = run.with_name(f"{run.name}-bundle")
    run_command(cluster, "publish", "--run", run, "--no-native", "--no-drift", "--out", bundle)
    return bundle


@pytest.fixture(scope="module")
def gpt2_run(cluster, tmp_path_factory):
    """GPT-2 of transformers, trained with the plan of a sweep."""
    folder = tmp_path_factory.mktemp("gpt2")
    options = ("--workload", "text", "--model", GPT2, "--target", "3.6", "--eval-every", "256")
    search = ("--workers", "1", "--batch-size", "8:16", "--budget-seconds", "60", "--out", folder / "sweep")
    result = cluster.run(sys.executable, "-m", "jobs.sweep", *options, *map(str, search), timeout=500)
    assert result.returncode in (0, 1), result.stdout + result.stderr  # 1: on a busy machine runs refute their plans
    run_command(cluster, "train", *options, "--plan", folder / "sweep", "--out", folder / "run")
    return folder / "run"


@pytest.fixture(scope="module")
def adapted_run(cluster, gpt2_run):
    """The same model in a folder of transformers, to which adapters are added for another text."""
    model = load_workload(TrainConfig(workload="text", model=GPT2)).model()
    load_weights(model, load_file(gpt2_run / "model.safetensors"))
    model.model.save_pretrained(gpt2_run.with_name("pretrained"))
    write_tokenizer(gpt2_run.with_name("pretrained"))
    text = gpt2_run.with_name("text.txt")
    text.write_text("The quick brown fox jumps over the lazy dog. " * 200)
    options = ("--workload", "text", "--data", text, "--init-from", gpt2_run.with_name("pretrained"), "--lora-rank", 4)
    run = gpt2_run.with_name("adapted")
    run_command(
        cluster,
        "train",
        *options,
        "--batch-size",
        8,
        "--max-examples",
        800,
        "--eval-every",
        400,
        "--target",
        0,
        "--out",
        run,
    )
    return run


def write_tokenizer(folder):
    from tokenizers import Tokenizer, models

    characters = load_workload(TrainConfig(workload="text")).vocabulary.characters
    tokens = {character: index for index, character in enumerate(characters)}
    Tokenizer(models.BPE(tokens, [])).save(str(folder / "tokenizer.json"))


@pytest.fixture(scope="module")
def timm_run(cluster, tmp_path_factory):
    run = tmp_path_factory.mktemp("timm") / "run"
    options = ("--workload", "tests.support.timm_workload:digits", "--batch-size", "16", "--max-examples", "640")
    run_command(cluster, "train", *options, "--workers", "2", "--out", run)
    return run


def test_adapters_train_beside_frozen_weights_and_end_in_the_dense_layers(adapted_run, gpt2_run):
    adapted, original = (load_file(run / "model.safetensors") for run in (adapted_run, gpt2_run))
    assert adapted.keys() == original.keys()
    changed = {name for name in adapted if adapted[name].shape != original[name].shape}
    changed |= {name for name in adapted.keys() - changed if not torch.equal(adapted[name], original[name])}
    dense = {"attn.c_attn", "attn.c_proj", "mlp.c_fc", "mlp.c_proj"}
    expected = {f"model.transformer.h.0.{name}.weight" for name in dense} | {"model.transformer.wte.weight"}
    assert changed == expected
    metrics = [lap.metric for lap in read_record(adapted_run / "record.json").laps if lap.metric is not None]
    assert metrics[-1] < metrics[0]


def test_all_are_published_and_served(cluster, gpt2_run, adapted_run, timm_run, tmp_path):
    runs = {"gpt2": gpt2_run, "adapted": adapted_run, "timm": timm_run}
    bundles = {name: publish(cluster, run) for name, run in runs.items()}
    (port,) = find_free_ports(1)
    specs = {name: {"bundle": str(path)} for name, path in bundles.items()}
    arguments = {"port": port, "models": specs, "state_dir": str(tmp_path), "capture_dir": str(tmp_path / "captures")}
    application = {"name": "models", "route_prefix": "/", "import_path": "services.app:build", "args": arguments}

    def send_request(method, path, body=None, kind="application/json"):
        with closing(HTTPConnection("127.0.0.1", port, timeout=30)) as connection:
            connection.request(method, path, body, {"content-type": kind})
            reply = connection.getresponse()
            content = reply.read()
        assert reply.status == 200, content
        return json.loads(content)

    def is_ready():
        try:
            return bool(send_request("GET", "/ready"))
        except (OSError, AssertionError):
            return False

    cluster.deploy({"proxy_location": "Disabled", "applications": [application]})
    wait_until(is_ready, 120)
    for name in ("gpt2", "adapted"):
        reply = send_request("POST", f"/models/{name}/predict", json.dumps({"text": TEXT}))
        expected = load_bundle(bundles[name]).next_tokens(TEXT)
        assert reply["nats_per_token"] == pytest.approx(expected.nats_per_token, abs=1e-4)
        assert [token["character"] for token in reply["next"]] == [token.character for token in expected.next_tokens]
    images = load_workload(TrainConfig(workload="digits")).test.inputs[:1]
    reply = send_request("POST", "/models/timm/predict", encode_png(images[0]), "image/png")
    assert reply["label"] == load_bundle(bundles["timm"]).predict(images).labels[0]
    cluster.shut_down_serve()
