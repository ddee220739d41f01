"""What a measure returns: rows (what was timed), goals (what must be reached),
plots. They are plain dictionaries, so that results are JSON as they are."""

import dataclasses

import native


@dataclasses.dataclass
class Context:
    """How to measure. quick: tiny shapes and few repeats, for the tests of the
    benchmark itself; its figures mean nothing."""

    quick: bool = False
    threads: int = 2
    repeats: int = 15

    def size(self, full, quick):
        return quick if self.quick else full

    @property
    def rounds(self):
        return 3 if self.quick else self.repeats


class Table:
    """Rows, goals and plots of one measure."""

    def __init__(self, name, title, note=""):
        self.name, self.title, self.note = name, title, note
        self.rows, self.goals, self.plots = [], [], []

    def goal(self, measure, bounds, value, unit="x", valid=True, remark=""):
        """A line of the table of goals. bounds: the least value for each SIMD
        target, {"AVX3": 6, "AVX2": 3.5} ("*" for all; "<=" first for the most);
        remark: text shown with the figure, such as the bound it is compared with."""
        target = native.simd_target()
        relation = bounds.get("relation", ">=")
        bound = bounds.get(target, bounds.get("*"))
        holds = None
        if bound is not None and value is not None:
            holds = value >= bound if relation == ">=" else value <= bound
        self.goals.append(
            {
                "measure": measure,
                "relation": relation,
                "bound": bound,
                "unit": unit,
                "value": value,
                "holds": holds,
                "valid": bool(valid),
                "beside": remark,  # the key of stored results
            }
        )

    def plot(self, name, title, x, y, series, kind="log-log"):
        """series: {label: [(x, y), ...]}; kind "log-log", or "bars" with
        {label: value}."""
        self.plots.append(
            {"name": name, "title": title, "x": x, "y": y, "kind": kind, "series": series}
        )

    def as_dict(self):
        return {
            "table": self.name,
            "title": self.title,
            "note": self.note,
            "rows": self.rows,
            "goals": self.goals,
            "plots": self.plots,
        }


def at_least(avx3, avx2=None):
    """Bounds of a goal; one number serves every target."""
    return {"*": avx3} if avx2 is None else {"AVX3": avx3, "AVX2": avx2}


def at_most(bound):
    return {"relation": "<=", "*": bound}
