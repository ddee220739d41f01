"""Every operator as a function of one tensor x [2, 6, 2, 4], for tests that hold
for all of them."""

import torch

from tarn import causal_product, ops

LENGTHS = torch.tensor([6, 4])
KEPT = torch.tensor([[True, True, False, True, True, True], [True] * 6])
# Starts of three sequences of one packed row; the second is empty.
STARTS = torch.tensor([0, 2, 2, 6])
# So small that what mLSTM's maximum changes by it is below every bound.
EPS = 1e-9
SEED = torch.tensor(3)
SEEDS = torch.tensor([3, 4, 5])


def _row(x, n):
    """[4] of a parameter that depends on x."""
    return x[0, n, 0]


def _flat_row(x):
    """[8]."""
    return x[0, 1].flatten()


def _weight(x, n):
    """[4, 4]."""
    return x[n, :4, 0]


def _rest(x):
    """x, a mixer's result, and the tensors of a pre-norm layer's rest."""
    first = 2 * x, _weight(x, 0), _row(x, 1), _row(x, 2), _row(x, 3)
    return x, *first, _weight(x, 1), _row(x, 0), _weight(x, 0), _row(x, 1)


def _packed(x):
    """[2, 6, 24]: queries, keys and values of 2 heads side by side."""
    return x.repeat(1, 1, 1, 3).flatten(2)


def _state(x):
    """S [2, 2, 4, 4] and z [2, 2, 4]; z is positive, so that denominators are."""
    return x[:, :4].transpose(1, 2), x[:, 0].square() + 1


def _gates(x):
    """[2, 6, 2, 4] below 0."""
    return -torch.nn.functional.softplus(x.flip(1))


def _unit(x):
    """Keys of length 1, as the delta rule wants them."""
    return torch.nn.functional.normalize(x, dim=-1)


def _scan(x):
    """Inputs, steps, rates, keys, queries of a scan of 8 channels with 3 states."""
    steps = torch.nn.functional.softplus(x.flip(1)).flatten(2)
    rates = -torch.nn.functional.softplus(x[0, :3].flatten(1)).t()
    return x.flatten(2), steps, rates, x[:, :, 0, :3], x[:, :, 1, 1:]


def _lru(x):
    """Inputs, both gates and Lambda of 8 channels."""
    return x.flatten(2), x.flip(1).flatten(2), x.flip(2).flatten(2), _flat_row(x)


def _cell(x):
    """Queries, keys, values and both gates of 2 heads."""
    return x, x.flip(1), x.flip(2), x[..., 1], x.flip(1)[..., 2] + 1


def _without_maximum(S, m):
    """The state as it would be without m, which has no gradient."""
    return S * m.exp()[..., None, None]


def _one_row(x):
    """Both rows of x packed as one of 6 tokens."""
    return x[:1] + x[1:]


def _experts(x, count):
    """Two of the experts for each row of x."""
    return torch.arange(48, device=x.device).view(2, 6, 2, 2) % count


def _taps(x):
    """[8, 4]: a filter of 4 tokens for each of 8 channels."""
    return x[0, :4].flatten(1).t()


# name -> (operator, call). Each kind of options of an operator has a case.
CASES = {
    "linear": (ops.linear_attention, lambda x: ops.linear_attention(x, x, x)),
    "linear both ways": (
        ops.linear_attention,
        lambda x: ops.linear_attention(x, x, x, causal=False, key_mask=KEPT),
    ),
    "linear offset": (
        ops.linear_attention,
        lambda x: ops.linear_attention(
            x[:, :4], x, x, causal_offset=2, key_lengths=LENGTHS, denominator="compat"
        ),
    ),
    "linear after": (
        ops.linear_attention,
        lambda x: ops.linear_attention(
            x, x[:, :4], x[:, :4], causal_offset=-2, denominator="none", scale=0.5
        ),
    ),
    "linear state": (
        ops.linear_attention,
        lambda x: ops.linear_attention(x, x, x, initial_state=_state(x)),
    ),
    "linear final state": (
        ops.linear_attention,
        lambda x: ops.linear_attention(x, x, x, return_state=True, initial_state=_state(x))[1][0],
    ),
    "linear packed sequences": (
        ops.linear_attention,
        lambda x: ops.linear_attention(*[_one_row(x)] * 3, cu_seqlens=STARTS),
    ),
    "linear packed state": (
        ops.linear_attention,
        lambda x: ops.linear_attention(*[_one_row(x)] * 3, cu_seqlens=STARTS, return_state=True)[1][
            1
        ],
    ),
    "linear value heads": (
        ops.linear_attention,
        lambda x: ops.linear_attention(x, x, x.repeat(1, 1, 2, 1)),
    ),
    "linear step": (
        ops.linear_attention_step,
        lambda x: ops.linear_attention_step(*[x[:, 0]] * 3, _state(x))[0],
    ),
    "mapped": (
        ops.mapped_linear_attention,
        lambda x: ops.mapped_linear_attention(x, x, x, feature_map="poly2"),
    ),
    "mapped step": (
        ops.mapped_linear_attention_step,
        lambda x: ops.mapped_linear_attention_step(*[x[:, 0]] * 3, feature_map="poly2")[0],
    ),
    "packed": (
        ops.linear_attention_packed,
        lambda x: ops.linear_attention_packed(_packed(x), 2, 4),
    ),
    "causal dot product": (
        ops.causal_dot_product,
        lambda x: ops.causal_dot_product(x, x, x),
    ),
    "causal product": (
        causal_product.causal_dot_product,
        lambda x: causal_product.causal_dot_product(x, x, x),
    ),
    "decay": (ops.decay_attention, lambda x: ops.decay_attention(x, x, x)),
    "decay head": (
        ops.decay_attention,
        lambda x: ops.decay_attention(x, x, x.repeat(1, 1, 2, 1), gates=-_row(x, 0).exp()),
    ),
    "decay token": (
        ops.decay_attention,
        lambda x: ops.decay_attention(
            x, x, x, gates=_gates(x)[..., 0], lengths=LENGTHS, initial_state=_state(x)[0], scale=0.5
        ),
    ),
    "decay channel": (
        ops.decay_attention,
        lambda x: ops.decay_attention(x, x, x, gates=_gates(x)),
    ),
    "decay bonus": (
        ops.decay_attention,
        lambda x: ops.decay_attention(x, x, x, gates=_gates(x), bonus=x[0, 0]),
    ),
    "decay final state": (
        ops.decay_attention,
        lambda x: ops.decay_attention(x, x, x, gates=_gates(x), return_state=True)[1],
    ),
    "decay packed": (
        ops.decay_attention,
        lambda x: ops.decay_attention(
            *[_one_row(x)] * 3, gates=_gates(_one_row(x))[..., 0], cu_seqlens=STARTS
        ),
    ),
    "delta": (
        ops.delta_attention,
        lambda x: ops.delta_attention(x, _unit(x), x, x[..., 0].sigmoid()),
    ),
    "delta token": (
        ops.delta_attention,
        lambda x: ops.delta_attention(
            x,
            _unit(x),
            x.repeat(1, 1, 2, 1),
            x.flatten(2)[..., :4].sigmoid(),
            gates=_gates(x).flatten(2)[..., :4],
            lengths=LENGTHS,
        ),
    ),
    "delta channel": (
        ops.delta_attention,
        lambda x: ops.delta_attention(
            x, _unit(x), x, x[..., 0].sigmoid(), gates=_gates(x), initial_state=_state(x)[0]
        ),
    ),
    "delta packed state": (
        ops.delta_attention,
        lambda x: ops.delta_attention(
            x[:1],
            _unit(_one_row(x)),
            x[1:],
            x[:1, ..., 0].sigmoid(),
            cu_seqlens=STARTS,
            return_state=True,
        )[1],
    ),
    "dplr": (
        ops.dplr_attention,
        lambda x: ops.dplr_attention(x, x, x, -_unit(x), _unit(x) * x.flip(2).sigmoid()),
    ),
    "dplr channel": (
        ops.dplr_attention,
        lambda x: ops.dplr_attention(
            x,
            x.flip(1),
            x,
            -_unit(x),
            _unit(x) * x.flip(2).sigmoid(),
            gates=_gates(x),
            lengths=LENGTHS,
            initial_state=_state(x)[0],
        ),
    ),
    "dplr packed": (
        ops.dplr_attention,
        lambda x: ops.dplr_attention(
            x[:1],
            _one_row(x),
            x[1:],
            -_unit(x[:1]),
            _unit(x[1:]),
            gates=_gates(_one_row(x))[..., 0],
            cu_seqlens=STARTS,
        ),
    ),
    "rwkv7": (
        ops.rwkv7,
        lambda x: ops.rwkv7(x, _gates(x), x, x, -_unit(x), _unit(x) * x.sigmoid()),
    ),
    "retention": (ops.retention, lambda x: ops.retention(x, x, x)),
    "lightning": (ops.lightning_attention, lambda x: ops.lightning_attention(x, x, x, 1, 4)),
    "gla": (
        ops.gated_linear_attention,
        lambda x: ops.gated_linear_attention(x, x, x, _gates(x)),
    ),
    "rwkv6": (ops.rwkv6, lambda x: ops.rwkv6(x, x, x, _gates(x), x[0, 0])),
    "delta rule": (
        ops.delta_rule,
        lambda x: ops.delta_rule(x, _unit(x), x, x[..., 0].sigmoid()),
    ),
    "gated delta rule": (
        ops.gated_delta_rule,
        lambda x: ops.gated_delta_rule(
            x, x, x, _gates(x)[..., 1], x[..., 0].sigmoid(), normalize=True
        ),
    ),
    "kda": (
        ops.kda,
        lambda x: ops.kda(x, x, x, _gates(x), x[..., 0].sigmoid(), normalize=True),
    ),
    "ssd": (
        ops.ssd,
        lambda x: ops.ssd(
            x, x[..., 0].exp(), -x[0, 0, :, 0].exp(), x[:, :, :1], x[:, :, 1:], D=x[0, 0, :, 1]
        ),
    ),
    "short convolution": (
        ops.short_convolution,
        lambda x: ops.short_convolution(
            x.flatten(2), _taps(x), x[0, 5].flatten(), lengths=LENGTHS
        ).view_as(x),
    ),
    "short convolution final state": (
        ops.short_convolution,
        lambda x: ops.short_convolution(
            x.flatten(2),
            _taps(x),
            activation="none",
            initial_state=x[:, :3].flatten(2),
            return_state=True,
        )[1],
    ),
    "short convolution packed": (
        ops.short_convolution,
        lambda x: ops.short_convolution(_one_row(x).flatten(2), _taps(x), cu_seqlens=STARTS),
    ),
    "elementwise recurrence": (
        ops.elementwise_recurrence,
        lambda x: ops.elementwise_recurrence(
            x.flatten(2), _gates(x).flatten(2), lengths=LENGTHS
        ).view_as(x),
    ),
    "elementwise recurrence final state": (
        ops.elementwise_recurrence,
        lambda x: ops.elementwise_recurrence(
            x.flatten(2),
            _gates(x).flatten(2),
            initial_state=x[:, 1].flatten(1),
            return_state=True,
        )[1],
    ),
    "elementwise recurrence packed": (
        ops.elementwise_recurrence,
        lambda x: ops.elementwise_recurrence(
            _one_row(x).flatten(2), _one_row(_gates(x)).flatten(2), cu_seqlens=STARTS
        ),
    ),
    "rg-lru": (
        ops.rg_lru,
        lambda x: ops.rg_lru(*_lru(x), _flat_row(x), x[1, 2].flatten(), kept=KEPT).view_as(x),
    ),
    "rg-lru final state": (
        ops.rg_lru,
        lambda x: ops.rg_lru(
            *_lru(x), lengths=LENGTHS, initial_state=x[:, 1].flatten(1), return_state=True
        )[1],
    ),
    "rg-lru packed": (
        ops.rg_lru,
        lambda x: ops.rg_lru(*[_one_row(r) for r in _lru(x)[:3]], _flat_row(x), cu_seqlens=STARTS),
    ),
    "mlstm": (
        ops.mlstm,
        lambda x: ops.mlstm(
            *_cell(x), x[0, 0, :, 3], x[1, 0, :, 3], softcap=4.0, kept=KEPT, eps=EPS
        ),
    ),
    "mlstm final state": (
        ops.mlstm,
        lambda x: _without_maximum(
            *ops.mlstm(
                *_cell(x),
                lengths=LENGTHS,
                initial_state=(_state(x)[0].repeat(1, 1, 1, 2)[..., :5], x.new_full((2, 2), 0.5)),
                scale=0.5,
                eps=EPS,
                return_state=True,
            )[1]
        ),
    ),
    "mlstm packed": (
        ops.mlstm,
        lambda x: ops.mlstm(*[_one_row(part) for part in _cell(x)], cu_seqlens=STARTS, eps=EPS),
    ),
    "selective scan": (
        ops.selective_scan,
        lambda x: ops.selective_scan(*_scan(x), lengths=LENGTHS).view_as(x),
    ),
    "selective scan final state": (
        ops.selective_scan,
        lambda x: ops.selective_scan(
            *_scan(x),
            skip=x[0, 0].flatten(),
            initial_state=x[:, 1].flatten(1).unsqueeze(2) * x.new_ones(3),
            return_state=True,
        )[1],
    ),
    "gated norm": (
        ops.gated_norm,
        lambda x: ops.gated_norm(x, _row(x, 0), _row(x, 1), x.flip(1)),
    ),
    "gated norm first": (
        ops.gated_norm,
        lambda x: ops.gated_norm(
            x, x[0, 0], x[0, 1], x.flip(1), centred=True, activation="sigmoid", gate_first=True
        ),
    ),
    "decay gate": (
        ops.decay_gate,
        lambda x: torch.stack(
            ops.decay_gate(x.flatten(2), x[0, 0, 0, :2], _flat_row(x), return_second=True)
        ),
    ),
    "decay gate bounded": (
        ops.decay_gate,
        lambda x: ops.decay_gate(x.flatten(2), None, _flat_row(x).sigmoid(), form="bounded"),
    ),
    "depth bounds": (ops.depth_bounds, lambda x: ops.depth_bounds(x.flatten(0, 2))),
    "unit norm": (ops.unit_norm, ops.unit_norm),
    "token shift": (
        ops.token_shift,
        lambda x: ops.token_shift(x.flatten(2), _flat_row(x), before=x[:, 0].flatten(1)),
    ),
    "token shift packed": (
        ops.token_shift,
        lambda x: ops.token_shift(_one_row(x).flatten(2), cu_seqlens=STARTS),
    ),
    "head scale": (
        ops.head_scale,
        lambda x: ops.head_scale(x, x[..., 0], x.flip(1)),
    ),
    "channel mix": (
        ops.channel_mix,
        lambda x: ops.channel_mix(x[:, :, 0], _row(x, 0), _weight(x, 0), _weight(x, 1)),
    ),
    "full": (ops.full_attention, lambda x: ops.full_attention(x, x, x)),
    "full masked": (
        ops.full_attention,
        lambda x: ops.full_attention(
            x, x, x, causal=True, key_mask=KEPT, bias=x[:, None, :, 0, :1] * torch.ones(6).to(x)
        ),
    ),
    "full capped": (
        ops.full_attention,
        lambda x: ops.full_attention(
            x, x, x, causal=True, window=3, softcap=0.8, sinks=x[0, 0, :, 0]
        ),
    ),
    "local": (
        ops.local_attention,
        lambda x: ops.local_attention(x, x, x, local_context=3),
    ),
    "local causal": (
        ops.local_attention,
        lambda x: ops.local_attention(x, x, x, local_context=4, causal=True, key_lengths=LENGTHS),
    ),
    "top-k": (
        ops.exact_topk_attention,
        lambda x: ops.exact_topk_attention(x, x, x, topk=2),
    ),
    "affine": (ops.affine, lambda x: ops.affine(x, _weight(x, 0), _row(x, 1))),
    "feed-forward": (
        ops.feed_forward,
        lambda x: ops.feed_forward(x, _weight(x, 0), _row(x, 1), _weight(x, 1), activation="gelu"),
    ),
    "feed-forward dropout": (
        ops.feed_forward,
        lambda x: ops.feed_forward(
            x, _weight(x, 0), _row(x, 1), _weight(x, 1), activation="relu", dropout=0.5, seed=SEED
        ),
    ),
    "residual norm": (
        ops.residual_norm,
        lambda x: ops.residual_norm(x, 2 * x, _row(x, 2), _row(x, 0), _row(x, 1)),
    ),
    "residual norm dropout": (
        ops.residual_norm,
        lambda x: ops.residual_norm(
            x, 2 * x, _row(x, 2), _row(x, 0), _row(x, 1), dropout=0.5, seed=SEED
        ),
    ),
    "rms norm": (ops.rms_norm, lambda x: ops.rms_norm(x, _row(x, 0))),
    "swiglu": (
        ops.swiglu_feed_forward,
        lambda x: ops.swiglu_feed_forward(x, _weight(x, 0), _weight(x, 1), _weight(x, 0)),
    ),
    "route": (ops.route_tokens, lambda x: ops.route_tokens(x, 2)),
    "route sigmoid": (
        ops.route_tokens,
        lambda x: ops.route_tokens(x, 3, scores="sigmoid", normalize=False, scale=2.0),
    ),
    "experts": (
        ops.expert_feed_forward,
        lambda x: ops.expert_feed_forward(
            x, _experts(x, 6), x[..., :2], x[0], x[1].transpose(1, 2), x[1]
        ),
    ),
    "balance": (
        ops.load_balancing_loss,
        lambda x: ops.load_balancing_loss(x, _experts(x, 4)),
    ),
    "layer heads": (
        ops.layer_heads,
        lambda x: ops.layer_heads(
            x,
            [_weight(x, 0), _weight(x, 1)[:2]],
            [_row(x, 0), _row(x, 1)[:2]],
            _row(x, 2),
            _row(x, 3),
        ),
    ),
    "layer heads rms": (
        ops.layer_heads,
        lambda x: ops.layer_heads(x, [_weight(x, 0)], gamma=_row(x, 2), kind="rms"),
    ),
    "layer rest": (
        ops.layer_rest,
        lambda x: ops.layer_rest(*_rest(x), activation="gelu"),
    ),
    "layer rest post": (
        ops.layer_rest,
        lambda x: ops.layer_rest(
            *_rest(x), _row(x, 4), _row(x, 5), dropout=(0.5, 0.25, 0.5), seeds=SEEDS
        ),
    ),
    "logistic mixture": (
        ops.logistic_mixture_loss,
        lambda x: ops.logistic_mixture_loss(
            x[..., :3], torch.arange(24, device=x.device).view(2, 6, 2) * 11
        ),
    ),
    "clustered": (
        ops.clustered_attention,
        lambda x: ops.clustered_attention(x, x, x, clusters=2),
    ),
    "improved clustered": (
        ops.improved_clustered_attention,
        lambda x: ops.improved_clustered_attention(x, x, x, clusters=2, topk=2),
    ),
    "causal clustered": (
        ops.causal_improved_clustered_attention,
        lambda x: ops.causal_improved_clustered_attention(x, x, x, clusters=2, topk=2),
    ),
    "reformer": (
        ops.reformer_attention,
        lambda x: ops.reformer_attention(x, x, chunk_size=2, bits=3, rounds=2),
    ),
    "aft simple": (
        ops.aft_simple_attention,
        lambda x: ops.aft_simple_attention(x, x, x, key_mask=KEPT),
    ),
    "aft simple causal": (
        ops.aft_simple_attention,
        lambda x: ops.aft_simple_attention(
            x[:, :3], x, x, causal=True, causal_offset=1, key_lengths=LENGTHS
        ),
    ),
    "aft full": (
        ops.aft_full_attention,
        lambda x: ops.aft_full_attention(x, x, x, x[0, :, 0, :1] * x[1, :, 0, 0]),
    ),
}

# Which positions meet is decided on the CPU, or the work is done block by block: they
# have one form for every device, which transforms of torch.func do not follow.
ONE_FORM = {"clustered", "improved clustered", "causal clustered", "reformer", "aft full"}
# The only operator whose gradient has no gradient.
ONCE = {"aft full"}


def first(result):
    return result[0] if isinstance(result, tuple) else result
