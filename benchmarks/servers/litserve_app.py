"""LitServe, by its documentation: python -m benchmarks.servers.litserve_app PORT [BATCH]"""

import base64
import sys

import litserve

from benchmarks.servers.model import Net


class Api(litserve.LitAPI):
    """One worker, which takes what waits as a batch if BATCH is above 1."""

    def setup(self, device):
        self.net = Net()

    def decode_request(self, request):
        return self.net.decode(base64.b64decode(request["image"]))

    def predict(self, inputs):
        if isinstance(inputs, list):
            return self.net.scores(inputs)
        return self.net.scores([inputs])[0]

    def batch(self, inputs):
        return inputs

    def unbatch(self, output):
        return output

    def encode_response(self, output):
        return self.net.reply(output)


if __name__ == "__main__":
    batch = int(sys.argv[2])
    api = Api(max_batch_size=batch, batch_timeout=0.0) if batch > 1 else Api()
    server = litserve.LitServer(api, accelerator="cpu", workers_per_device=1)
    server.run(host="127.0.0.1", port=int(sys.argv[1]), log_level="warning", generate_client_file=False)
