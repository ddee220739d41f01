"""What follows from the measured points: constants of the model, the trainings by it, and
clusters that are not here."""

from __future__ import annotations

from experiments.core.types import JsonDict
from experiments.ranks import alpha_beta, predictions
from experiments.ranks.alpha_beta import Constants

# Clusters that are not here: a name, seconds one way, bit/s.
CLUSTERS = (
    ("1 Gbit/s, 0.1 ms", 1e-4, 1e9),
    ("10 Gbit/s, 0.1 ms", 1e-4, 1e10),
    ("100 Gbit/s, 0.1 ms", 1e-4, 1e11),
    ("1 Gbit/s, 10 ms", 1e-2, 1e9),
)
DRAWN = CLUSTERS[1][0]
SPEEDS = (1.0, 100.0)
UPDATE_TOKENS = 1 << 20
LENGTHS = tuple(1 << power for power in range(16, 25, 2))  # to 16 M


def shape_facts(shape: predictions.Shape) -> JsonDict:
    """What the page says of a shape."""
    return {
        "n_heads": shape.n_heads,
        "d_head": shape.d_head,
        "state_bytes": shape.state_bytes(),
        "key_value_bytes": shape.key_value_bytes(1),
    }


def fitted(rows: list[JsonDict], simulated: bool, cores: int) -> JsonDict:
    """Constants fitted to a part of the rows, and how far they are off all."""
    own = [row for row in rows if row["simulated"] == simulated]
    constants = alpha_beta.fit([row for row in own if row["fitted"]], cores)
    for row in own:
        row["foretold_s"] = alpha_beta.predicted_seconds(row, constants, cores)
    return {
        "call_s": constants.call_s,
        "message_s": constants.message_s,
        "byte_s": constants.byte_s,
        "fitted": alpha_beta.errors([r for r in own if r["fitted"]], constants, cores),
        "checked": alpha_beta.errors([r for r in own if not r["fitted"]], constants, cores),
    }


def constants_of(fit: JsonDict) -> Constants:
    return Constants(fit["call_s"], fit["message_s"], fit["byte_s"])


def foretell_trained(
    trained: list[JsonDict], fits: JsonDict, layers: int, cores: int
) -> list[JsonDict]:
    """Each training of several ranks with what the model says: bytes of an update and its seconds,
    one rank's with the same share of tokens, then the exchange."""
    alone = {
        (row["width"], row["rows"], row["tokens"]): row["step_s"]
        for row in trained
        if row["ranks"] == 1 and row["threads"] == 1
    }
    for row in trained:
        if row["ranks"] == 1:
            continue
        ranks, cut = row["ranks"], row["mode"] == "sequence"
        shape = predictions.Shape("trained", row["width"], layers, 4, 32)
        link = constants_of(fits["simulated" if row["simulated"] else "loopback"]).link(
            row["latency_s"],
            row["rate_bit_s"],
            alpha_beta.shared_by(ranks, cores, row["simulated"]),
        )
        row["foretold_sent"] = predictions.sent_bytes(shape, ranks, row["mode"], row["parameters"])
        row["foretold_exchange_s"] = predictions.exchange_s(shape, ranks, row["mode"], link)
        share = (
            (row["width"], 1, row["tokens"] // ranks)
            if cut
            else (row["width"], row["rows"] // ranks, row["tokens"])
        )
        if share in alone:
            row["compute_s"] = alone[share] * max(1.0, ranks / cores)
            row["foretold_s"] = row["compute_s"] + row["foretold_exchange_s"]
    return trained


def predicted(trained: list[JsonDict], fit: JsonDict, threads: int) -> JsonDict:
    """What the model predicts for clusters. It takes the processors' share in an exchange from
    loopback, where two ranks have a core each, and the time of a token and parameter from the
    widest training of one rank on all threads. Rows by nodes are kept for the one cluster that
    is drawn."""
    whole = [row for row in trained if row["ranks"] == 1 and row["threads"] == threads]
    if not whole:
        return {"token_parameter_s": None, "predictions": [], "passing_predicted": []}
    widest = max(whole, key=lambda row: row["width"])
    each = widest["step_s"] / (widest["rows"] * widest["tokens"] * widest["parameters"])
    found = []
    for name, latency_s, rate_bit_s in CLUSTERS:
        link = constants_of(fit).link(latency_s, rate_bit_s)
        for speed in SPEEDS:
            for shape in predictions.SHAPES:
                found += [
                    {
                        "cluster": name,
                        **predictions.predict(shape, UPDATE_TOKENS, each, link, kind, speed),
                    }
                    for kind in ("data", "sharded")
                ]
                found += [
                    {
                        "cluster": name,
                        **predictions.predict(shape, length, each, link, "sequence", speed),
                    }
                    for length in LENGTHS[::2]
                ]
    for one in found:
        if one["cluster"] != DRAWN or one["speed"] != SPEEDS[0]:
            del one["rows"]
    link = constants_of(fit).link(*CLUSTERS[1][1:])
    return {
        "token_parameter_s": each,
        "predictions": found,
        "most_nodes": predictions.NODES[-1],
        "passing_predicted": [
            {
                "cluster": DRAWN,
                "model": shape.name,
                "nodes": 64,
                "length": length,
                **predictions.passing(shape, 64, length, link),
            }
            for shape in predictions.SHAPES
            for length in LENGTHS
        ],
    }
