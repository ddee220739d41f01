"""A softmax language model as a user writes it in plain PyTorch today: pre-norm
layers, one product for queries, keys and values, scaled_dot_product_attention, a
cache of keys and values that is allocated once."""

import torch
from torch.nn import functional as F


class Layer(torch.nn.Module):
    def __init__(self, width, heads, hidden):
        super().__init__()
        self.heads = heads
        self.norm1, self.norm2 = torch.nn.LayerNorm(width), torch.nn.LayerNorm(width)
        self.projections = torch.nn.Linear(width, 3 * width)
        self.out = torch.nn.Linear(width, width)
        self.up, self.down = torch.nn.Linear(width, hidden), torch.nn.Linear(hidden, width)

    def _heads(self, x):
        batch, seq_len, _ = x.shape
        q, k, v = self.projections(self.norm1(x)).chunk(3, -1)
        return (y.view(batch, seq_len, self.heads, -1).transpose(1, 2) for y in (q, k, v))

    def _rest(self, x, attended):
        x = x + self.out(attended.transpose(1, 2).flatten(2))
        return x + self.down(F.gelu(self.up(self.norm2(x))))

    def forward(self, x):
        """[B, T, D] -> [B, T, D]."""
        return self._rest(x, F.scaled_dot_product_attention(*self._heads(x), is_causal=True))

    def step(self, x, cache, place):
        """[B, 1, D]; cache [2, B, H, T, D / H] is filled at `place`."""
        q, k, v = self._heads(x)
        cache[0, :, :, place : place + 1], cache[1, :, :, place : place + 1] = k, v
        keys, values = cache[:, :, :, : place + 1]
        return self._rest(x, F.scaled_dot_product_attention(q, keys, values))


class Gpt(torch.nn.Module):
    """Tokens [B, T] -> logits [B, T, V]; learned positions, tied head."""

    def __init__(self, vocab, longest, layers, width, heads, hidden):
        super().__init__()
        self.tokens = torch.nn.Embedding(vocab, width)
        self.places = torch.nn.Embedding(longest, width)
        self.layers = torch.nn.ModuleList(Layer(width, heads, hidden) for _ in range(layers))
        self.norm = torch.nn.LayerNorm(width)

    def _head(self, x):
        return F.linear(self.norm(x), self.tokens.weight)

    def forward(self, tokens):
        x = self.tokens(tokens) + self.places.weight[: tokens.shape[1]]
        for layer in self.layers:
            x = layer(x)
        return self._head(x)

    def caches(self, batch, longest):
        width, heads = self.tokens.weight.shape[1], self.layers[0].heads
        shape = (2, batch, heads, longest, width // heads)
        return [torch.zeros(shape) for _ in self.layers]

    def step(self, token, caches, place):
        """Token [B] at a position -> logits [B, V]."""
        x = (self.tokens(token) + self.places.weight[place])[:, None]
        for layer, cache in zip(self.layers, caches):
            x = layer.step(x, cache, place)
        return self._head(x)[:, 0]
