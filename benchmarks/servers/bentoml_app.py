"""BentoML set up as in its documentation: bentoml serve benchmarks.servers.bentoml_app:Predictor."""

import bentoml
from PIL.Image import Image

from benchmarks.servers.model import PeerModel


@bentoml.service(workers=1, traffic={"timeout": 60})
class Predictor:
    """Service with one worker; images arrive as files of a form and are decoded by BentoML."""

    def __init__(self) -> None:
        self.model = PeerModel()

    @bentoml.api
    def predict(self, image: Image) -> dict:
        """Predict the class of the one image of a request."""
        return self.model.build_reply(self.model.predict_scores([self.model.convert_image(image)])[0])

    @bentoml.api(batchable=True, max_batch_size=32, max_latency_ms=1000)
    def predict_batch(self, images: list[Image]) -> list[dict]:
        """Predict the classes of all waiting images as one batch."""
        return [
            self.model.build_reply(scores)
            for scores in self.model.predict_scores([self.model.convert_image(image) for image in images])
        ]
