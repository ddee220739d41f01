"""Errors of mapped_linear_attention name the argument, what was wanted and given."""

import re

import pytest
import torch

from tarn import ops
from tarn.ops import mapped_linear_attention


@pytest.fixture(autouse=True)
def seed():
    torch.manual_seed(0)


Q, K, V = torch.zeros(2, 4, 2, 5), torch.zeros(2, 4, 2, 5), torch.zeros(2, 4, 2, 3)
W = torch.zeros(5, 3)


def call(**options):
    return mapped_linear_attention(
        options.pop("queries", Q), options.pop("keys", K), options.pop("values", V), **options
    )


S_OF = lambda C: (torch.zeros(2, 2, C, 3), torch.zeros(2, 2, C))  # noqa: E731
ERRORS = [
    (ValueError, lambda: call(feature_map="elu"), "feature_map: want one of elu1, identity, relu"),
    (ValueError, lambda: call(feature_map="favor"), "omega: want [d_key, n_freq], got none"),
    (ValueError, lambda: call(feature_map="rff", omega=W.T), "rff: omega: want [5, n_freq]"),
    (ValueError, lambda: call(omega=W), "omega: want none, as the map draws no directions"),
    (ValueError, lambda: call(softmax_temp=1.0), "elu1: softmax_temp: want none, as the map has"),
    (
        ValueError,
        lambda: call(feature_map="rff", omega=W, stabilise=True),
        "stabilise: want favor or favor-positive, whose features are exponentials, got rff",
    ),
    (ValueError, lambda: call(feature_map=torch.exp, omega=W), "omega: want None with a function"),
    (
        ValueError,
        lambda: call(feature_map=torch.exp, stabilise=True),
        "stabilise: want False with a function, got True",
    ),
    (
        ValueError,
        lambda: call(feature_map=lambda x: x.sum(-1)),
        "feature_map: want phi(queries) of shape [2, 4, 2, C], got [2, 4, 2]",
    ),
    (TypeError, lambda: call(feature_map=3), "feature_map: want a name, a function or a pair"),
    (TypeError, lambda: call(feature_map=(torch.exp, 1)), "feature_map: want a name, a function"),
    (ValueError, lambda: call(denominator="plain"), "denominator: want one of 'exact', 'compat',"),
    (ValueError, lambda: call(keys=K[:, :, :1]), "keys: want [2, 4, 2, 5]"),
    (ValueError, lambda: call(key_mask=torch.ones(2, 3).bool()), "key_mask: want [2, 4], got"),
    (
        ValueError,
        lambda: call(feature_map="poly2", initial_state=S_OF(21)),
        "state.extra: want [2, 2], got none",
    ),
    (
        ValueError,
        lambda: call(initial_state=(*S_OF(5), torch.zeros(2, 2))),
        "state.extra: want none, got a tensor",
    ),
    (
        ValueError,
        lambda: call(feature_map="poly2", initial_state=(*S_OF(5), torch.zeros(2, 2))),
        "initial_S: want [2, 2, 21, 4], got [2, 2, 5, 4]",
    ),
    (
        ValueError,
        lambda: call(
            feature_map="favor",
            omega=W,
            stabilise=True,
            initial_state=(*S_OF(6), torch.zeros(2, 2)),
        ),
        "state.extra: want [2, 2, 6], got [2, 2]",
    ),
    (
        TypeError,
        lambda: call(initial_state=torch.zeros(3)),
        "initial_state: want None, a LinearState or a pair",
    ),
    (
        ValueError,
        lambda: ops.causal_dot_product(*(x.transpose(1, 2) for x in (Q, K[:, :, :1], V))),
        "causal_dot_product: keys: want [2, 2, 4, 5], got [2, 1, 4, 5]",
    ),
]


@pytest.mark.parametrize("kind, action, text", ERRORS, ids=[t for _, _, t in ERRORS])
def test_errors(kind, action, text):
    with pytest.raises(kind, match=re.escape(text)):
        action()
