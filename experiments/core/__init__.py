"""What the experiments share; experiments/README.md says how to write one."""

from experiments.core.curves import value_at
from experiments.core.evidence import learner, paired
from experiments.core.figures import Figures, pack_images, unpack_images
from experiments.core.page import Page, Picture, Section, Table, size
from experiments.core.points import measure
from experiments.core.program import run_tarn, tarn_json
from experiments.core.progress import Progress, duration
from experiments.core.settings import Experiment, Settings
from experiments.core.training import TrainingRun, evaluations, thinned, train, train_together
from experiments.core.types import (
    ATTENTION_FLAG,
    Criterion,
    Evidence,
    ExperimentError,
    JsonDict,
    Learner,
)
from experiments.core.update_time import UpdateTime, update_time
from experiments.core.verdict import Outcome, outcome, why
from plotting import Panel, Series, number

__all__ = [
    "ATTENTION_FLAG",
    "Criterion",
    "Evidence",
    "Experiment",
    "ExperimentError",
    "Figures",
    "JsonDict",
    "Learner",
    "Outcome",
    "Page",
    "Panel",
    "Picture",
    "Progress",
    "Section",
    "Series",
    "Settings",
    "Table",
    "TrainingRun",
    "UpdateTime",
    "duration",
    "evaluations",
    "learner",
    "measure",
    "number",
    "outcome",
    "pack_images",
    "paired",
    "run_tarn",
    "size",
    "tarn_json",
    "thinned",
    "train",
    "train_together",
    "unpack_images",
    "update_time",
    "value_at",
    "why",
]
