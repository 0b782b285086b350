"""MLServer with a runtime of one's own, by its documentation: mlserver start FOLDER with a model-settings.json."""

import base64

import numpy as np
from mlserver import MLModel
from mlserver.codecs import NumpyCodec
from mlserver.types import InferenceRequest, InferenceResponse

from benchmarks.servers.model import Net


class Predictor(MLModel):
    """Pictures come as base64 within the protocol's JSON."""

    async def load(self) -> bool:
        self.net = Net()
        return True

    async def predict(self, payload: InferenceRequest) -> InferenceResponse:
        coded = payload.inputs[0].data.root[0]
        scores = self.net.scores([self.net.decode(base64.b64decode(coded))])
        outputs = [NumpyCodec.encode_output("scores", np.array(scores, np.float32))]
        return InferenceResponse(model_name=self.name, outputs=outputs)
