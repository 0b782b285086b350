"""What it costs to watch for drift: the same service with and without, both up at once and asked in turn.

python -m benchmarks.monitoring_cost [--rounds 9] [--only TITLE]
"""

import argparse
from contextlib import ExitStack
from pathlib import Path
from tempfile import TemporaryDirectory

import torch

from benchmarks import http_clients as clients
from benchmarks.serving import AT_A_TIME, KEY, MODELS, Server, binary, compared, ours, picture, table
from equipoise.hardware import describe_hardware
from tests.support.bundles import published, short_run


def main() -> None:
    """Print a table for each model."""
    asked = argparse.ArgumentParser(description=__doc__)
    asked.add_argument("--rounds", type=int, default=9)
    asked.add_argument("--only", default="", help="part of the titles of tables")
    given = asked.parse_args()
    print(", ".join(f"{name} {value}" for name, value in describe_hardware(torch.device("cpu")).items()))
    with TemporaryDirectory() as name, ExitStack() as stack:
        place = Path(name)
        bundles = {
            model: published(
                short_run(place / model, f"benchmarks.served_models:{model}", examples=320), place / f"{model}-b"
            )
            for model in MODELS
        }
        both = {
            f"drift {'on' if drift else 'off'}": stack.enter_context(ours(place, bundles, drift))
            for drift in (False, True)
        }
        for title, at_a_time, request in (
            ("LeNet, PNG of 28x28, eager", AT_A_TIME, predict("lenet-eager", "lenet")),
            ("LeNet, PNG of 28x28, chosen engine", AT_A_TIME, predict("lenet", "lenet")),
            ("LeNet, one tensor as bytes, eager", (1, 8), binary("lenet-eager")),
            ("MobileNetV3-small, PNG of 224x224, chosen engine", (1, 8), predict("mobilenet", "mobilenet")),
        ):
            servers = {name: Server(port, request, roots) for name, (port, roots) in both.items()}
            for count in at_a_time:
                if given.only in (whole := f"{title}, {count} at a time"):
                    table(whole, compared(servers, count, given.rounds))


def predict(path: str, model: str) -> bytes:
    """A request for a label."""
    return clients.request(f"/models/{path}/predict", picture(*MODELS[model]), "image/png", x_api_key=KEY)


if __name__ == "__main__":
    main()
