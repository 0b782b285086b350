"""A language model of the plays of Shakespeare with its reference profile, and streams of texts to it."""

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
import torch
from torch import Tensor, nn

from equipoise.drift.charts.sums import FixedPointSums
from equipoise.drift.detector import StreamDetector
from equipoise.drift.profiling.bundle_profile import collect_answered_windows
from equipoise.drift.profiling.row_profile import (
    AnsweredTexts,
    build_text_profile,
    concat_answered_texts,
    extract_text_features,
)
from equipoise.drift.reference.profile import ReferenceProfile
from equipoise.texts.vocabulary import Vocabulary
from equipoise.workloads.text.models import language_model_factory
from equipoise.workloads.text.nats import mean_token_nats
from equipoise.workloads.text.windows import cut_windows
from tests.support.foreign_texts import list_windows

WINDOW_LENGTH = 64  # characters, as of the text workload
BATCH_WINDOWS = 256
PIECE_STEPS = 20  # steps of texts answered at once: most streams end at an early alarm
Predictor = Callable[[Tensor], Tensor]
"""maps tokens (n, length) to scores of the next token (n, length, vocabulary)"""


@dataclass(frozen=True, eq=False)
class WatchedLanguageModel:
    """Language model and its reference profile."""

    predict: Predictor
    vocabulary: Vocabulary
    profile: ReferenceProfile

    @classmethod
    def build(
        cls, predict: Predictor, vocabulary: Vocabulary, reference: Sequence[str], holdout: Sequence[str] = ()
    ) -> "WatchedLanguageModel":
        """Build the profile of whole windows, as publishing does."""
        answered, held_out = (
            answer_texts(predict, vocabulary, part) if part else None for part in (reference, holdout)
        )
        assert answered
        return cls(predict, vocabulary, build_text_profile(answered, held_out, vocabulary.characters))

    def sum_steps(self, texts: Sequence[str], step: int) -> list[FixedPointSums]:
        """Return the sums of consecutive steps of texts."""
        features = extract_text_features(self.profile, answer_texts(self.predict, self.vocabulary, texts))
        starts = range(0, len(texts) - step + 1, step)
        return [self.profile.baseline.sum_features(features.select(np.arange(at, at + step))) for at in starts]

    def watch(
        self, clean: Sequence[str], changed: Sequence[str], run_length: float, step: int = 16
    ) -> tuple[StreamDetector, int | None]:
        """Return the detector of a stream that changes, at its alarm, and how many changed texts it took.

        The number is negative for a false alarm before the change, and None without an alarm.
        """
        detector, texts = StreamDetector.start(self.profile, run_length), [*clean, *changed]
        for start in range(0, len(texts), PIECE_STEPS * step):
            for sums in self.sum_steps(texts[start : start + PIECE_STEPS * step], step):
                if detector.add_sums(sums, float(detector.observed_images)):
                    return detector, detector.observed_images - len(clean)
        return detector, None


def answer_texts(predict: Predictor, vocabulary: Vocabulary, texts: Sequence[str]) -> AnsweredTexts:
    """Return texts of at most a window with how well a model predicts them; those of one length are one batch."""
    lengths = {len(text) for text in texts}
    if len(lengths) == 1:
        return concat_answered_texts(
            [
                replace_texts(
                    answer_tokens(predict, vocabulary, texts[start : start + BATCH_WINDOWS]),
                    texts[start : start + BATCH_WINDOWS],
                )
                for start in range(0, len(texts), BATCH_WINDOWS)
            ]
        )
    return concat_answered_texts([replace_texts(answer_tokens(predict, vocabulary, [text]), [text]) for text in texts])


def answer_tokens(predict: Predictor, vocabulary: Vocabulary, texts: Sequence[str]) -> AnsweredTexts:
    """Return texts of one length, with one character in the place of all that the model does not know."""
    tokens = torch.from_numpy(np.stack([vocabulary.encode(text) for text in texts]))
    with torch.no_grad():
        return collect_answered_windows(vocabulary, tokens, predict(tokens))


def replace_texts(answered: AnsweredTexts, texts: Sequence[str]) -> AnsweredTexts:
    """Return the answers with the texts as they were sent."""
    return AnsweredTexts(list(texts), answered.nats_per_token, answered.features, answered.token_nats)


def train_gpt(text: str, vocabulary: Vocabulary, window_count: int, seed: int = 0) -> nn.Module:
    """Train the small GPT of the text workload on windows of a text, in batches of 8."""
    torch.manual_seed(seed)
    model = language_model_factory("gpt", len(vocabulary), WINDOW_LENGTH)()
    inputs, targets = cut_windows(vocabulary.encode(text), WINDOW_LENGTH)
    optimizer = torch.optim.AdamW(model.parameters(), 3e-3, betas=(0.9, 0.95), weight_decay=0.1)
    for batch in torch.randint(0, len(inputs), (window_count,)).split(8):
        optimizer.zero_grad()
        mean_token_nats(model(inputs[batch]), targets[batch]).backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
    return model.eval()


def fit_bigrams(text: str, vocabulary: Vocabulary) -> Predictor:
    """Return a model that predicts a character by the one before it, as often as they follow each other in a text."""
    counts = torch.full((len(vocabulary), len(vocabulary)), 0.01)
    tokens = vocabulary.encode(text).tolist()
    for (first, second), count in Counter(pairwise(tokens)).items():
        counts[first, second] += count
    scores = (counts / counts.sum(1, keepdim=True)).log()
    return lambda tokens: scores[tokens]


def cut_play(text: str, offset: int = 0) -> list[str]:
    """Return the whole windows of a play."""
    return list_windows(text, WINDOW_LENGTH, offset)
