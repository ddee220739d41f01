"""How often something is timed."""


def repeats_of(first: float, seconds: float, most: int) -> int:
    """How often a call that took `first` seconds is repeated in `seconds`: three times at least,
    but once where it takes more than twice as long."""
    if first > 2 * seconds:
        return 1
    return min(most, max(3, round(seconds / max(first, 1e-9))))
