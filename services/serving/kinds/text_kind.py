"""Language models in a service: a text or its tokens in, the characters that may come next out."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from starlette.requests import Request
from torch import Tensor

from equipoise.bundle.kinds.predictions import TextPrediction
from equipoise.bundle.kinds.text_bundle import DEFAULT_NEXT_TOKENS, TextBundle
from equipoise.errors import EquipoiseError
from equipoise.type_aliases import AnyArray
from services.http.errors import RequestRejected, text_is_too_long, too_many_rows
from services.http.message_types import TensorMetadata
from services.http.prediction_types import NextTokenReply, TextReply
from services.http.tensor_codec import InferenceTensors
from services.serving.inference import InferenceRequest, WindowsBatch
from services.serving.kinds.served_kind import RawTensor, ServedKind, parse_json_field, repeat_sources, require_tensors
from services.serving.kinds.table_kind import list_input_tensors
from services.serving.model_versions import LoadedVersion

LOGITS_OUTPUT = "logits"


@dataclass(frozen=True)
class EncodedText:
    """Windows of tokens (windows, length) of one text."""

    windows: Tensor
    text_length: int | None = None
    """characters of the text; None for tokens whose logits are asked for"""

    def __len__(self) -> int:
        return len(self.windows)


@dataclass(frozen=True)
class TextOutput:
    """Answer of a version to one request."""

    version: LoadedVersion
    logits: Tensor
    prediction: TextPrediction | None


class TextKind(ServedKind):
    """Requests of texts for a language model."""

    async def parse_body(self, request: Request, body: bytes) -> str:
        """Return the text in the body of a request to /predict."""
        text = parse_json_field(request, body, "text", '{"text": "..."}')
        if not isinstance(text, str) or not text:
            raise RequestRejected(400, "text must be a string of at least one character")
        if len(text) > self.limits.characters:
            raise text_is_too_long(self.limits.characters, len(text))
        return text

    def build_reply(self, model_name: str, identifier: str, output: TextOutput) -> TextReply:
        """Build the reply to a request of one text."""
        if output.prediction is None:
            raise ValueError("the request held tokens, which have no reply of characters")
        tokens = [
            NextTokenReply(
                character=token.character, probability=round(token.probability, 6), nats=round(token.nats, 6)
            )
            for token in output.prediction.next_tokens
        ]
        nats = output.prediction.nats_per_token
        return TextReply(
            model=model_name,
            version=output.version.id,
            id=identifier,
            next=tokens,
            nats_per_token=None if nats is None else round(nats, 6),
        )

    def can_decode_inline(self, request: InferenceRequest) -> bool:
        """Return whether a request is one window at most: longer texts go to the thread."""
        content = request.content
        return len(content) <= (1 if isinstance(content, EncodedText) else find_bundle(request.version).window)

    def decode_inputs(self, request: InferenceRequest) -> Any:
        """Return the tokens of a request, or the error with which it is rejected."""
        if isinstance(request.content, EncodedText):
            return request.content
        try:
            return EncodedText(find_bundle(request.version).encode_text(request.content), len(request.content))
        except EquipoiseError as error:
            return RequestRejected(400, str(error))

    def run_version(
        self, version: LoadedVersion, decoded: Sequence[EncodedText], requests: Sequence[InferenceRequest]
    ) -> tuple[list[TextOutput], WindowsBatch]:
        """Return the outputs of a version for several requests; windows of equal length are computed in one batch."""
        bundle = find_bundle(version)
        outputs: dict[int, TextOutput] = {}
        for length in dict.fromkeys(text.windows.shape[1] for text in decoded):
            indices = [index for index, text in enumerate(decoded) if text.windows.shape[1] == length]
            texts = [decoded[index] for index in indices]
            (logits,) = bundle.run_engine(torch.cat([text.windows for text in texts]))
            for index, text, part in zip(indices, texts, logits.split([len(text) for text in texts]), strict=True):
                outputs[index] = build_output(version, bundle, text, part)
        answers = [outputs[index] for index in range(len(decoded))]
        return answers, collect_watched_windows(version, bundle, decoded, answers, requests)

    def list_tensors(self, version: LoadedVersion) -> tuple[list[TensorMetadata], list[TensorMetadata]]:
        """Return the inputs and outputs of a model in the Open Inference Protocol."""
        shape = [*version.bundle.manifest.outputs[0].shape]
        return list_input_tensors(version), [TensorMetadata(name=LOGITS_OUTPUT, datatype="FP32", shape=shape)]

    def describe_raw_tensor(self, version: LoadedVersion) -> RawTensor:
        """Reject a body that is nothing but bytes, which do not say how long the texts are."""
        raise RequestRejected(400, "cannot read the raw body: the length of texts is open")

    def parse_tensors(self, tensors: InferenceTensors, version: LoadedVersion) -> EncodedText:
        """Return the tokens of a request; reject texts beyond the window, and tokens beyond the vocabulary."""
        (tokens,) = require_tensors(tensors, list_input_tensors(version))
        bundle = find_bundle(version)
        if len(tokens) > self.limits.batch:
            raise too_many_rows(self.limits.batch, len(tokens))
        if tokens.shape[1] > bundle.window:
            raise RequestRejected(400, f"tokens may be at most {bundle.window} long, got {tokens.shape[1]}")
        if tokens.min() < 0 or tokens.max() >= len(bundle.vocabulary):
            raise RequestRejected(400, f"tokens must be from 0 to {len(bundle.vocabulary) - 1}")
        return EncodedText(torch.from_numpy(np.array(tokens)))

    def output_tensors(self, output: TextOutput) -> dict[str, AnyArray]:
        """Return the outputs in the Open Inference Protocol."""
        return {LOGITS_OUTPUT: output.logits.numpy()}


def build_output(version: LoadedVersion, bundle: TextBundle, text: EncodedText, logits: Tensor) -> TextOutput:
    """Build the answer to one request from the logits of its windows."""
    if text.text_length is None:
        return TextOutput(version, logits, None)
    return TextOutput(version, logits, bundle.read_outputs(text.windows, logits, text.text_length, DEFAULT_NEXT_TOKENS))


def collect_watched_windows(
    version: LoadedVersion,
    bundle: TextBundle,
    decoded: Sequence[EncodedText],
    outputs: Sequence[TextOutput],
    requests: Sequence[InferenceRequest],
) -> WindowsBatch:
    """Return what drift detection reads of the requests: one window of each text, and all windows sent as tokens.

    Windows are what the reference consists of. Which window of a text it is depends on the length of the text.
    """
    windows: list[Tensor] = []
    logits: list[Tensor] = []
    texts: list[str | None] = []
    for text, output, request in zip(decoded, outputs, requests, strict=True):
        if text.text_length is None:
            windows.append(text.windows)
            logits.append(output.logits)
            texts.append(None)
            continue
        index = text.text_length % len(text)
        start = min(index * bundle.window, text.text_length - text.windows.shape[1])
        windows.append(text.windows[index : index + 1])
        logits.append(output.logits[index : index + 1].clone())  # a view would keep the logits of all windows
        texts.append(request.content[start : start + bundle.window])
    sources = repeat_sources(requests, [len(part) for part in windows])
    return WindowsBatch(version, windows, logits, texts, sources)


def find_bundle(version: LoadedVersion) -> TextBundle:
    """Return the bundle of a version, which must be a language model."""
    if not isinstance(version.bundle, TextBundle):
        raise TypeError(f"{version.path} is no language model")
    return version.bundle
