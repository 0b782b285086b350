"""Plain FastAPI with an eager detector, no checks at all: uvicorn benchmarks.servers.fastapi_boxes_app:app."""

import io
import json
import os
from pathlib import Path

import numpy as np
import torch
from fastapi import FastAPI, Request
from PIL import Image
from safetensors.torch import load_file

from equipoise.workloads.detection.center_model import CenterModel

torch.set_num_threads(1)
app = FastAPI()
manifest = json.loads(Path(os.environ["BENCH_BUNDLE"], "bundle.json").read_text())
classes, threshold = manifest["classes"], manifest["metrics"]["threshold"]
preprocessing = manifest["boxes"]["image"]["preprocessing"]
mean, std = (torch.tensor(preprocessing[name]).view(3, 1, 1) for name in ("mean", "std"))
model = CenterModel(len(classes)).eval()
model.load_state_dict(load_file(Path(os.environ["BENCH_RUN"], "model.safetensors")))


@app.post("/predict")
async def predict(request: Request):
    """Find the boxes in a picture that has the model's size, in the event loop itself."""
    with Image.open(io.BytesIO(await request.body())) as image:
        pixels = torch.from_numpy(np.array(image.convert("RGB"))).permute(2, 0, 1)
    with torch.inference_mode():
        answers = model(((pixels / 255 - mean) / std)[None])["detections"][0]
    names = ("x", "y", "width", "height", "score")
    return {
        "boxes": [
            dict(zip(names, row[:5], strict=True)) | {"label": classes[int(row[5])]}
            for row in answers[answers[:, 4] >= threshold].tolist()
        ]
    }
