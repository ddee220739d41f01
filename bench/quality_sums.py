"""Bits per byte, and what they change by, from logits of windows of a text. Numpy alone."""

import numpy as np

# Bytes that a model reads from an empty state; the first is not predicted.
WINDOW = 1024
_LOG2 = float(np.log(2.0))


def windows(text):
    """Runs of at most WINDOW bytes, without a last one that is too short to predict any."""
    parts = [text[at : at + WINDOW] for at in range(0, len(text), WINDOW)]
    return [part for part in parts if len(part) > 1]


def log2_probabilities(logits):
    """Of all tokens, float64, in bits."""
    rows = logits.astype(np.float64)
    rows -= rows.max(axis=-1, keepdims=True)
    return (rows - np.log(np.exp(rows).sum(axis=-1, keepdims=True))) / _LOG2


def _bits(logits, part):
    """Bits of the bytes of a window but the first; logits [len(part), vocabulary]."""
    found = log2_probabilities(logits[:-1])
    return -found[np.arange(len(part) - 1), np.frombuffer(part, np.uint8)[1:]]


def bits_per_byte(logits, text):
    """Of all predicted bytes. logits: an array for each of the text's windows."""
    parts = [_bits(one, part) for one, part in zip(logits, windows(text), strict=True)]
    return float(np.concatenate(parts).mean())


def kl_per_byte(reference, logits):
    """Mean divergence of the reference's distributions from these, in bits."""
    total = count = 0.0
    for before, after in zip(reference, logits, strict=True):
        p, q = log2_probabilities(before), log2_probabilities(after)
        total += float((np.exp2(p) * (p - q)).sum())
        count += len(p)
    return total / count


def standard_error(reference, logits, text):
    """Of the mean change of bits per byte, from the windows' means."""
    parts = zip(reference, logits, windows(text), strict=True)
    means = [float((_bits(b, part) - _bits(a, part)).mean()) for a, b, part in parts]
    return float(np.std(means, ddof=1) / np.sqrt(len(means))) if len(means) > 1 else 0.0


def rounded(value, digits=6):
    return round(value, digits)


def compared(references, found, texts):
    """{"added": {text: bits per byte}, "error": ..., "kl": ..., "worst": the largest of
    `added`}. references, found: {text: logits of its windows}."""
    result = {"added": {}, "error": {}, "kl": {}}
    for name, text in texts.items():
        before, after = references[name], found[name]
        added = bits_per_byte(after, text) - bits_per_byte(before, text)
        result["added"][name] = rounded(added)
        result["error"][name] = rounded(standard_error(before, after, text))
        result["kl"][name] = rounded(kl_per_byte(before, after), 8)
    result["worst"] = max(result["added"].values())
    return result
