"""GGUF files by llama.cpp's own programs: its converter, from directories in Hugging Face's
form, and its quantiser. .venv-peers has both (scripts/bench_setup.sh).

    python bench/peer_llama_files.py convert FOLDER f32|bf16 FILE.gguf [FOLDER f32 FILE.gguf ...]
    python bench/peer_llama_files.py quantise FILE.gguf q8_0|q4_0|q4_k_m OUT.gguf [TYPE|own]

Files have no tokenizer, as the directories that they are made of have none: texts are ids.
Prints a line of JSON for each conversion, {"file": ..., "error": null or a text}.
"""

import json
import logging
import os
import pathlib
import sys
import tempfile
import traceback

# The head, and a tied embedding with it, has the type of tarn's own: 8 bits, where the
# quantiser would take 6.6 with Q4_0 and Q4_K_M. `own` leaves the choice to it.
HEAD = "q8_0"


def _home():
    """The folder of the converter. TARN_LLAMA_CPP: another checkout of llama.cpp."""
    named = os.environ.get("TARN_LLAMA_CPP")
    return pathlib.Path(named) if named else pathlib.Path(sys.prefix) / "llama.cpp"


def _with_tokenizer(folder, keys, at):
    """A folder of links to a directory's files, and a tokenizer of nothing but its size, which
    the converter counts in some types."""
    for file in folder.iterdir():
        (at / file.name).symlink_to(file.resolve())
    if not (at / "tokenizer.json").exists():
        vocab = {f"[{i}]": i for i in range(keys["vocab_size"])}
        text = json.dumps({"model": {"vocab": vocab}, "added_tokens": []})
        (at / "tokenizer.json").write_text(text)
    return at


def _convert(conversion, folder, kind, out):
    """One file, by the converter's class for the directory."""
    # transformers' classes drop keys of published files that the converter wants, and the
    # class of Nemotron-H adds the keys of experts to dense models.
    keys = json.loads((folder / "config.json").read_text())
    if keys["model_type"] != "nemotron_h":
        keys = conversion.ModelBase.load_hparams(folder, False) | keys
    name = conversion.get_model_architecture(keys, conversion.ModelType.TEXT)
    made = conversion.get_model_class(name)

    def set_vocab(self):
        self._set_vocab_none()
        self.gguf_writer.add_vocab_size(self.hparams["vocab_size"])

    made.set_vocab = set_vocab
    made.no_mtp = True  # the models have no layers that predict later tokens
    import gguf
    import torch

    types = {"f32": "ALL_F32", "bf16": "MOSTLY_BF16"}
    with torch.inference_mode(), tempfile.TemporaryDirectory() as at:
        linked = _with_tokenizer(folder, keys, pathlib.Path(at))
        made(
            linked, gguf.LlamaFileType[types[kind]], out, hparams=keys, model_name=folder.name
        ).write()


def convert(jobs):
    """Each (folder, kind, file) in a fork: classes of the converter keep tensors of the model
    before. Returns whether all went well."""
    sys.path.insert(0, str(_home()))
    import conversion

    logging.disable(logging.WARNING)
    well = True
    for folder, kind, out in jobs:
        reader, writer = os.pipe()
        child = os.fork()
        if child == 0:
            text = ""
            try:
                os.dup2(os.open(os.devnull, os.O_WRONLY), 2)  # bars of progress
                _convert(conversion, pathlib.Path(folder), kind, pathlib.Path(out))
            except BaseException as error:
                last = traceback.extract_tb(error.__traceback__)[-1]
                text = f"{type(error).__name__}: {error} ({last.name}: {last.line})"
            os.write(writer, text.encode()[:4000])
            os._exit(0)
        os.close(writer)
        with os.fdopen(reader) as pipe:
            error = pipe.read()
        _, status = os.waitpid(child, 0)
        if status and not error:
            error = f"the converter ended with status {status}"
        print(json.dumps({"file": out, "error": error or None}), flush=True)
        well = well and not error
    return well


def quantise(file, kind, out, ends=HEAD):
    """As llama-quantize with --output-tensor-type and --token-embedding-type, or without."""
    import ctypes

    import llama_cpp.llama_cpp as c

    silent = c.llama_log_callback(lambda level, text, data: None)
    c.llama_log_set(silent, ctypes.c_void_p(None))
    c.llama_backend_init()
    params = c.llama_model_quantize_default_params()
    params.nthread = len(os.sched_getaffinity(0))
    params.ftype = getattr(c, f"LLAMA_FTYPE_MOSTLY_{kind.upper()}")
    if ends != "own":
        params.output_tensor_type = getattr(c, f"GGML_TYPE_{ends.upper()}")
        params.token_embedding_type = params.output_tensor_type
    code = c.llama_model_quantize(os.fsencode(file), os.fsencode(out), ctypes.byref(params))
    if code:
        raise SystemExit(f"llama_model_quantize: {file}: want 0, got {code}")


def main():
    words = sys.argv[2:]
    if sys.argv[1] == "quantise":
        quantise(*words)
    elif not convert(list(zip(words[::3], words[1::3], words[2::3]))):
        sys.exit(1)


if __name__ == "__main__":
    main()
