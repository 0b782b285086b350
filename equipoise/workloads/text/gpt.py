"""GPT: a decoder-only transformer, small enough to learn on one core.

Pre-norm blocks of causal self-attention and an MLP with GELU, learned positions, and scores from the same matrix that
embeds the tokens (Radford et al., Language Models are Unsupervised Multitask Learners, 2019).
"""

import math

import torch
from torch import Tensor, nn
from torch.nn import functional as F

INIT_STD = 0.02


class GPT(nn.Module):
    """Transformer that maps tokens (batch, time) to scores of the next token (batch, time, vocabulary)."""

    def __init__(self, vocabulary_size: int, context: int, layers: int, width: int, heads: int) -> None:
        super().__init__()
        self.token_embedding = nn.Embedding(vocabulary_size, width)
        self.position_embedding = nn.Embedding(context, width)
        self.blocks = nn.ModuleList([TransformerBlock(width, heads) for _ in range(layers)])
        self.norm = nn.LayerNorm(width)
        self._initialize_weights()

    def forward(self, tokens: Tensor) -> Tensor:
        positions = torch.arange(tokens.shape[1], device=tokens.device)
        x = self.token_embedding(tokens) + self.position_embedding(positions)
        for block in self.blocks:
            x = block(x)
        return F.linear(self.norm(x), self.token_embedding.weight)

    def _initialize_weights(self) -> None:
        """Draw matrices from N(0, 0.02); those that add to the residual stream less, so that depth keeps its size."""
        residual_std = INIT_STD / math.sqrt(2 * len(self.blocks))
        for name, parameter in self.named_parameters():
            if parameter.ndim >= 2:
                nn.init.normal_(parameter, std=residual_std if name.endswith("out.weight") else INIT_STD)
            elif name.endswith("bias"):
                nn.init.zeros_(parameter)


class TransformerBlock(nn.Module):
    """Transformer block: attention, then an MLP four times as wide, each added to what it reads."""

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.attention_norm = nn.LayerNorm(width)
        self.attention = CausalAttention(width, heads)
        self.mlp_norm = nn.LayerNorm(width)
        self.mlp = FeedForward(width)

    def forward(self, x: Tensor) -> Tensor:
        x = x + self.attention(self.attention_norm(x))
        y: Tensor = x + self.mlp(self.mlp_norm(x))
        return y


class CausalAttention(nn.Module):
    """Self-attention in which a position reads itself and those before it."""

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.query_key_value = nn.Linear(width, 3 * width)
        self.out = nn.Linear(width, width)

    def forward(self, x: Tensor) -> Tensor:
        query, key, value = (
            part.unflatten(2, (self.heads, -1)).transpose(1, 2) for part in self.query_key_value(x).chunk(3, dim=2)
        )
        read = F.scaled_dot_product_attention(query, key, value, is_causal=True)
        y: Tensor = self.out(read.transpose(1, 2).flatten(2))
        return y


class FeedForward(nn.Module):
    """Two dense layers with GELU between them."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.hidden = nn.Linear(width, 4 * width)
        self.out = nn.Linear(4 * width, width)

    def forward(self, x: Tensor) -> Tensor:
        y: Tensor = self.out(F.gelu(self.hidden(x)))
        return y
