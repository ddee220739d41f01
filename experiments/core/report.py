"""docs/paper: pages, figures and the summary, all from stored results."""

from __future__ import annotations

import pathlib
from collections.abc import Sequence
from dataclasses import dataclass

from experiments import registry
from experiments.core import result as results
from experiments.core.figures import Figures
from experiments.core.files import dumps, write_text
from experiments.core.page import Page, Picture, Table
from experiments.core.progress import duration
from experiments.core.settings import Experiment
from experiments.core.types import Criterion, ExperimentError, JsonDict
from plotting import number

_HOLDS = {True: "yes", False: "**no**", None: "not measured"}


@dataclass(frozen=True)
class Told:
    """One experiment, its result and what it tells."""

    experiment: Experiment
    result: JsonDict
    page: Page
    criteria: list[Criterion]
    files: list[str]  # figures, by name


def verdict(criteria: Sequence[Criterion]) -> str:
    """All criteria together: "yes (5 of 5)", "no", "in part", "as far as
    measured (2 of 5)", "not measured". What was not measured never passes; what
    only had to be stated does not count."""
    criteria = [one for one in criteria if not one.stated]
    measured = [one.holds for one in criteria if one.holds is not None]
    if not measured:
        return "not measured"
    held = sum(measured)
    if held == len(criteria):
        text = "**yes**"
    elif held == len(measured):
        text = "as far as measured"
    else:
        text = "**no**" if held == 0 else "in part"
    return f"{text} ({held} of {len(criteria)})"


def _holds(told: Told) -> str:
    """The verdict, and what of the claim the figures do not show."""
    if told.result["size"] == "quick":
        return "smoke size"
    unseen = ", ".join(told.page.unseen)
    return verdict(told.criteria) + (f"; not seen here: {unseen}" if unseen else "")


def stored(folder: pathlib.Path) -> dict[str, pathlib.Path]:
    """Result files by experiment: <folder>/<name>/result.json of a work folder,
    or <folder>/<name>.json of a report."""
    found = {}
    for name in registry.names():
        for path in (folder / name / "result.json", folder / f"{name}.json"):
            if path.is_file():
                found[name] = path
                break
    return found


def tell(path: pathlib.Path, name: str, to: pathlib.Path) -> Told:
    """Reads one result and draws its figures into `to`."""
    result = results.read(path)
    if result["experiment"] != name:
        raise ExperimentError(f"{path}: want a result of {name}, got one of "
                              f"{result['experiment']!r}", 3)
    _refuse_paths(result, str(path))
    experiment = registry.find(name)
    figures = Figures(to, name)
    try:
        page = experiment.page(result, figures)
        criteria = list(experiment.criteria(result))
    except (ArithmeticError, AttributeError, LookupError, TypeError, ValueError) as error:
        raise ExperimentError(f"{path}: want what `tarn experiment {name}` measures, got: "
                              f"{type(error).__name__}: {error}", 3) from error
    return Told(experiment, result, page, criteria, figures.files)


def write(source: pathlib.Path, to: pathlib.Path) -> list[pathlib.Path]:
    """Everything from the results in `source` (a work folder, or <to>/results
    to draw again); returns the pages. ExperimentError (3) where there is no
    result or one is broken, with nothing removed."""
    paths = stored(source)
    if not paths:
        raise ExperimentError(f"{source}: want results of experiments, got none (run "
                              "`tarn experiment all` first)", 3)
    told = [tell(path, name, to) for name, path in paths.items()]
    pages = []
    for one in told:
        name = one.experiment.name
        text = dumps(one.result) + "\n"
        write_text(to / "results" / f"{name}.json", text)
        write_text(to / f"{name}.md", page_text(one))
        pages.append(to / f"{name}.md")
        _remove_others(to, one)
    write_text(to / "README.md", summary_text(told))
    return [to / "README.md", *pages]


def _remove_others(to: pathlib.Path, told: Told) -> None:
    """Figures of this experiment that its page no longer has."""
    for suffix in ("svg", "png"):
        for path in to.glob(f"{told.experiment.name}-*.{suffix}"):
            if path.name not in told.files:
                path.unlink()


def _refuse_paths(value: object, where: str) -> None:
    """Results carry names, never paths of a machine."""
    if isinstance(value, dict):
        for key, one in value.items():
            _refuse_paths(one, f"{where}: {key}" if where.count(":") < 3 else where)
    elif isinstance(value, list):
        for one in value:
            _refuse_paths(one, where)
    elif isinstance(value, str) and value.startswith(("/", "~")):
        raise ExperimentError(f"{where}: want no path of this machine, got {value[:80]!r}", 3)


# --- Pages --------------------------------------------------------------------


def _machine_text(result: JsonDict) -> str:
    facts = result["machine"]
    text = f"{facts.get('cpu', 'unknown processor')}, {facts.get('cores', '?')} cores"
    if "memory_gib" in facts:
        text += f", {number(facts['memory_gib'])} GiB"
    threads = facts.get("threads", "?")
    text += f"; {threads} thread{'' if threads == 1 else 's'}"
    if "device" in facts:
        text += f"; trained on {facts['device']}"
    if "target" in facts:
        text += f"; target {facts['target']}, torch {facts.get('torch', '?')}"
    if "sgemm_gflops" in facts:
        text += (f"; sgemm {number(facts['sgemm_gflops'])} GFLOP/s, "
                 f"read {number(facts['read_gbs'])} GB/s")
    return text


def _criteria_table(criteria: Sequence[Criterion]) -> str:
    rows = [[one.name, one.wanted, one.got, _mark(one)] for one in criteria]
    return Table(["criterion", "wanted", "got", "holds"], rows).markdown()


def _mark(criterion: Criterion) -> str:
    return "stated" if criterion.stated and criterion.holds else _HOLDS[criterion.holds]


def _missed(told: Told) -> list[str]:
    """For each criterion missed, what was tried; one of a smoke run tells
    nothing."""
    if told.result["size"] == "quick":
        return []
    return [f"- {one.name}: {told.page.tried.get(one.name, 'nothing further is on record.')}"
            for one in told.criteria if one.holds is False]


def _data_text(result: JsonDict) -> str:
    lines = []
    for one in result["inputs"].get("data", []):
        files = one.get("files", [])
        digests = ", ".join(f"{f['file']} ({f['sha256'][:12]})" for f in files[:4])
        more = f" and {len(files) - 4} more" if len(files) > 4 else ""
        lines.append(f"{one.get('title', '?')}: {digests}{more}")
    return "; ".join(lines)


def _facts_table(result: JsonDict) -> str:
    settings = result["settings"]
    rows = [
        ["command", f"`{result['command']}`"],
        ["machine", _machine_text(result)],
        ["commit", f"{result['commit']}, {result['date']}"],
        ["took", f"{duration(result['seconds'])} ({duration(result['cpu_seconds'])} of "
                 "processor time)"],
        ["seeds", ", ".join(str(one) for one in result["seeds"])],
        ["kinds", ", ".join(settings.get("attention", []))],
    ]
    data = _data_text(result)
    if data:
        rows.append(["data (SHA-256)", data])
    return Table(["", ""], rows).markdown()


def _whose(experiment: Experiment) -> str:
    """What goes beyond the paper is no claim of the paper's."""
    return "" if experiment.paper.startswith("beyond") else "paper's "


def page_text(told: Told) -> str:
    """One experiment's page."""
    experiment, page = told.experiment, told.page
    parts = [
        f"# {experiment.title}",
        f"**The {_whose(experiment)}claim** ({experiment.paper}): {experiment.claim}",
        f"**Here**: {page.headline}",
        page.agrees,
    ]
    if told.result["size"] == "quick":
        parts.append("**Smoke size**: these figures only show that the experiment runs.")
    if page.theirs:
        parts.append(f"**The paper's figures**: {page.theirs}")
    for section in page.sections:
        parts.append(f"## {section.title}")
        parts += [one if isinstance(one, str) else one.markdown() for one in section.parts]
    parts += ["## Criteria", _criteria_table(told.criteria)]
    missed = _missed(told)
    if missed:
        parts += ["What was tried for those that are missed:", "\n".join(missed)]
    parts += ["## Differences from the paper's setting",
              "\n".join(f"- {one}" for one in page.differences) or "None."]
    if page.notes:
        parts += ["## Notes", "\n".join(f"- {one}" for one in page.notes)]
    parts += ["## Where from", _facts_table(told.result)]
    name = experiment.name
    parts.append(f"Written by `tarn experiment report` from [results/{name}.json]"
                 f"(results/{name}.json). [All experiments](README.md)")
    return "\n\n".join(parts) + "\n"


_INTRODUCTION = (
    "What *Transformers are RNNs* ([arXiv 2006.16236](https://arxiv.org/abs/2006.16236)) claims, "
    "measured again by tarn on one machine. {whence}; nothing here "
    "is written by hand. Published figures stand on the pages, beside ours only where the "
    "setting is the same.")


def summary_text(told: Sequence[Told]) -> str:
    """README.md: what a newcomer reads first."""
    rows = [[f"[{one.experiment.title}]({one.experiment.name}.md)",
             f"{one.experiment.claim} ({one.experiment.paper})", _holds(one),
             one.page.headline] for one in told]
    parts = ["# The paper's experiments", _INTRODUCTION.format(whence=_whence(told)),
             Table(["experiment", "claim", "holds here", "by how much"],
                   rows).markdown(),
             "\"Holds\" counts the criteria below; one that was not measured does not hold, "
             "and one that asks only for a statement does not count. Parts of a claim that the "
             "figures do not show are named beside it."]
    missing = [name for name in registry.MODULES if name not in
               [one.experiment.name for one in told]]
    if missing:
        parts.append(f"Not run: {', '.join(missing)}.")
    for one in told:
        parts += [f"## {one.experiment.title}", one.page.agrees]
        if one.page.picture is not None:
            parts.append(_linked(one.page.picture, f"{one.experiment.name}.md"))
    parts += ["## Criteria", _all_criteria(told), "## Machine, commit, command",
              *_machines(told)]
    return "\n\n".join(parts) + "\n"


def _whence(told: Sequence[Told]) -> str:
    """`make paper` runs each with nothing but its size."""
    plain = all(one.result["command"] == f"tarn experiment {one.experiment.name} --size cpu"
                for one in told)
    return ("Every figure comes from `make paper`" if plain else
            "Every figure comes from the commands below, which are not all those of `make paper`")


def _linked(picture: Picture, page: str) -> str:
    return f"[![{picture.alt}]({picture.file})]({page})"


def _all_criteria(told: Sequence[Told]) -> str:
    rows = [[one.experiment.name, c.name, c.wanted, c.got, _mark(c)]
            for one in told for c in one.criteria]
    return Table(["experiment", "criterion", "wanted", "got", "holds"], rows).markdown()


def _machines(told: Sequence[Told]) -> list[str]:
    """Each machine once, then a row an experiment."""
    machines = list(dict.fromkeys(_machine_text(one.result) for one in told))
    lines = [f"{index + 1}. {text}" for index, text in enumerate(machines)]
    rows = [[one.experiment.name, f"`{one.result['command']}`", one.result["commit"],
             one.result["date"], duration(one.result["seconds"]),
             str(machines.index(_machine_text(one.result)) + 1)] for one in told]
    total = duration(sum(one.result["seconds"] for one in told))
    table = Table(["experiment", "command", "commit", "date", "took", "machine"], rows,
                  f"All together {total}. A commit marked + had uncommitted changes.")
    return ["\n".join(lines), table.markdown()]
