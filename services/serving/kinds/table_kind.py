"""Models of tables in a service: rows as JSON or as encoded tensors in, classes or numbers with intervals out."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from starlette.requests import Request
from torch import Tensor

from equipoise.bundle.kinds.predictions import NumberPrediction, Prediction
from equipoise.bundle.kinds.regression import RegressionEvaluation
from equipoise.bundle.kinds.table_bundle import TableBundle
from equipoise.errors import EquipoiseError
from equipoise.type_aliases import AnyArray
from services.http.errors import RequestRejected, too_many_rows
from services.http.message_types import TensorMetadata
from services.http.prediction_types import NumberReply, PredictionReply
from services.http.tensor_codec import InferenceTensors, require_object
from services.serving.inference import InferenceRequest, RowsBatch
from services.serving.kinds.image_kind import LABELS_OUTPUT, SCORES_OUTPUT, build_prediction_reply
from services.serving.kinds.served_kind import (
    RawTensor,
    ServedKind,
    encode_strings,
    parse_json_field,
    repeat_sources,
    require_tensors,
)
from services.serving.model_versions import LoadedVersion

VALUE_OUTPUT, LOW_OUTPUT, HIGH_OUTPUT = "value", "low", "high"
DATATYPES = {"float32": "FP32", "int64": "INT64", "uint8": "UINT8"}


@dataclass(frozen=True)
class EncodedRows:
    """Rows as the tensors that a model takes."""

    tensors: tuple[Tensor, ...]

    def __len__(self) -> int:
        return len(self.tensors[0])


@dataclass(frozen=True)
class RowsOutput:
    """Answer of a version to one request of rows."""

    prediction: Prediction | NumberPrediction
    version: LoadedVersion


class TableKind(ServedKind):
    """Requests of rows for a model of a table."""

    async def parse_body(self, request: Request, body: bytes) -> dict[str, Any]:
        """Return the row in the body of a request to /predict."""
        return require_object(parse_json_field(request, body, "row", '{"row": {COLUMN: VALUE, ...}}'), "row")

    def build_reply(self, model_name: str, identifier: str, output: RowsOutput) -> NumberReply | PredictionReply:
        """Build the reply to a request of one row."""
        prediction, version = output.prediction, output.version
        require_finite(prediction)
        if isinstance(prediction, Prediction):
            return build_prediction_reply(
                model_name, identifier, version, prediction.labels[0], prediction.scores[0].tolist()
            )
        low, high = (None if ends is None else ends[0] for ends in (prediction.low, prediction.high))
        return NumberReply(
            model=model_name, version=version.id, id=identifier, value=prediction.values[0], low=low, high=high
        )

    def decode_inputs(self, request: InferenceRequest) -> Any:
        """Return the rows of a request as tensors, or the error with which it is rejected."""
        if isinstance(request.content, EncodedRows):
            return request.content
        try:
            return EncodedRows(find_bundle(request.version).encode_rows([request.content]))
        except EquipoiseError as error:
            return RequestRejected(400, str(error))

    def run_version(
        self, version: LoadedVersion, decoded: Sequence[EncodedRows], requests: Sequence[InferenceRequest]
    ) -> tuple[list[RowsOutput], RowsBatch]:
        """Return the outputs of a version for several requests, computed in one batch."""
        bundle = find_bundle(version)
        inputs = [torch.cat(tensors) for tensors in zip(*(rows.tensors for rows in decoded), strict=True)]
        counts = [len(rows) for rows in decoded]
        outputs, features = bundle.run_engine(*inputs)
        parts = zip(outputs.split(counts), features.split(counts), strict=True)
        answers = [RowsOutput(bundle.read_outputs(*part), version) for part in parts]
        contents = [request.content for request in requests]
        batch = RowsBatch(
            version,
            [content.tensors if isinstance(content, EncodedRows) else content for content in contents],
            outputs,
            features,
            repeat_sources(requests, counts),
        )
        return answers, batch

    def list_tensors(self, version: LoadedVersion) -> tuple[list[TensorMetadata], list[TensorMetadata]]:
        """Return the inputs and outputs of a model in the Open Inference Protocol."""
        manifest = version.bundle.manifest
        if isinstance(manifest.metrics, RegressionEvaluation):
            names = [VALUE_OUTPUT] if manifest.metrics.half_width is None else [VALUE_OUTPUT, LOW_OUTPUT, HIGH_OUTPUT]
            return list_input_tensors(version), [
                TensorMetadata(name=name, datatype="FP64", shape=[-1]) for name in names
            ]
        return list_input_tensors(version), [
            TensorMetadata(name=LABELS_OUTPUT, datatype="BYTES", shape=[-1]),
            TensorMetadata(name=SCORES_OUTPUT, datatype="FP32", shape=[-1, len(manifest.classes)]),
        ]

    def describe_raw_tensor(self, version: LoadedVersion) -> RawTensor:
        """Return the tensor of a body that is nothing but the bytes of one; reject a model of several."""
        inputs = list_input_tensors(version)
        if len(inputs) > 1:
            names = " and ".join(tensor.name for tensor in inputs)
            raise RequestRejected(400, f"cannot read the raw body: the model takes {names}")
        return RawTensor(inputs[0].name, inputs[0].datatype, tuple(inputs[0].shape))

    def parse_tensors(self, tensors: InferenceTensors, version: LoadedVersion) -> EncodedRows:
        """Return the encoded rows of a request; reject codes of categories that the columns do not have."""
        arrays = require_tensors(tensors, list_input_tensors(version))
        if len(arrays[0]) > self.limits.batch:
            raise too_many_rows(self.limits.batch, len(arrays[0]))
        spec = find_bundle(version).spec
        if spec.category_columns and not ((arrays[-1] >= 0) & (arrays[-1] < spec.category_sizes)).all():
            raise RequestRejected(400, "codes holds a code that its column does not have")
        return EncodedRows(tuple(torch.from_numpy(np.array(array)) for array in arrays))

    def output_tensors(self, output: RowsOutput) -> dict[str, AnyArray]:
        """Return the outputs in the Open Inference Protocol."""
        prediction = output.prediction
        require_finite(prediction)
        if isinstance(prediction, Prediction):
            return {LABELS_OUTPUT: encode_strings(prediction.labels), SCORES_OUTPUT: prediction.scores.numpy()}
        columns = {VALUE_OUTPUT: prediction.values, LOW_OUTPUT: prediction.low, HIGH_OUTPUT: prediction.high}
        return {name: np.array(values) for name, values in columns.items() if values is not None}


def require_finite(prediction: Prediction | NumberPrediction) -> None:
    """Reject a request whose numbers are so large that the answer overflows."""
    values = prediction.scores if isinstance(prediction, Prediction) else torch.tensor(prediction.values)
    if not values.isfinite().all():
        raise RequestRejected(400, "the answer is not a finite number: the row has too large ones for the model")


def find_bundle(version: LoadedVersion) -> TableBundle:
    """Return the bundle of a version, which must be a model of a table."""
    if not isinstance(version.bundle, TableBundle):
        raise TypeError(f"{version.path} is no model of a table")
    return version.bundle


def list_input_tensors(version: LoadedVersion) -> list[TensorMetadata]:
    """Return the input tensors that the manifest of a version declares."""
    return [
        TensorMetadata(name=spec.name, datatype=DATATYPES[spec.dtype], shape=[*spec.shape])
        for spec in version.bundle.manifest.inputs
    ]
