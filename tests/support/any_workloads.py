"""Workloads of every structure of data: tensors, tuples, dicts and data sets whose examples have unequal lengths."""

import numpy as np
import torch
from torch import nn
from torch.nn import functional as F

from equipoise.workloads import Split, Workload

VOCABULARY, WIDTH, IGNORED = 11, 8, -100
SPLIT_SIZES = {"train": 96, "validation": 37, "reference": 8, "test": 9}


def build_splits(build, **sizes):
    return {name: build(count, seed) for seed, (name, count) in enumerate((SPLIT_SIZES | sizes).items())}


def mean_squared_error(outputs, targets):
    return F.mse_loss(outputs, targets)


def squared_errors(outputs, targets):
    return (outputs - targets).square().flatten(1).mean(1)


def error_and_spread(outputs, targets):
    return torch.cat([(outputs - targets).square(), targets, targets.square()], 1)


def r_squared(rows):
    """1 - residual / total sum of squares, from rows of squared error, target and squared target."""
    error, target, square = rows.mean(0)
    return float(1 - error / (square - target**2))


class TableModel(nn.Module):
    """Numbers and two categories in, one number out."""

    def __init__(self):
        super().__init__()
        self.embedding = nn.Embedding(5, 3)
        self.layers = nn.Sequential(nn.Linear(4 + 6, 16), nn.GELU(), nn.LayerNorm(16), nn.Linear(16, 1))

    def forward(self, numbers, categories):
        return self.layers(torch.cat([numbers, self.embedding(categories).flatten(1)], 1))


def table(config=None, **changes):
    """Regression on a tuple of numbers and categories, scored by R2 of all rows."""

    def build(count, seed):
        generator = torch.Generator().manual_seed(seed)
        numbers = torch.randn(count, 4, generator=generator)
        categories = torch.randint(0, 5, (count, 2), generator=generator)
        return Split((numbers, categories), numbers[:, :1] + (categories[:, :1] == 2) + numbers[:, 1:2] ** 2)

    fields = {
        "name": "table",
        **build_splits(build),
        "model": TableModel,
        "target": None,
        "loss": mean_squared_error,
        "metric": error_and_spread,
        "score": r_squared,
        "defaults": {"optimizer": "adamw", "lr": 0.01, "clip_norm": 0.5, "decay_on": "matrices"},
    }
    return Workload(**fields | changes)


class TinyLanguageModel(nn.Module):
    """Tokens in, a score for each next token out; the embedding is the output layer too."""

    def __init__(self, dropout=0.0):
        super().__init__()
        self.embedding = nn.Embedding(VOCABULARY, WIDTH)
        self.projection = nn.Linear(WIDTH, 3 * WIDTH, bias=False)  # a bias of keys has a gradient of rounding alone
        self.norm = nn.LayerNorm(WIDTH)
        self.head = nn.Linear(WIDTH, VOCABULARY, bias=False)
        self.head.weight = self.embedding.weight
        self.dropout = dropout

    def forward(self, tokens):
        x = self.embedding(tokens)
        query, key, value = self.projection(self.norm(x)).chunk(3, -1)
        dropout = self.dropout if self.training else 0.0
        x = x + F.scaled_dot_product_attention(query, key, value, is_causal=True, dropout_p=dropout)
        return self.head(x)


def token_loss(logits, targets):
    """Mean over the real tokens of the batch."""
    return F.cross_entropy(logits.flatten(0, 1), targets.flatten(), ignore_index=IGNORED)


def sentence_losses(logits, targets):
    """Mean over the real tokens of each sentence."""
    losses = F.cross_entropy(logits.transpose(1, 2), targets, ignore_index=IGNORED, reduction="none")
    return losses.sum(1) / (targets != IGNORED).sum(1)


def mean_sentence_loss(logits, targets):
    return sentence_losses(logits, targets).mean()


def text(config=None, **changes):
    """Sequences of equal length in memory; next tokens are targets."""

    def build(count, seed):
        tokens = torch.randint(0, VOCABULARY, (count, 13), generator=torch.Generator().manual_seed(seed)).cumsum(1)
        tokens %= VOCABULARY
        return Split(tokens[:, :-1], tokens[:, 1:])

    fields = {
        "name": "text",
        **build_splits(build),
        "model": TinyLanguageModel,
        "target": 0.5,
        "lower_is_better": True,
        "loss": token_loss,
        "metric": sentence_losses,
        "defaults": {"optimizer": "adamw", "lr": 0.01, "clip_norm": 0.5, "weight_decay": 0.1, "beta2": 0.95},
    }
    return Workload(**fields | changes)


class Sentences:
    """Data set of sentences of unequal lengths, made when they are read."""

    def __init__(self, count, seed):
        self.count, self.seed = count, seed

    def __len__(self):
        return self.count

    def __getitem__(self, index):
        if not 0 <= index < self.count:
            raise IndexError(index)
        rng = np.random.default_rng([self.seed, index])
        tokens = torch.from_numpy(rng.integers(0, VOCABULARY, int(rng.integers(3, 13)))).cumsum(0) % VOCABULARY
        return tokens[:-1], tokens[1:]


def pad_sentences(examples):
    """Pad to the longest sentence of the batch; padded targets are left out of the loss."""
    inputs = nn.utils.rnn.pad_sequence([tokens for tokens, _ in examples], batch_first=True)
    targets = nn.utils.rnn.pad_sequence([t for _, t in examples], batch_first=True, padding_value=IGNORED)
    return {"tokens": inputs}, targets


def sentences(config=None, **changes):
    """Sentences of unequal lengths, padded; a loss over all real tokens of the batch."""
    splits = build_splits(lambda count, seed: Split(Sentences(count, seed), collate=pad_sentences))
    return text(**{"name": "sentences", **splits} | changes)


def equal_sentences(config=None, **changes):
    """Sentences of unequal lengths; each counts the same in the loss."""
    return sentences(**{"name": "equal-sentences", "loss": mean_sentence_loss} | changes)
