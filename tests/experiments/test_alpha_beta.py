"""The model of exchanges: its formulas, its fit, and what is predicted for clusters."""

import math
import random

import pytest

from experiments.ranks.alpha_beta import (
    SEGMENT,
    Constants,
    Link,
    errors,
    fit,
    predicted_seconds,
    seconds,
    sent,
    shared_by,
)
from experiments.ranks.predictions import (
    BUCKET,
    NODES,
    SHAPES,
    Shape,
    buckets,
    exchange_s,
    passing,
    predict,
    sent_bytes,
)

OPS = ("all_reduce", "all_gather", "reduce_scatter", "broadcast", "ring")
KNOWN = Constants(6e-5, 3e-5, 5e-10)


def points(noise=0.0, ranks=(2, 4, 8), seed=0):
    draw = random.Random(seed)
    rows = [
        {
            "op": op,
            "bytes": 1 << power,
            "ranks": count,
            "latency_s": delay,
            "rate_bit_s": rate,
            "simulated": True,
        }
        for delay, rate in ((1e-4, 1e9), (1e-3, 1e8), (1e-4, 1e11))
        for count in ranks
        for op in OPS
        for power in (10, 13, 16, 19, 22, 26)
    ]
    for row in rows:
        row["seconds"] = predicted_seconds(row, KNOWN, 2) * math.exp(draw.gauss(0, noise))
    return rows


def test_the_fit_finds_known_constants():
    found = fit(points(noise=0.05, ranks=(2, 4)), 2)
    for ours, theirs in zip(
        (found.call_s, found.message_s, found.byte_s),
        (KNOWN.call_s, KNOWN.message_s, KNOWN.byte_s),
        strict=True,
    ):
        assert ours == pytest.approx(theirs, rel=0.15)
    assert errors(points(ranks=(8,)), found, 2)["median"] < 0.05


def test_without_noise_the_fit_is_exact():
    found = fit(points(), 2)
    assert found.byte_s == pytest.approx(KNOWN.byte_s, rel=1e-4)
    assert errors(points(), found, 2)["worst"] < 1e-4


def test_a_constant_on_which_nothing_depends_does_no_harm():
    """On a slow network the processors' bytes do not count."""
    rows = [row for row in points() if row["rate_bit_s"] == 1e8]
    assert errors(rows, fit(rows, 2), 2)["worst"] < 1e-3


def test_errors_of_a_wrong_model_show():
    wrong = errors(points(), Constants(6e-5, 3e-5, 5e-9), 2)
    assert wrong["worst"] > 1 and wrong["count"] == len(points())
    assert errors([], KNOWN, 2) == {"count": 0, "median": None, "worst": None}


@pytest.mark.parametrize("change", [{"seconds": 0.0}, {"seconds": float("nan")}, {"seconds": -1.0}])
def test_refused_points(change):
    with pytest.raises(ValueError, match="positive seconds"):
        fit([*points(), points()[0] | change], 2)
    with pytest.raises(ValueError, match="want 4 or more, got 3"):
        fit(points()[:3], 2)


@pytest.mark.parametrize("ranks", [2, 3, 8, 1024])
def test_long_messages_take_the_bytes_of_their_algorithm(ranks):
    link, size = Link(0.0, 0.0, 1e-9), 1 << 30
    part = (ranks - 1) / ranks
    assert seconds("all_gather", size, ranks, link) == pytest.approx(part * size * 1e-9)
    assert seconds("all_reduce", size, ranks, link) == pytest.approx(2 * part * size * 1e-9)
    assert seconds("ring", size, ranks, link) == pytest.approx((ranks - 1) * size * 1e-9)
    assert seconds("broadcast", size, ranks, link) == pytest.approx(
        math.ceil(math.log2(ranks)) * size * 1e-9
    )


@pytest.mark.parametrize("op", OPS)
def test_short_messages_take_the_messages_of_their_algorithm(op):
    link = Link(0.0, 1e-3, 0.0)
    steps = {"all_reduce": 14, "reduce_scatter": 14, "all_gather": 7, "broadcast": 3, "ring": 7}
    assert seconds(op, 8, 8, link) == pytest.approx(1e-3 * steps[op])


def test_two_segments_on_their_way_bound_the_rate():
    """Two segments of 1 MiB do not fill a link with a long delay."""
    size, slow = 64 * SEGMENT, Link(0.0, 0.01, 1e-12)
    assert seconds("all_reduce", size, 2, slow) == pytest.approx(2 * 32 / 2 * 0.01, rel=0.01)


def test_one_rank_exchanges_nothing():
    assert all(seconds(op, 1 << 20, 1, Link(1, 1, 1)) == 0 for op in OPS)
    assert sent("all_reduce", 100, 1) == 0


@pytest.mark.parametrize(
    "call",
    [
        lambda: seconds("all_to_all", 1, 2, Link(0, 0, 0)),
        lambda: predict(SHAPES[0], 1e6, 1e-11, Link(0, 0, 0), "pipeline"),
        lambda: sent_bytes(SHAPES[0], 2, "ring", 10),
    ],
)
def test_refused_words(call):
    with pytest.raises(ValueError, match="want"):
        call()


def test_processes_share_cores():
    assert [shared_by(2, 2, False), shared_by(2, 2, True), shared_by(8, 2, True)] == [1, 1.5, 4.5]


# --- Clusters -------------------------------------------------------------------


def test_buckets_hold_all_parameters_and_are_no_larger_than_need_be():
    shape = SHAPES[0]
    found = buckets(shape.tensors())
    assert sum(found) == 4 * shape.parameters
    largest = 4 * max(shape.tensors())
    assert max(found) <= max(BUCKET, largest)
    assert all(a + b > BUCKET for a, b in zip(found, found[1:], strict=False))


def test_shapes_have_the_parameters_of_their_names():
    for shape, millions in zip(SHAPES, (10, 100, 1000, 7000), strict=True):
        assert shape.parameters == pytest.approx(1e6 * millions, rel=0.05)


@pytest.mark.parametrize("kind", ["data", "sharded", "sequence", "ring"])
@pytest.mark.parametrize("network", [(1e-4, 1e9), (1e-2, 1e9), (1e-4, 1e11)])
def test_the_network_takes_over_where_a_search_says(kind, network):
    link, tokens, each = KNOWN.link(*network), 1 << 20, 3e-11
    for shape in SHAPES[:3]:
        found = predict(shape, tokens, each, link, kind)["takes_over"]
        first = None
        for nodes in range(NODES[-1], 1, -1):
            compute = tokens * shape.parameters * each / nodes
            if exchange_s(shape, nodes, kind, link, tokens) > compute:
                first = nodes
        assert found == first


def test_faster_nodes_meet_the_network_sooner():
    link = KNOWN.link(1e-4, 1e9)
    slow, fast = (
        predict(SHAPES[2], 1 << 20, 3e-11, link, "data", speed)["takes_over"]
        for speed in (1.0, 100.0)
    )
    assert fast < slow


def test_states_are_as_large_for_any_length_and_keys_are_not():
    link, shape = KNOWN.link(1e-4, 1e10), SHAPES[2]
    short, long = (passing(shape, 64, tokens, link) for tokens in (1 << 16, 1 << 24))
    assert short["state_sent"] == long["state_sent"] and short["state_s"] == long["state_s"]
    assert long["key_value_sent"] == pytest.approx(256 * short["key_value_sent"])
    # A state is as large as the keys and values of (d_head + 1) / 2 tokens.
    even = 64 * (shape.d_head + 1) / 2
    assert passing(shape, 64, even, link)["key_value_sent"] == pytest.approx(short["state_sent"])


def test_bytes_of_an_update():
    shape = Shape("small", 64, 2, 4)
    data = sent_bytes(shape, 4, "data", 1000)
    assert data == 2 * 3 * 4000 and sent_bytes(shape, 4, "sharded", 1000) == 1.5 * data
    states = 4 * 4 * (16 * 16 + 16)
    assert sent_bytes(shape, 4, "sequence", 1000) == data + 2 * (3 + 6) * 4 * states
