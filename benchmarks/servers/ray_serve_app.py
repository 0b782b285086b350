"""Ray Serve as its documentation begins: HTTP through the proxy, a handle to the replica."""

from ray import serve
from starlette.requests import Request

from benchmarks.servers.model import Net


@serve.deployment
class Predictor:
    """One replica."""

    def __init__(self) -> None:
        self.net = Net()

    async def __call__(self, request: Request) -> dict:
        return self.net.reply(self.net.scores([self.net.decode(await request.body())])[0])


app = Predictor.bind()
