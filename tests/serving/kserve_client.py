"""Asks a running service by kserve's own client, in kserve's own environment; JSON on both ends."""

import asyncio
import json
import sys

import httpx
import numpy as np
from kserve import InferenceRESTClient, InferInput, InferRequest, RESTConfig
from kserve.protocol.infer_type import RequestedOutput


async def main():
    """What the service said."""
    asked = json.load(sys.stdin)
    url = f"http://127.0.0.1:{asked['port']}"
    pictures = np.array(asked["pictures"], np.uint8)
    client = InferenceRESTClient(RESTConfig(protocol="v2", retries=0))
    found = {
        "live": await client.is_server_live(url),
        "ready": await client.is_server_ready(url),
        "model ready": await client.is_model_ready(url, "digits"),
    }
    for way in ("json", "bytes"):
        one = InferInput("pictures", list(pictures.shape), "UINT8")
        one.set_data_from_numpy(pictures, binary_data=way == "bytes")
        outputs = [RequestedOutput(name, {"binary_data": way == "bytes"}) for name in ("labels", "scores")]
        request = InferRequest("digits", [one], request_id="k", request_outputs=outputs)
        reply = await client.infer(url, request, model_name="digits")
        arrays = {output.name: output.as_numpy() for output in reply.outputs}
        labels = [text.decode() if isinstance(text, bytes) else str(text) for text in arrays["labels"].ravel()]
        found[way] = {"labels": labels, "scores": arrays["scores"].tolist()}
    try:
        await client.infer(url, request, model_name="nope")
    except httpx.HTTPStatusError as error:
        found["unknown"] = str(error)
    await client.close()
    print(json.dumps(found))


asyncio.run(main())
