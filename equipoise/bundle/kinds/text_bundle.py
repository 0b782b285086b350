"""Published language model of characters: a text in, the characters that may come next out."""

from pathlib import Path

import torch
from torch import Tensor

from equipoise.bundle.kinds.base_bundle import Bundle
from equipoise.bundle.kinds.predictions import NextToken, TextPrediction
from equipoise.bundle.manifest import Manifest
from equipoise.errors import EquipoiseError

UNKNOWN_CHARACTER = "\N{REPLACEMENT CHARACTER}"
MAX_BATCH_WINDOWS = 64  # computed at a time
DEFAULT_NEXT_TOKENS = 5


class TextBundle(Bundle):
    """Published language model of characters.

    Attributes:
        window: characters that the model sees at most
    """

    def __init__(self, folder: Path, manifest: Manifest, engine_name: str | None = None) -> None:
        """Load the verified bundle in `folder`; refuse one that does not run.

        `engine_name` overrides the engine chosen at publication (the fastest), for comparisons.
        """
        if manifest.text is None:
            raise EquipoiseError("bundle-kind", f"{manifest.name} is not a model of texts")
        self.vocabulary, self.window = manifest.text.vocabulary, manifest.text.window
        super().__init__(folder, manifest, engine_name)

    def next_tokens(self, text: str, count: int = DEFAULT_NEXT_TOKENS) -> TextPrediction:
        """Return the `count` most likely characters after a text, and the nats of the text itself.

        The model sees the last characters of the text, as many as its window holds.
        """
        windows = self.encode_text(text)
        logits = torch.cat([self.run_engine(part)[0] for part in windows.split(MAX_BATCH_WINDOWS)])
        return self.read_outputs(windows, logits, len(text), count)

    def encode_text(self, text: str) -> Tensor:
        """Return the tokens of a text as windows (windows, length) of equal length, one after another.

        The last one ends with the text, and so begins inside of the one before it unless the length fits.
        """
        if not isinstance(text, str) or not text:
            actual = "an empty one" if text == "" else type(text).__name__
            raise EquipoiseError(
                "text-invalid", f"{self.name} takes a text, got {actual}", "give a text of at least one character"
            )
        try:
            tokens = torch.from_numpy(self.vocabulary.encode(text))
        except UnicodeEncodeError:  # half a surrogate pair, which JSON can hold
            raise EquipoiseError("text-invalid", f"{self.name} takes a text that is valid Unicode") from None
        if len(tokens) <= self.window:
            return tokens[None]
        starts = [*range(0, len(tokens) - self.window, self.window), len(tokens) - self.window]
        return torch.stack([tokens[start : start + self.window] for start in starts])

    def read_outputs(self, windows: Tensor, logits: Tensor, text_length: int, count: int) -> TextPrediction:
        """Return the prediction that the logits of the windows of a text stand for."""
        log_probabilities = torch.log_softmax(logits.double(), 2)
        best = log_probabilities[-1, -1].topk(min(count, logits.shape[2]))
        characters = [*self.vocabulary.characters, UNKNOWN_CHARACTER]
        tokens = [
            NextToken(characters[index], probability, -nats)
            for index, nats, probability in zip(
                best.indices.tolist(), best.values.tolist(), best.values.exp().tolist(), strict=True
            )
        ]
        return TextPrediction(tokens, mean_nats(windows, log_probabilities, text_length))


def mean_nats(windows: Tensor, log_probabilities: Tensor, text_length: int) -> float | None:
    """Return the mean nats of the characters of a text after its first; None if there are none.

    Each is predicted from those before it in the first window that holds the one before it.
    """
    if text_length == 1:
        return None
    window = windows.shape[1]
    overlap = len(windows) * window - text_length  # of the last window with the one before it
    first = windows[:-1].flatten()
    tokens = torch.cat([first, windows[-1, overlap:]])
    predicted = torch.cat([log_probabilities[:-1].flatten(0, 1), log_probabilities[-1, overlap:]])
    return -float(predicted[:-1].gather(1, tokens[1:, None]).mean())
