"""Layers as torch modules: parameters around the operators of `tarn.ops`, no
mathematics of their own. Parameter names are those of tarn's model files."""

from tarn.nn._attention import LinearAttention
from tarn.nn._encoder import Encoder, EncoderLayer

__all__ = ["Encoder", "EncoderLayer", "LinearAttention"]
