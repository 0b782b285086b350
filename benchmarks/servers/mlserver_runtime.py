"""MLServer with a custom runtime as in its documentation: mlserver start FOLDER with a model-settings.json."""

import base64

import numpy as np
from mlserver import MLModel
from mlserver.codecs import NumpyCodec
from mlserver.types import InferenceRequest, InferenceResponse

from benchmarks.servers.model import PeerModel


class Predictor(MLModel):
    """Runtime that reads each image as base64 within the JSON of the Open Inference Protocol."""

    async def load(self) -> bool:
        self.model = PeerModel()
        return True

    async def predict(self, payload: InferenceRequest) -> InferenceResponse:
        encoded = payload.inputs[0].data.root[0]
        scores = self.model.predict_scores([self.model.decode_image(base64.b64decode(encoded))])
        outputs = [NumpyCodec.encode_output("scores", np.array(scores, np.float32))]
        return InferenceResponse(model_name=self.name, outputs=outputs)
