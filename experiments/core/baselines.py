"""The trivial baselines that a page shows with its models, from their stored result."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from experiments.core.page import Table
from experiments.core.types import ExperimentError, JsonDict
from plotting import Series, number

KEY = "baselines"  # of the result that criteria() and page() get: the baselines' result
CAPTION = " Dotted: the trivial baseline."


@dataclass(frozen=True)
class Baseline:
    """One fit. value: in `unit` on the test items of the page's models; accuracy: a share,
    where labels are named; of: values by speaker."""

    name: str
    value: float
    unit: str
    seconds: float
    accuracy: float | None = None
    pairs: int = 0
    of: Mapping[str, float] = field(default_factory=dict)

    @property
    def title(self) -> str:
        return f"trivial baseline: {self.name}"

    @property
    def time(self) -> str | None:
        """Seconds of the fit and its score; None where it is a formula."""
        return number(self.seconds) if self.seconds else None

    def line(self, series: Sequence[Series], *, scale: float = 1.0) -> list[Series]:
        """Its value as a dotted line as long as the other lines of a panel; none without any."""
        xs = [x for one in series for x, _ in one.points]
        if not xs:
            return []
        y = self.value * scale
        return [Series("baseline", [(min(xs), y), (max(xs), y)], "bound", dash=2)]


def best(result: JsonDict, part: str, pairs: int = 0) -> Baseline | None:
    """The baseline to beat of a part, "images/colour"; None where none was fitted for this
    size on the data of this result."""
    return next(iter(fitted(result, part, pairs, chosen=True)), None)


def fitted(result: JsonDict, part: str, pairs: int = 0, *, chosen: bool = False) -> list[Baseline]:
    """All baselines of a part, or those to beat; of recall with so many pairs."""
    stored = result.get(KEY)
    if not stored or stored["size"] != result["size"]:
        return []
    return [
        Baseline(
            one["name"],
            one["value"],
            one["unit"],
            one["seconds"],
            one.get("accuracy"),
            one.get("pairs", 0),
            one.get("of", {}),
        )
        for one in stored["measured"]["fits"]
        if one["part"] == part
        and one.get("pairs", 0) == pairs
        and (one["chosen"] or not chosen)
        and _same_data(result, stored, one["data"])
    ]


def _same_data(result: JsonDict, stored: JsonDict, name: str) -> bool:
    """Whether both read the same files of a set; what is generated has none."""
    return not name or _files(result, name) == _files(stored, name) != {}


def _files(result: JsonDict, name: str) -> dict[str, str]:
    return {
        file["file"]: file["sha256"]
        for one in result.get("inputs", {}).get("data", [])
        if one["name"] == name
        for file in one["files"]
    }


_KEYS: dict[str, type | tuple[type, ...]] = {
    "part": str,
    "name": str,
    "unit": str,
    "value": (int, float),
    "seconds": (int, float),
    "learned": int,
    "judged": int,
    "data": str,
    "chosen": bool,
}


def check(stored: JsonDict, where: str) -> None:
    """ExperimentError (3) where a result holds no fits of this form."""
    fits = stored["measured"].get("fits")
    if not isinstance(fits, list) or not all(
        isinstance(one, dict) and all(isinstance(one.get(key), kind) for key, kind in _KEYS.items())
        for one in fits
    ):
        raise ExperimentError(f"{where}: measured: fits: want rows of {', '.join(_KEYS)}", 3)


def table(stored: JsonDict) -> Table:
    """A row a fit, in the order of the result."""
    rows = []
    for one in stored["measured"]["fits"]:
        page, _, task = one["part"].partition("/")
        name = f"**{one['name']}**" if one["chosen"] else one["name"]
        counted = [f"{one[key]:,}" if one[key] else None for key in ("learned", "judged")]
        rows.append(
            [
                page,
                task + (f", {one['pairs']} pairs" if one.get("pairs") else ""),
                name,
                f"{one['value']:.4f}",
                one["unit"],
                f"{100 * one['accuracy']:.1f}" if "accuracy" in one else None,
                *counted,
                number(one["seconds"]) if one["seconds"] else None,
            ]
        )
    return Table(
        [
            "page",
            "task",
            "baseline",
            "score",
            "unit",
            "accuracy, %",
            "fitted on",
            "scored on",
            "seconds",
        ],
        rows,
        "Fitted on and scored on: numbers of symbols of text and DNA, images, "
        "recordings of one unseen speaker, expressions of ListOps. Scores of recall "
        "are those of guessing any of the row's values.",
    )
