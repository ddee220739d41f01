"""Whole models: tokens in, logits out, under the configuration and the weight
names of tarn's model directories.

    model = tarn.models.LanguageModel(vocab_size=256, d_model=128, n_layers=4)
    logits = model(tokens)                       # [B, T] -> [B, T, vocab]
    tarn.save_model(model, "models/mine")        # `tarn generate models/mine`
"""

from tarn.models._config import finish_config, layer_view, weight_shapes
from tarn.models._earlier import CnnModel, RecurrentModel
from tarn.models._generation import Beam, beam_search, generate, greedy
from tarn.models._make import make_model
from tarn.models._transformers import Classifier, FrameClassifier, LanguageModel, Seq2Seq

__all__ = [
    "Beam",
    "Classifier",
    "CnnModel",
    "FrameClassifier",
    "LanguageModel",
    "RecurrentModel",
    "Seq2Seq",
    "beam_search",
    "finish_config",
    "generate",
    "greedy",
    "layer_view",
    "make_model",
    "weight_shapes",
]
