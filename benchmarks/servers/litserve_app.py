"""LitServe set up as in its documentation: python -m benchmarks.servers.litserve_app PORT [BATCH]."""

import base64
import sys

import litserve

from benchmarks.servers.model import PeerModel


class ImageApi(litserve.LitAPI):
    """API with one worker, which takes all waiting requests as one batch if BATCH is above 1."""

    def setup(self, device):
        self.model = PeerModel()

    def decode_request(self, request):
        return self.model.decode_image(base64.b64decode(request["image"]))

    def predict(self, inputs):
        if isinstance(inputs, list):
            return self.model.predict_scores(inputs)
        return self.model.predict_scores([inputs])[0]

    def batch(self, inputs):
        return inputs

    def unbatch(self, output):
        return output

    def encode_response(self, output):
        return self.model.build_reply(output)


if __name__ == "__main__":
    batch = int(sys.argv[2])
    api = ImageApi(max_batch_size=batch, batch_timeout=0.0) if batch > 1 else ImageApi()
    server = litserve.LitServer(api, accelerator="cpu", workers_per_device=1)
    server.run(host="127.0.0.1", port=int(sys.argv[1]), log_level="warning", generate_client_file=False)
