"""Makes the model that a configuration names."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch

from tarn.models._config import finish_config
from tarn.models._earlier import CnnModel, RecurrentModel
from tarn.models._transformers import Classifier, FrameClassifier, LanguageModel, Seq2Seq


def make_model(config: Mapping[str, Any] | None = None, **keys: Any) -> torch.nn.Module:
    """The model that `arch` names. Raises ValueError."""
    finished = finish_config(config, **keys)
    classes = {
        "decoder": LanguageModel,
        "encoder": FrameClassifier if finished["task"] == "ctc" else Classifier,
        "seq2seq": Seq2Seq,
        "rnn": RecurrentModel,
        "lstm": RecurrentModel,
        "cnn": CnnModel,
    }
    return classes[finished["arch"]](finished)
