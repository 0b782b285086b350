"""Send requests to a running service with kserve's client, in kserve's own environment; JSON on stdin and stdout."""

import asyncio
import json
import sys

import httpx
import numpy as np
from kserve import InferenceRESTClient, InferInput, InferRequest, RESTConfig
from kserve.protocol.infer_type import RequestedOutput


async def main():
    """Print as JSON what the service replies to the images on stdin."""
    settings = json.load(sys.stdin)
    url = f"http://127.0.0.1:{settings['port']}"
    images = np.array(settings["pictures"], np.uint8)
    client = InferenceRESTClient(RESTConfig(protocol="v2", retries=0))
    replies = {
        "live": await client.is_server_live(url),
        "ready": await client.is_server_ready(url),
        "model ready": await client.is_model_ready(url, "digits"),
    }
    for encoding in ("json", "bytes"):
        infer_input = InferInput("pictures", list(images.shape), "UINT8")
        infer_input.set_data_from_numpy(images, binary_data=encoding == "bytes")
        outputs = [RequestedOutput(name, {"binary_data": encoding == "bytes"}) for name in ("labels", "scores")]
        request = InferRequest("digits", [infer_input], request_id="k", request_outputs=outputs)
        reply = await client.infer(url, request, model_name="digits")
        arrays = {output.name: output.as_numpy() for output in reply.outputs}
        labels = [label.decode() if isinstance(label, bytes) else str(label) for label in arrays["labels"].ravel()]
        replies[encoding] = {"labels": labels, "scores": arrays["scores"].tolist()}
    try:
        await client.infer(url, request, model_name="nope")
    except httpx.HTTPStatusError as error:
        replies["unknown"] = str(error)
    await client.close()
    print(json.dumps(replies))


asyncio.run(main())
