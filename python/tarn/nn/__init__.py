"""Layers as torch modules: parameters around the operators of `tarn.ops`, without
mathematics of their own. Parameter names are those of tarn's model files. Every
layer runs whole sequences (`forward`) and, where its kind has a recurrent form,
piece by piece: `prefill` and `step`, with a state that is a value
(`tarn.recurrent.AttentionState`)."""

from tarn._moe_part import MixtureOptions, balance_loss
from tarn.nn._attention import Attention, LinearAttention, make_attention
from tarn.nn._encoder import Encoder, EncoderLayer
from tarn.nn._gated import GatedMixer
from tarn.nn._latent import LatentMixer
from tarn.nn._mamba import MambaMixer
from tarn.nn._mixer import Mixer, register_mixer
from tarn.nn._mlstm import MlstmMixer
from tarn.nn._parallel import ParallelMixer
from tarn.nn._rg_lru import RgLruMixer
from tarn.nn._rwkv import RwkvMixer
from tarn.nn._short_conv import ShortConvMixer
from tarn.nn._softmax import GatedSoftmaxMixer, SoftmaxMixer

__all__ = [
    "Attention",
    "Encoder",
    "EncoderLayer",
    "GatedMixer",
    "GatedSoftmaxMixer",
    "LatentMixer",
    "LinearAttention",
    "MambaMixer",
    "Mixer",
    "MixtureOptions",
    "MlstmMixer",
    "ParallelMixer",
    "RgLruMixer",
    "RwkvMixer",
    "ShortConvMixer",
    "SoftmaxMixer",
    "balance_loss",
    "make_attention",
    "register_mixer",
]
