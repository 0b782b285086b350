"""What drift monitoring costs: the same service with and without it, both up at once and measured in turn.

python -m benchmarks.monitoring_cost [--rounds 9] [--only TITLE]
"""

import argparse
from contextlib import ExitStack
from pathlib import Path
from tempfile import TemporaryDirectory

import torch

from benchmarks import http_clients as clients
from benchmarks.server_processes import Server
from benchmarks.serving import (
    API_KEY,
    CLIENT_COUNTS,
    MODEL_INPUTS,
    build_binary_request,
    measure_servers,
    print_server_table,
    render_png,
    serve_equipoise,
)
from equipoise.hardware import describe_hardware
from tests.support.bundles import publish_run, train_short_run


def main() -> None:
    """Print a table for each model and number of clients."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--only", default="", help="measure only the tables whose title contains this")
    arguments = parser.parse_args()
    print(describe_hardware(torch.device("cpu")))
    with TemporaryDirectory() as name, ExitStack() as stack:
        folder = Path(name)
        bundles = {
            model: publish_run(
                train_short_run(folder / model, f"benchmarks.served_models:{model}", examples=320),
                folder / f"{model}-b",
            )
            for model in MODEL_INPUTS
        }
        services = {
            f"drift {'on' if drift else 'off'}": stack.enter_context(serve_equipoise(folder, bundles, drift))
            for drift in (False, True)
        }
        for title, client_counts, request in (
            ("LeNet, PNG of 28x28, eager", CLIENT_COUNTS, build_predict_request("lenet-eager", "lenet")),
            ("LeNet, PNG of 28x28, chosen engine", CLIENT_COUNTS, build_predict_request("lenet", "lenet")),
            ("LeNet, one tensor as bytes, eager", (1, 8), build_binary_request("lenet-eager")),
            (
                "MobileNetV3-small, PNG of 224x224, chosen engine",
                (1, 8),
                build_predict_request("mobilenet", "mobilenet"),
            ),
        ):
            servers = {name: Server(port, request, roots) for name, (port, roots) in services.items()}
            for count in client_counts:
                if arguments.only in (table_title := f"{title}, {count} at a time"):
                    print_server_table(table_title, measure_servers(servers, count, arguments.rounds))


def build_predict_request(path: str, model: str) -> bytes:
    """Build a prediction request with a random image."""
    return clients.build_request(
        f"/models/{path}/predict", render_png(*MODEL_INPUTS[model]), "image/png", x_api_key=API_KEY
    )


if __name__ == "__main__":
    main()
