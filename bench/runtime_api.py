"""tarn's runtime through its C interface (include/tarn/tarn.h), by ctypes."""

import ctypes
import os
import pathlib
import re

import native


def _weights():
    """Words of --weights and their numbers, from the header: {"auto": -1, "f32": 0, ...}."""
    header = (native.ROOT / "include" / "tarn" / "tarn.h").read_text()
    found = re.findall(r"\bTARN_WEIGHTS_(\w+) = (-?\d+)", header)
    return {name.lower().replace("_", "-"): int(number) for name, number in found}


WEIGHTS = _weights()
_P, _U64, _I32 = ctypes.c_void_p, ctypes.c_uint64, ctypes.c_int32


class _Options(ctypes.Structure):
    _fields_ = [
        ("struct_size", ctypes.c_size_t),
        ("weights", _I32),
        ("threads", _I32),
        ("use_mmap", _I32),
    ]


class _Job(ctypes.Structure):
    _fields_ = [
        ("state", _P),
        ("tokens", ctypes.POINTER(_I32)),
        ("count", _U64),
        ("logits", ctypes.POINTER(ctypes.c_float)),
        ("all_logits", _I32),
    ]


def _load():
    build = pathlib.Path(os.environ.get("TARN_BUILD", native.ROOT / "build"))
    library = ctypes.CDLL(str(build / "libtarn.so"))
    error = ctypes.POINTER(_P)
    library.tarn_error_message.argtypes = [_P]
    library.tarn_error_message.restype = ctypes.c_char_p
    library.tarn_error_free.argtypes = [_P]
    library.tarn_model_open.argtypes = [
        ctypes.c_char_p,
        ctypes.POINTER(_Options),
        error,
        error,
    ]
    for name in ("tarn_model_close", "tarn_state_free"):
        getattr(library, name).argtypes = [_P]
    for name in (
        "tarn_model_vocab_size",
        "tarn_model_parameters",
        "tarn_model_state_bytes",
        "tarn_model_state_bytes_per_token",
        "tarn_state_bytes",
        "tarn_state_position",
    ):
        getattr(library, name).argtypes = [_P]
        getattr(library, name).restype = _U64
    tokens, logits = ctypes.POINTER(_I32), ctypes.POINTER(ctypes.c_float)
    library.tarn_state_new.argtypes = [_P, error, error]
    library.tarn_state_reset.argtypes = [_P, error]
    library.tarn_state_copy.argtypes = [_P, _P, error]
    library.tarn_prefill.argtypes = [_P, _P, tokens, _U64, logits, error]
    library.tarn_step.argtypes = [_P, _P, _I32, logits, error]
    library.tarn_step_batch.argtypes = [_P, ctypes.POINTER(_Job), _U64, error]
    return library


_LIBRARY = _load()


def _checked(call, *arguments):
    error = _P()
    if call(*arguments, ctypes.byref(error)) != 0:
        message = _LIBRARY.tarn_error_message(error).decode()
        _LIBRARY.tarn_error_free(error)
        raise ValueError(message)


class Model:
    """An open model directory or file; weights: a word of WEIGHTS."""

    def __init__(self, path, threads, weights="f32"):
        options = _Options(ctypes.sizeof(_Options), WEIGHTS[weights], threads, 1)
        self.handle, self.threads = _P(), threads
        _checked(
            _LIBRARY.tarn_model_open,
            str(path).encode(),
            ctypes.byref(options),
            ctypes.byref(self.handle),
        )
        self.vocab_size = _LIBRARY.tarn_model_vocab_size(self.handle)
        self.parameters = _LIBRARY.tarn_model_parameters(self.handle)
        self.state_bytes = _LIBRARY.tarn_model_state_bytes(self.handle)
        self.bytes_per_token = _LIBRARY.tarn_model_state_bytes_per_token(self.handle)

    def close(self):
        _LIBRARY.tarn_model_close(self.handle)
        self.handle = None

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()


class State:
    """The past of one sequence, and a buffer for its logits."""

    def __init__(self, model):
        self.model, self.handle = model, _P()
        _checked(_LIBRARY.tarn_state_new, model.handle, ctypes.byref(self.handle))
        self.logits = (ctypes.c_float * model.vocab_size)()

    @property
    def bytes(self):
        return _LIBRARY.tarn_state_bytes(self.handle)

    @property
    def position(self):
        return _LIBRARY.tarn_state_position(self.handle)

    def reset(self):
        _checked(_LIBRARY.tarn_state_reset, self.handle)

    def copy_from(self, other):
        _checked(_LIBRARY.tarn_state_copy, self.handle, other.handle)

    def prefill(self, tokens, logits=True):
        """Consumes the tokens of an array that `token_array` made."""
        out = self.logits if logits else None
        _checked(
            _LIBRARY.tarn_prefill,
            self.model.handle,
            self.handle,
            tokens,
            len(tokens),
            out,
        )

    def step(self, token):
        _checked(_LIBRARY.tarn_step, self.model.handle, self.handle, token, self.logits)

    def close(self):
        _LIBRARY.tarn_state_free(self.handle)
        self.handle = None


class Batch:
    """Sequences that step together, one token each."""

    def __init__(self, model, count):
        self.model, self.states = model, [State(model) for _ in range(count)]
        self._token = (_I32 * count)()
        self._jobs = (_Job * count)()
        for i, state in enumerate(self.states):
            one = ctypes.cast(
                ctypes.byref(self._token, i * ctypes.sizeof(_I32)),
                ctypes.POINTER(_I32),
            )
            logits = ctypes.cast(state.logits, ctypes.POINTER(ctypes.c_float))
            self._jobs[i] = _Job(state.handle, one, 1, logits, 0)

    def step(self, token):
        for i in range(len(self._token)):
            self._token[i] = (token + i) % 256
        _checked(_LIBRARY.tarn_step_batch, self.model.handle, self._jobs, len(self._jobs))

    def reset(self):
        for state in self.states:
            state.reset()

    def close(self):
        for state in self.states:
            state.close()


def token_array(count, vocab=256):
    """Fixed tokens without a short period."""
    return (_I32 * count)(*((i * 7919 + i // 251) % vocab for i in range(count)))
