"""BentoML, by its documentation: bentoml serve benchmarks.servers.bentoml_app:Predictor"""

import bentoml
from PIL.Image import Image

from benchmarks.servers.model import Net


@bentoml.service(workers=1, traffic={"timeout": 60})
class Predictor:
    """One worker. Pictures come as a form's files, decoded by BentoML."""

    def __init__(self) -> None:
        self.net = Net()

    @bentoml.api
    def predict(self, image: Image) -> dict:
        """One picture a request."""
        return self.net.reply(self.net.scores([self.net.numbers(image)])[0])

    @bentoml.api(batchable=True, max_batch_size=32, max_latency_ms=1000)
    def batched(self, images: list[Image]) -> list[dict]:
        """What waits, as a batch."""
        return [self.net.reply(one) for one in self.net.scores([self.net.numbers(image) for image in images])]
