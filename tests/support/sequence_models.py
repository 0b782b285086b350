"""Small models of text and tables as people write them, and the way from a model to its program in a bundle."""

import json

import torch
from safetensors.torch import load, save
from torch import nn
from torch.nn import functional as F

from equipoise.bundle.graph import collect_weights, export_model, serialize_graph
from equipoise.bundle.program import load_program

VOCABULARY, CONTEXT, WIDTH, HEADS = 23, 16, 16, 2


class GptBlock(nn.Module):
    """Transformer block with causal attention."""

    def __init__(self):
        super().__init__()
        self.attention_norm, self.mlp_norm = nn.LayerNorm(WIDTH), nn.LayerNorm(WIDTH)
        self.qkv, self.projection = nn.Linear(WIDTH, 3 * WIDTH), nn.Linear(WIDTH, WIDTH)
        self.mlp = nn.Sequential(nn.Linear(WIDTH, 4 * WIDTH), nn.GELU(), nn.Linear(4 * WIDTH, WIDTH))

    def forward(self, hidden):
        batch, length, _ = hidden.shape
        parts = self.qkv(self.attention_norm(hidden)).view(batch, length, 3, HEADS, WIDTH // HEADS)
        query, key, value = parts.permute(2, 0, 3, 1, 4)
        mixed = F.scaled_dot_product_attention(query, key, value, is_causal=True)
        hidden = hidden + self.projection(mixed.transpose(1, 2).reshape(batch, length, WIDTH))
        return hidden + self.mlp(self.mlp_norm(hidden))


class Gpt(nn.Module):
    """Language model of two blocks, whose head shares its weight with the embedding of tokens."""

    def __init__(self):
        super().__init__()
        self.tokens, self.positions = nn.Embedding(VOCABULARY, WIDTH), nn.Embedding(CONTEXT, WIDTH)
        self.blocks = nn.Sequential(GptBlock(), GptBlock())
        self.norm, self.head = nn.LayerNorm(WIDTH), nn.Linear(WIDTH, VOCABULARY, bias=False)
        self.head.weight = self.tokens.weight

    def forward(self, tokens):
        hidden = self.tokens(tokens) + self.positions(torch.arange(tokens.shape[1], device=tokens.device))
        return self.head(self.norm(self.blocks(hidden)))


class MaskedAttention(nn.Module):
    """Causal attention with a stored mask and minus infinity, which takes at most the mask's length."""

    def __init__(self):
        super().__init__()
        self.tokens, self.qkv = nn.Embedding(VOCABULARY, WIDTH), nn.Linear(WIDTH, 3 * WIDTH)
        self.register_buffer("mask", torch.tril(torch.ones(CONTEXT, CONTEXT)))

    def forward(self, tokens):
        length = tokens.shape[1]
        query, key, value = self.qkv(self.tokens(tokens)).split(WIDTH, dim=2)
        scores = query @ key.transpose(-2, -1) / WIDTH**0.5
        scores = scores.masked_fill(self.mask[:length, :length] == 0, float("-inf"))
        return scores.softmax(-1) @ value


class TableModel(nn.Module):
    """Classifier of rows with two categories and four numbers, which returns a dictionary."""

    def __init__(self):
        super().__init__()
        self.colors, self.shapes = nn.Embedding(5, 3), nn.Embedding(7, 4)
        self.scaling = nn.BatchNorm1d(4)
        self.layers = nn.Sequential(nn.Linear(11, 16), nn.ReLU(), nn.Dropout(0.2), nn.Linear(16, 3))

    def forward(self, numbers, *, categories):
        columns = [self.colors(categories[:, 0]), self.shapes(categories[:, 1]), self.scaling(numbers)]
        logits = self.layers(torch.cat(columns, 1))
        return {"logits": logits, "labels": logits.argmax(1)}


class RecurrentModel(nn.Module):
    """Classifier of token sequences by the last output of an nn.LSTM, nn.GRU or nn.RNN."""

    def __init__(self, kind):
        super().__init__()
        self.tokens = nn.Embedding(VOCABULARY, 6)
        self.recurrent = getattr(nn, kind)(6, 5, num_layers=2, batch_first=True, bidirectional=True)
        self.head = nn.Linear(10, 3)

    def forward(self, tokens):
        return self.head(self.recurrent(self.tokens(tokens))[0][:, -1])


def build_model(factory, *arguments):
    """Build a model with seeded weights, in evaluation mode."""
    torch.manual_seed(0)
    return factory(*arguments).eval()


def draw_tokens(batch, length, vocabulary=VOCABULARY):
    """Draw a batch of token sequences."""
    return torch.randint(vocabulary, (batch, length), generator=torch.manual_seed(100 * batch + length))


def draw_rows(count):
    """Draw the numbers and the categories of `TableModel`."""
    generator = torch.manual_seed(count)
    return torch.randn(count, 4, generator=generator), torch.randint(5, (count, 2), generator=generator)


def publish_and_load(model, example, keywords=None):
    """Return the program of a model as a bundle holds it: through JSON and safetensors."""
    exported = export_model(model, example, keywords)
    instructions = json.loads(json.dumps(serialize_graph(exported), allow_nan=False))
    return load_program(instructions, load(save(collect_weights(exported))))
