"""docs/paper: pages, figures and the summary, all from stored results."""

from __future__ import annotations

import pathlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from experiments import registry
from experiments.core import baselines as trivial
from experiments.core import result as results
from experiments.core.figures import Figures
from experiments.core.files import dumps, write_text
from experiments.core.page import Page, Picture, Table
from experiments.core.progress import duration
from experiments.core.settings import Experiment
from experiments.core.types import Criterion, ExperimentError, JsonDict
from experiments.core.verdict import mark, verdict
from plotting import number


@dataclass(frozen=True)
class Told:
    """One experiment, its result and what it tells."""

    experiment: Experiment
    result: JsonDict
    page: Page
    criteria: list[Criterion]
    files: list[str]  # figures, by name


def _verdict(told: Told) -> str:
    return "smoke size" if told.result["size"] == "quick" else verdict(told.criteria)


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


def tell(
    path: pathlib.Path, name: str, to: pathlib.Path, baselines: JsonDict | None = None
) -> Told:
    """Reads one result and draws its figures into `to`, with the trivial baselines
    of its page where there are any."""
    result = results.read(path)
    if result["experiment"] != name:
        raise ExperimentError(
            f"{path}: want a result of {name}, got one of {result['experiment']!r}", 3
        )
    _refuse_paths(result, str(path))
    experiment = registry.find(name)
    figures = Figures(to, name)
    shown = result if baselines is None else result | {trivial.KEY: baselines}
    try:
        page = experiment.page(shown, figures)
        criteria = list(experiment.criteria(shown))
    except (ArithmeticError, AttributeError, LookupError, TypeError, ValueError) as error:
        raise ExperimentError(
            f"{path}: want what `tarn experiment {name}` measures, got: "
            f"{type(error).__name__}: {error}",
            3,
        ) from error
    return Told(experiment, result, page, criteria, figures.files)


def _baselines(source: pathlib.Path, to: pathlib.Path) -> JsonDict | None:
    """The result of the trivial baselines: that of the work folder, of a report, or the one
    that the report already had."""
    for path in (
        source / "baselines" / "result.json",
        source / "baselines.json",
        to / "results" / "baselines.json",
    ):
        if path.is_file():
            result = results.read(path)
            _refuse_paths(result, str(path))
            trivial.check(result, str(path))
            return result
    return None


def write(source: pathlib.Path, to: pathlib.Path) -> list[pathlib.Path]:
    """Everything from the results in `source` (a work folder, or <to>/results
    to draw again); returns the pages. ExperimentError (3) where there is no
    result or one is broken, with nothing removed."""
    paths = stored(source)
    if paths:  # what `all` leaves out stays as it was last told
        paths |= {
            name: path
            for name, path in stored(to / "results").items()
            if name in registry.APART and name not in paths
        }
    if not paths:
        raise ExperimentError(
            f"{source}: want results of experiments, got none (run `tarn experiment all` first)", 3
        )
    baselines = _baselines(source, to)
    told = [tell(path, name, to, baselines) for name, path in paths.items()]
    if baselines is not None:
        write_text(to / "results" / "baselines.json", dumps(baselines) + "\n")
    pages = []
    for one in told:
        name = one.experiment.name
        text = dumps(one.result) + "\n"
        write_text(to / "results" / f"{name}.json", text)
        write_text(to / f"{name}.md", page_text(one))
        pages.append(to / f"{name}.md")
        _remove_others(to, one)
    write_text(to / "README.md", summary_text(told, baselines))
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
        text += (
            f"; sgemm {number(facts['sgemm_gflops'])} GFLOP/s, "
            f"read {number(facts['read_gbs'])} GB/s"
        )
    return text


_HEAD = ("criterion", "required", "measured", "met")


def _criteria_table(criteria: Sequence[Criterion]) -> str:
    rows = [[one.name, one.wanted, one.got, mark(one)] for one in criteria]
    return Table(_HEAD, rows).markdown()


def _claims(criteria: Sequence[Criterion]) -> list[Criterion]:
    """All criteria but goals of tarn's own."""
    return [one for one in criteria if not one.goal]


def _goals(criteria: Sequence[Criterion]) -> list[Criterion]:
    return [one for one in criteria if one.goal]


def _missed(told: Told) -> list[str]:
    """What was tried for each criterion that is missed. In a smoke run a miss tells
    nothing, and a criterion that is only reported cannot be missed."""
    if told.result["size"] == "quick":
        return []
    return [
        f"- {one.name}: {told.page.tried.get(one.name, 'no further attempt was made.')}"
        for one in told.criteria
        if one.holds is False and not one.reported
    ]


def _data_text(result: JsonDict) -> str:
    lines = []
    for one in result["inputs"].get("data", []):
        files = one.get("files", [])
        digests = ", ".join(f"{f['file']} ({f['sha256'][:12]})" for f in files[:4])
        more = f" and {len(files) - 4} more" if len(files) > 4 else ""
        lines.append(f"{one.get('title', '?')}: {digests}{more}")
    return "; ".join(lines)


def _facts_table(told: Told) -> str:
    result = told.result
    settings = result["settings"]
    rows = [
        ["command", f"`{result['command']}`"],
        ["machine", _machine_text(result)],
        ["commit", f"{result['commit']}, {result['date']}"],
        [
            "took",
            f"{duration(result['seconds'])} ({duration(result['cpu_seconds'])} of processor time)",
        ],
        ["seeds", told.page.seeds or ", ".join(str(one) for one in result["seeds"])],
        ["variants", ", ".join(settings.get("attention", []))],
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
        *([f"**Scale here**: {page.scale}."] if page.scale else []),
        f"**Verdict**: {_verdict(told)}",
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
    parts += ["## Criteria", _criteria_table(_claims(told.criteria))]
    goals = _goals(told.criteria)
    if goals:
        parts += ["tarn's own goals, which do not affect the verdict:", _criteria_table(goals)]
    missed = _missed(told)
    if missed:
        parts += ["Attempts to meet the missed criteria:", "\n".join(missed)]
    parts += [
        "## Differences from the paper's setting",
        "\n".join(f"- {one}" for one in page.differences) or "None.",
    ]
    if page.notes:
        parts += ["## Notes", "\n".join(f"- {one}" for one in page.notes)]
    parts += ["## Reproduction", _facts_table(told)]
    name = experiment.name
    parts.append(
        f"Written by `tarn experiment report` from [results/{name}.json]"
        f"(results/{name}.json). [All experiments](README.md)"
    )
    return "\n\n".join(parts) + "\n"


_INTRODUCTION = (
    "What *Transformers are RNNs* ([arXiv 2006.16236](https://arxiv.org/abs/2006.16236)) claims, "
    "measured again with tarn; the last section names the machines. {whence}. Tables and "
    "figures are written by the program; descriptions of further attempts are written by hand. "
    "The pages quote published figures, next to ours only if the setting is the same."
)


_VERDICTS = (
    "**Shown**: every criterion of the claim is met. **In part**: some are met, and the others "
    "are named. **Not shown**: none is met. **Contradicted here**: the figures show the "
    "opposite of the named part. **Not reached**: a model does not beat its trivial baseline, "
    "or is still learning, so that at the pace of its last quarter a run three times as long "
    "could change the outcome. **Not distinguishable**: fewer than three seeds, or a 95 % "
    "interval of the difference that contains zero. These two verdicts are decided first, by "
    "one rule for all pages (`experiments/core/verdict.py`); the tables of criteria give the "
    "reasons. A part that was not measured counts as not shown. Criteria marked reported are "
    "for reference only."
)


def summary_text(told: Sequence[Told], baselines: JsonDict | None = None) -> str:
    """README.md: what a newcomer reads first."""
    screen = [
        [
            f"[{one.page.short or one.experiment.title}]({one.experiment.name}.md)",
            "; ".join(text.partition(":")[0] for text in _verdict(one).split("; ")),
            one.page.figure or one.page.headline,
        ]
        for one in told
    ]
    rows = [
        [
            f"[{one.experiment.title}]({one.experiment.name}.md)",
            f"{one.experiment.claim} ({one.experiment.paper})"
            + (f" Here: {one.page.scale}." if one.page.scale else ""),
            _verdict(one),
            one.page.headline,
        ]
        for one in told
    ]
    parts = [
        "# The paper's experiments",
        Table(["claim", "verdict", "figure"], screen).markdown(),
        _VERDICTS,
        "## Claims, scales and verdicts",
        _INTRODUCTION.format(whence=_whence(told)),
        Table(["experiment", "claim", "verdict", "by how much"], rows).markdown(),
    ]
    missing = [
        name
        for name in registry.MODULES
        if name not in [*registry.APART, *(one.experiment.name for one in told)]
    ]
    if missing:
        parts.append(f"Not run: {', '.join(missing)}.")
    for one in told:
        parts += [f"## {one.experiment.title}", one.page.agrees]
        if one.page.table is not None:
            parts.append(one.page.table.markdown())
        if one.page.picture is not None:
            parts.append(_linked(one.page.picture, f"{one.experiment.name}.md"))
    if baselines is not None:
        parts += ["## Trivial baselines", *_baselines_parts(baselines)]
    parts += ["## Criteria", _all_criteria(told, _claims)]
    if any(_goals(one.criteria) for one in told):
        parts += [
            "## tarn's own goals",
            "They do not affect a verdict.",
            _all_criteria(told, _goals),
        ]
    parts += ["## Machine, commit, command", *_machines(told)]
    return "\n\n".join(parts) + "\n"


def _baselines_parts(baselines: JsonDict) -> list[str]:
    """What they are, one row a fit, and the machine of the fits."""
    where = (
        f"Fitted by `python -m experiments.baselines` at commit {baselines['commit']} "
        f"({baselines['date']}) on {_machine_text(baselines)}: all of them in "
        f"{duration(baselines['seconds'])}, most of which ListOps takes to generate."
    )
    return [
        "The baselines are tables of counts, a histogram or a classifier of single frames, "
        "fitted on the training split of a page's models and scored on the same test items. "
        "Tables of counts interpolate each order with the next lower one (Witten and Bell), "
        "and the order is chosen on the training split; among other baselines the best one "
        "counts. The row in bold is the dotted line in a page's figure. For randomly generated "
        "data a formula replaces the fit.",
        trivial.table(baselines).markdown(),
        where,
    ]


def _whence(told: Sequence[Told]) -> str:
    """`make paper` runs each with nothing but its size, all of them at one commit."""
    plain = all(
        one.result["command"] == f"tarn experiment {one.experiment.name} --size cpu" for one in told
    )
    text = "Every figure comes from the commands below, which are not all those of `make paper`"
    if plain:
        apart = [
            f"`{one.result['command']}`" for one in told if one.experiment.name in registry.APART
        ]
        text = " or from ".join(["Every figure comes from `make paper`", *apart])
    commits = list(dict.fromkeys(one.result["commit"] for one in told))
    return text + (f", run at several commits ({', '.join(commits)})" if len(commits) > 1 else "")


def _linked(picture: Picture, page: str) -> str:
    return f"[![{picture.alt}]({picture.file})]({page})"


def _all_criteria(
    told: Sequence[Told], of: Callable[[Sequence[Criterion]], list[Criterion]]
) -> str:
    rows = [
        [one.experiment.name, c.name, c.wanted, c.got, mark(c)]
        for one in told
        for c in of(one.criteria)
    ]
    return Table(["experiment", *_HEAD], rows).markdown()


def _machines(told: Sequence[Told]) -> list[str]:
    """Each machine once, then a row an experiment."""
    machines = list(dict.fromkeys(_machine_text(one.result) for one in told))
    lines = [f"{index + 1}. {text}" for index, text in enumerate(machines)]
    rows = [
        [
            one.experiment.name,
            f"`{one.result['command']}`",
            one.result["commit"],
            one.result["date"],
            duration(one.result["seconds"]),
            str(machines.index(_machine_text(one.result)) + 1),
        ]
        for one in told
    ]
    total = duration(sum(one.result["seconds"] for one in told))
    together = sum(
        one.result["seconds"] for one in told if one.experiment.name not in registry.APART
    )
    if len(told) > sum(one.experiment.name not in registry.APART for one in told):
        total += f", those of `make paper` {duration(together)}"
    table = Table(
        ["experiment", "command", "commit", "date", "took", "machine"],
        rows,
        f"Total: {total}. A commit marked + had uncommitted changes.",
    )
    return ["\n".join(lines), table.markdown()]
