"""The family of ema.h in Python: its row of the registry and its module.

u_t = W_in x_t,  h_t = a h_{t-1} + (1 - a) u_t,  y_t = W_out h_t,
a = least + (1 - least) sigmoid(decay)
"""

import torch

from tarn import nn


class Ema(nn.Mixer):
    """Mean of projected rows that forgets with a learned decay, one per channel."""

    def __init__(self, view):
        super().__init__(view)
        width = view["d_model"]
        self.in_projection = torch.nn.Linear(width, width, bias=False)
        self.decay = torch.nn.Parameter(torch.randn(width))
        self.out_projection = torch.nn.Linear(width, width, bias=False)
        self.least = view["ema_least"]

    def mix(self, x, kept, state):
        a = self.least + (1 - self.least) * self.decay.sigmoid()
        rows, average = [], state["average"]
        for u, keep in zip(self.in_projection(x).unbind(1), kept.unbind(1), strict=True):
            average = torch.where(keep[:, None], a * average + (1 - a) * u, average)
            rows.append(average)
        mixed = torch.stack(rows, 1) if rows else x
        return self.out_projection(mixed), {"average": average}


def register():
    nn.register_mixer(
        "ema",
        Ema,
        weights={
            "in_projection.weight": ["d_model", "d_model"],
            "decay": ["d_model"],
            "out_projection.weight": ["d_model", "d_model"],
        },
        state=[{"name": "average", "shape": ["d_model"]}],
        keys=[
            {
                "name": "ema_least",
                "key": "least",
                "help": "of what a row keeps of the past, in 'ema'",
                "min": 0.0,
                "max": 0.9,
                "default": 0.0,
            }
        ],
    )
