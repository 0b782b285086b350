"""Ray Serve as in the first example of its documentation: HTTP through the proxy, a handle to the replica."""

from ray import serve
from starlette.requests import Request

from benchmarks.servers.model import PeerModel


@serve.deployment
class Predictor:
    """Deployment with a single replica of the model."""

    def __init__(self) -> None:
        self.model = PeerModel()

    async def __call__(self, request: Request) -> dict:
        return self.model.build_reply(self.model.predict_scores([self.model.decode_image(await request.body())])[0])


app = Predictor.bind()
