"""Ask a running service for the labels of images, with Python's standard library alone.

    equipoise serve bundle=bundles/digits
    python examples/client_python.py http://127.0.0.1:8000 one.png two.jpg

A service that listens beyond this machine requires a key: give the file that holds it with --key. A request that finds
the queue full (status 429) is sent again after the time that the service names, a few times at most.
"""

import argparse
import json
import sys
import time
from pathlib import Path
from typing import Any
from urllib.error import HTTPError, URLError
from urllib.request import Request, urlopen

MAX_ATTEMPTS = 5
TIMEOUT_SECONDS = 10


def predict_label(service: str, image: bytes, key: str | None = None) -> dict[str, Any]:
    """Return the service's reply for one image file: label, score, all scores, model and version."""
    headers = {"content-type": "application/octet-stream"}  # any format that the service knows
    if key:
        headers["authorization"] = f"Bearer {key}"
    request = Request(f"{service}/predict", image, headers)
    for _ in range(MAX_ATTEMPTS):
        try:
            with urlopen(request, timeout=TIMEOUT_SECONDS) as reply:
                return json.load(reply)
        except HTTPError as error:
            if error.code != 429:
                raise RuntimeError(json.load(error)["error"]) from None
            time.sleep(float(error.headers["retry-after"]))
    raise RuntimeError(f"the service was busy {MAX_ATTEMPTS} times in a row; send fewer requests at once")


def main() -> int:
    """Print a line for each image named on the command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("service", help="address of the service, such as http://127.0.0.1:8000")
    parser.add_argument("images", nargs="+", type=Path, help="image files")
    parser.add_argument("--key", type=Path, help="file that holds an API key")
    arguments = parser.parse_args()
    key = arguments.key.read_text().strip() if arguments.key else None
    for path in arguments.images:
        try:
            reply = predict_label(arguments.service, path.read_bytes(), key)
        except (RuntimeError, URLError) as error:
            print(f"cannot predict {path}: {error}", file=sys.stderr)
            return 1
        print(f"{path}: {reply['label']} ({reply['score']:.0%})")
    return 0


if __name__ == "__main__":
    sys.exit(main())
