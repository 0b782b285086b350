"""Ask a running service for labels by the Open Inference Protocol, with Triton's client instead of one of ours.

    pip install 'tritonclient[http]'
    equipoise serve bundle=bundles/digits
    python examples/client_triton.py 127.0.0.1:8000 digits one.png two.jpg

Clients of KServe and other servers of this protocol work in the same way. All images travel in one request, as files:
the service decodes and resizes them.
"""

import argparse
from pathlib import Path

import numpy as np
import tritonclient.http as triton


def predict_images(client: triton.InferenceServerClient, model: str, paths: list[Path]) -> tuple[list[str], np.ndarray]:
    """Return the label of each image file, and the scores of all classes as an array (images, classes)."""
    images = triton.InferInput("encoded", [len(paths)], "BYTES")
    images.set_data_from_numpy(np.array([path.read_bytes() for path in paths], object))
    result = client.infer(model, [images])
    return [label.decode() for label in result.as_numpy("labels")], result.as_numpy("scores")


def main() -> None:
    """Print what the model takes and returns, and a line for each image named on the command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("service", help="host and port of the service, such as 127.0.0.1:8000")
    parser.add_argument("model", help="name of the model")
    parser.add_argument("images", nargs="+", type=Path, help="image files")
    arguments = parser.parse_args()
    client = triton.InferenceServerClient(arguments.service)
    try:
        for kind, tensors in client.get_model_metadata(arguments.model).items():
            if kind in ("inputs", "outputs"):
                print(f"{kind}: " + ", ".join(f"{tensor['name']} {tensor['datatype']}" for tensor in tensors))
        labels, scores = predict_images(client, arguments.model, arguments.images)
        for path, label, score in zip(arguments.images, labels, scores.max(1), strict=True):
            print(f"{path}: {label} ({score:.0%})")
    finally:
        client.close()


if __name__ == "__main__":
    main()
