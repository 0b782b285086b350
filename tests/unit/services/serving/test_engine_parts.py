"""Engines that are cut into parts for the event loop."""

import asyncio
import time

import onnx
import pytest
import torch
from onnx import TensorProto, helper

from equipoise.bundle.bundle import load_bundle
from equipoise.images.png import encode_png
from services.http.errors import RequestRejected
from services.limits import Limits
from services.serving import engine_parts
from services.serving.batch_times import INLINE_SECONDS
from services.serving.engine_parts import find_nearest, list_cuts, measure_seconds, split_engine
from services.serving.inference import InferenceRequest
from services.serving.kinds.boxes_kind import BoxesKind, PlacedImages
from services.serving.model_versions import ModelSpec
from services.serving.models import ModelRegistry
from tests.support.bundles import publish_run, train_short_run


def build_graph(*nodes):
    """Return a model of nodes, given as operator, inputs and output, whose last output is its own."""
    made = [helper.make_node(operator, inputs.split(), [output]) for operator, inputs, output in nodes]
    value = helper.make_tensor_value_info
    first, last = value("x", TensorProto.FLOAT, [1]), value(nodes[-1][2], TensorProto.FLOAT, [1])
    return helper.make_model(helper.make_graph(made, "graph", [first], [last]))


def test_graph_is_cut_where_one_tensor_holds_all_that_is_known():
    chain = build_graph(("Relu", "x", "a"), ("Exp", "a", "b"), ("Neg", "b", "y"))
    assert list(list_cuts(chain)) == ["a", "b", "y"]
    residual = build_graph(("Relu", "x", "a"), ("Exp", "a", "b"), ("Add", "a b", "c"), ("Neg", "c", "y"))
    assert list(list_cuts(residual)) == ["a", "c", "y"]


def test_graph_is_not_cut_where_its_input_is_needed_again():
    assert list(list_cuts(build_graph(("Relu", "x", "a"), ("Add", "a x", "b"), ("Neg", "b", "y")))) == ["b", "y"]


def test_constants_do_not_keep_a_graph_from_being_cut():
    graph = build_graph(("Relu", "x", "a"), ("Neg", "a", "b"), ("Add", "b k", "y"))
    constant = helper.make_node("Constant", [], ["k"], value_float=1.0)
    graph.graph.node.insert(0, constant)
    assert list(list_cuts(graph)) == ["a", "b", "y"]


@pytest.mark.parametrize(("seconds", "expected"), [(0.0, "0"), (3.4, "3"), (3.6, "4"), (99.0, "9")])
def test_bisection_finds_the_nearest_cut(seconds, expected):
    measured = []

    def measure_until(name):
        measured.append(name)
        return float(name)

    assert find_nearest([str(number) for number in range(10)], measure_until, seconds) == expected
    assert len(set(measured)) <= 6


def test_time_of_a_call_is_the_least_of_several():
    lengths = iter([0.02, 0.004] + [0.01] * 100)

    def spend():
        deadline = time.thread_time() + next(lengths)
        while time.thread_time() < deadline:
            pass

    [seconds] = measure_seconds([spend])
    assert 0.004 <= seconds < 0.01


@pytest.fixture(scope="module")
def image_bundle(tmp_path_factory):
    """Return a bundle of a small convolutional network."""
    folder = tmp_path_factory.mktemp("images")
    return publish_run(train_short_run(folder / "run", examples=640), folder / "bundle")


@pytest.mark.parametrize("num_parts", [2, 4])
def test_parts_answer_as_the_whole_engine_does(image_bundle, num_parts, monkeypatch):
    bundle = load_bundle(image_bundle, "onnxruntime")
    images, _ = bundle.load_kept_examples(5)
    [seconds] = measure_seconds([lambda: bundle.run_engine(images[0][:1])])
    monkeypatch.setattr(engine_parts, "MAX_PART_SECONDS", 1.2 * seconds / num_parts)
    monkeypatch.setattr(engine_parts, "MAX_PARTS", 9)
    monkeypatch.setattr(engine_parts, "MAX_LOSS", 10.0)  # a call of so small a part costs more than it computes
    parts = split_engine(bundle)
    assert 2 <= len(parts) <= 9
    for batch in (images[0][:1], images[0]):
        tensors = (batch,)
        for part in parts:
            tensors = part(*tensors)
        for output, expected in zip(tensors, bundle.run_engine(batch), strict=True):
            torch.testing.assert_close(output, expected, rtol=1e-4, atol=1e-5 * float(expected.abs().max()))


def test_engine_stays_whole_if_it_is_short_or_long_or_loses_by_it(image_bundle, monkeypatch):
    bundle = load_bundle(image_bundle, "onnxruntime")
    for part_seconds, max_parts, max_loss in ((1.0, 4, 10.0), (1e-9, 4, 10.0), (1e-5, 10**6, 0.01)):
        monkeypatch.setattr(engine_parts, "MAX_PART_SECONDS", part_seconds)
        monkeypatch.setattr(engine_parts, "MAX_PARTS", max_parts)
        monkeypatch.setattr(engine_parts, "MAX_LOSS", max_loss)
        assert split_engine(bundle) == ()
    assert split_engine(load_bundle(image_bundle, "eager")) == ()


def test_engine_whose_graph_cannot_be_read_stays_whole(image_bundle, monkeypatch, caplog):
    def load_broken_graph(bundle):
        raise onnx.checker.ValidationError("no such graph")

    monkeypatch.setattr(engine_parts, "load_graph", load_broken_graph)
    monkeypatch.setattr(engine_parts, "MAX_PART_SECONDS", 1e-5)
    monkeypatch.setattr(engine_parts, "MAX_PARTS", 10**6)
    assert split_engine(load_bundle(image_bundle, "onnxruntime")) == ()
    assert "runs in a thread" in caplog.text


class Listener:
    """Listener that keeps what was computed."""

    def __init__(self):
        self.batches = []

    def on_batch(self, model, batch):
        self.batches.append(batch)


def predict_in_stages(bundle, contents):
    """Return the outcomes of requests that are computed in stages, the times of the stages and the batches."""

    async def send_requests():
        registry = ModelRegistry(Limits(), asyncio.get_running_loop(), listener, drift_enabled=False)
        registry.apply_specs({"digits": ModelSpec(bundle=str(bundle), engine="onnxruntime")})
        model = registry.find_model("digits")
        for _ in range(3):
            model.batcher.batch_times.add_batch(1, 1.4 * INLINE_SECONDS)
        outcomes = []
        for content, is_alone in contents:
            outcomes += await asyncio.gather(model.predict(content, None, is_alone), return_exceptions=True)
            await asyncio.sleep(0.01)
        registry.apply_specs({})
        return outcomes, model.batcher.stage_times.seconds, len(model.current.engine_parts)

    listener = Listener()
    return *asyncio.run(send_requests()), listener.batches


def test_request_in_stages_is_answered_as_the_bundle_answers(image_bundle, monkeypatch):
    monkeypatch.setattr(engine_parts, "MAX_PART_SECONDS", 1e-5)
    monkeypatch.setattr(engine_parts, "MAX_PARTS", 10**6)
    monkeypatch.setattr(engine_parts, "MAX_LOSS", 100.0)
    bundle = load_bundle(image_bundle, "onnxruntime")
    images, _ = bundle.load_kept_examples(2)
    contents = [((encode_png(images[0][0].numpy()),), True), (images[0].numpy(), False), ((b"no image",), True)]
    (single, pair, rejection), seconds, num_parts, batches = predict_in_stages(image_bundle, contents)
    assert num_parts > 1 and len(seconds) == num_parts + 1
    expected = bundle.predict(images[0])
    assert single.labels + pair.labels == [expected.labels[0], *expected.labels]
    assert torch.allclose(torch.from_numpy(single.scores), expected.scores[:1], atol=1e-5)
    assert torch.allclose(torch.from_numpy(pair.scores), expected.scores, atol=1e-5)
    assert torch.allclose(batches[1].features, expected.features, atol=1e-4)
    assert isinstance(rejection, RequestRejected) and rejection.status == 400


def test_first_part_of_a_detector_takes_its_images():
    images = torch.zeros(1, 3, 4, 4, dtype=torch.uint8)
    request = InferenceRequest((), None, decoded=PlacedImages(images))
    advanced = BoxesKind(Limits()).run_part(lambda tensor: (tensor + 1,), request)
    assert torch.equal(advanced.part_outputs[0], images + 1)
    assert BoxesKind(Limits()).run_part(lambda tensor: (tensor + 1,), advanced).part_outputs[0].max() == 2
    rejected = InferenceRequest((), None, decoded=RequestRejected(400, "no image"))
    assert BoxesKind(Limits()).run_part(lambda tensor: (tensor,), rejected) is rejected
