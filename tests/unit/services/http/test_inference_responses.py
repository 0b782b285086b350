"""Responses of the Open Inference Protocol, as Triton's client reads them and as our own parser does."""

import json

import numpy as np
import pytest
import tritonclient.http as triton

from services.http.tensor_codec import NUMPY_TYPES, InferenceTensors, build_inference_response, parse_inference_request
from tests.support.rejections import raises_rejection

LABELS = np.array([[b"ant"], ["bé".encode()]], object)
SCORES = np.array([[0.25, 0.75, 0.0], [1.5, -2.0, 3.25]], np.float32)
METADATA = {"model_name": "m", "model_version": "v1"}


def build_request(outputs=None, binary_by_default=False, request_id=None):
    return InferenceTensors(request_id, {}, outputs, binary_by_default)


def read_with_triton(body, json_length):
    result = triton.InferenceServerClient.parse_response_body(body, header_length=json_length)
    return result, {output["name"]: result.as_numpy(output["name"]) for output in result.get_response()["outputs"]}


@pytest.mark.parametrize("binary", [True, False])
def test_triton_reads_all_outputs(binary):
    outputs = {"labels": LABELS, "scores": SCORES}
    body, json_length = build_inference_response(METADATA, outputs, build_request(None, binary))
    assert (json_length is not None) == binary
    result, arrays = read_with_triton(body, json_length)
    assert list(arrays) == ["labels", "scores"]
    labels = [text if isinstance(text, bytes) else text.encode() for text in arrays["labels"].ravel()]
    assert labels == LABELS.ravel().tolist() and arrays["labels"].shape == (2, 1)
    np.testing.assert_array_equal(arrays["scores"], SCORES, strict=True)
    response = result.get_response()
    assert METADATA.items() <= response.items() and "id" not in response


def test_requested_outputs_are_returned_in_their_order_and_form():
    outputs = {"labels": LABELS, "scores": SCORES, "unused": SCORES}
    request = build_request({"scores": True, "labels": False}, request_id="7")
    body, json_length = build_inference_response(METADATA, outputs, request)
    response = json.loads(body[:json_length])
    scores, labels = response["outputs"]
    assert response["id"] == "7"
    assert scores == {
        "name": "scores",
        "datatype": "FP32",
        "shape": [2, 3],
        "parameters": {"binary_data_size": SCORES.nbytes},
    }
    assert labels == {"name": "labels", "datatype": "BYTES", "shape": [2, 1], "data": ["ant", "bé"]}
    assert body[json_length:] == SCORES.tobytes()


def test_outputs_are_json_unless_requested_otherwise():
    body, json_length = build_inference_response({}, {"scores": SCORES}, InferenceTensors(None, {}, None))
    assert json_length is None
    assert json.loads(body) == {
        "outputs": [{"name": "scores", "datatype": "FP32", "shape": [2, 3], "data": SCORES.ravel().tolist()}]
    }


@pytest.mark.parametrize("binary", [True, False])
@pytest.mark.parametrize("datatype", NUMPY_TYPES)
def test_output_of_any_type_is_read_back_as_an_input(datatype, binary):
    array = np.array([[0, 1, 5], [7, 0, 100]]).astype(NUMPY_TYPES[datatype]).T  # not contiguous
    body, json_length = build_inference_response({}, {"x": array}, build_request(None, binary))
    size = len(body) if json_length is None else json_length
    header = body[:size].replace(b'"outputs"', b'"inputs" ')
    parsed = parse_inference_request(header + body[size:], str(len(header)))
    np.testing.assert_array_equal(parsed.inputs["x"], array, strict=True)


def test_binary_outputs_follow_each_other():
    outputs = {"a": np.array([1, 2], np.int16), "b": LABELS, "c": np.array([True])}
    body, json_length = build_inference_response({}, outputs, build_request(None, True))
    sizes = [output["parameters"]["binary_data_size"] for output in json.loads(body[:json_length])["outputs"]]
    assert sizes == [4, 4 + 3 + 4 + 3, 1] and len(body) == json_length + sum(sizes)
    assert body[json_length:] == b"\1\0\2\0" + b"\3\0\0\0ant" + b"\3\0\0\0b\xc3\xa9" + b"\1"


def test_unknown_output_is_rejected_with_those_of_the_model():
    with raises_rejection(400, "'nope'", "labels, scores"):
        build_inference_response(
            {}, {"labels": LABELS, "scores": SCORES}, build_request({"labels": True, "nope": True})
        )


def test_number_that_is_not_finite_is_never_written_as_json():
    outputs = {"scores": np.array([np.nan], np.float32)}
    with pytest.raises(ValueError, match="JSON"):
        build_inference_response({}, outputs, build_request())
    body, json_length = build_inference_response({}, outputs, build_request({"scores": True}))
    assert np.isnan(np.frombuffer(body[json_length:], "<f4")).all()
