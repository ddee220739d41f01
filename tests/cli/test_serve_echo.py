"""Prompts that come back with the probabilities of their tokens, as
lm-evaluation-harness asks for: against numpy over the runtime's logits."""

import json
import os
import pathlib
import subprocess
import sys

import numpy as np
import pytest
from serve_program import Server

ROOT = pathlib.Path(__file__).resolve().parents[2]
MODEL = ROOT / "examples/fortunes"
PROMPT = "The reason for it all is " * 120  # several steps of a prompt


@pytest.fixture(scope="module")
def server():
    one = Server(MODEL)
    yield one
    assert one.end() == 0, one.lines


@pytest.fixture(scope="module")
def model():
    runtime = pytest.importorskip("tarn.runtime")
    return runtime.Model(str(MODEL))


def bytes_tokenizer():
    """The model's tokenizer, bytes, in the form of Hugging Face."""
    tokenizers = pytest.importorskip("tokenizers")
    printable = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    others = [byte for byte in range(256) if byte not in printable]
    names = {chr(byte): byte for byte in printable}
    names |= {chr(0x100 + i): byte for i, byte in enumerate(others)}
    one = tokenizers.Tokenizer(tokenizers.models.BPE(vocab=names, merges=[]))
    one.pre_tokenizer = tokenizers.pre_tokenizers.ByteLevel(add_prefix_space=False)
    one.decoder = tokenizers.decoders.ByteLevel()
    return one


def log_softmax(logits):
    logits = logits.astype(np.float64)
    logits -= logits.max(-1, keepdims=True)
    return logits - np.log(np.exp(logits).sum(-1, keepdims=True))


def test_the_prompt_with_its_probabilities(server, model):
    body = {"prompt": PROMPT, "max_tokens": 3, "temperature": 0, "logprobs": 2, "echo": True}
    # A second time the prefix cache knows the prompt, and all of it is told again.
    for _ in range(2):
        (choice,) = server.post("/v1/completions", **body)["choices"]
        assert choice["text"].startswith(PROMPT) and len(choice["text"]) > len(PROMPT)
        lists = choice["logprobs"]
        ids = model.encode(choice["text"])
        wanted = log_softmax(model.score(model.state(), ids))
        assert len(lists["tokens"]) == len(ids)
        assert lists["token_logprobs"][0] is None and lists["top_logprobs"][0] is None
        for i in range(1, len(ids)):
            assert lists["token_logprobs"][i] == pytest.approx(wanted[i - 1][ids[i]], abs=1e-4)
            assert max(lists["top_logprobs"][i].values()) == pytest.approx(
                wanted[i - 1].max(), abs=1e-4
            )


def test_the_same_in_a_stream_and_for_several_choices(server):
    body = {"prompt": ["Once", "Ne"], "max_tokens": 2, "seed": 3, "logprobs": 1, "echo": True}
    whole = server.post("/v1/completions", **body, n=2)["choices"]
    texts, logprobs = [""] * 4, [[] for _ in range(4)]
    for chunk in server.events("/v1/completions", **body, n=2):
        for choice in chunk["choices"]:
            texts[choice["index"]] += choice["text"]
            logprobs[choice["index"]] += (choice["logprobs"] or {}).get("token_logprobs", [])
    assert texts == [choice["text"] for choice in whole]
    assert [text.startswith(("Once", "Ne")) for text in texts] == [True] * 4
    assert logprobs == [choice["logprobs"]["token_logprobs"] for choice in whole]


def test_a_prompt_alone_and_without_probabilities(server):
    body = {"prompt": "Once upon", "max_tokens": 0, "echo": True}
    assert server.post("/v1/completions", **body)["choices"][0]["text"] == "Once upon"
    lists = server.post("/v1/completions", **body, logprobs=1)["choices"][0]["logprobs"]
    assert len(lists["tokens"]) == 9 and None not in lists["token_logprobs"][1:]
    messages = [{"role": "user", "content": "Hello"}]
    answer = server.post("/v1/chat/completions", 400, messages=messages, echo=True)
    assert answer["error"]["param"] == "echo"


LM_EVAL = """
import json, sys
import lm_eval

port, data, tokenizer = sys.argv[1:]
task = {
    "task": "likely",
    "dataset_path": "json",
    "dataset_kwargs": {"data_files": {"test": data}},
    "test_split": "test",
    "output_type": "multiple_choice",
    "doc_to_text": "{{question}}",
    "doc_to_choice": "{{choices}}",
    "doc_to_target": "{{gold}}",
    "target_delimiter": "",
    "metric_list": [{"metric": "acc", "aggregation": "mean", "higher_is_better": True}],
}
found = lm_eval.simple_evaluate(
    model="local-completions",
    model_args={
        "model": "fortunes",
        "base_url": f"http://localhost:{port}/v1/completions",
        "tokenizer": tokenizer,
        "tokenized_requests": True,
        "num_concurrent": 2,
    },
    tasks=[task],
)
print(json.dumps(found["results"]["likely"]["acc,none"]))
"""


def test_likelihoods_of_lm_evaluation_harness(server, model, tmp_path):
    pytest.importorskip("lm_eval")
    transformers = pytest.importorskip("transformers")
    rows = [
        ("The reason for ", ["this", "xqzj"]),
        ("To be or not to ", ["zzkw", "be"]),
        ("A man", [" is", "#Q#"]),
        ("Once upon", ["~~", " a time"]),
    ]
    gold = []
    for question, choices in rows:
        begin = len(model.encode(question))
        sums = []
        for choice in choices:
            ids = model.encode(question + choice)
            wanted = log_softmax(model.score(model.state(), ids))
            sums.append(sum(wanted[i - 1][ids[i]] for i in range(begin, len(ids))))
        gold.append(int(np.argmax(sums)))
    gold[-1] = 1 - gold[-1]  # one that is wrong
    data = tmp_path / "likely.jsonl"
    lines = [
        json.dumps({"question": q, "choices": c, "gold": g})
        for (q, c), g in zip(rows, gold, strict=True)
    ]
    data.write_text("\n".join(lines))
    folder = tmp_path / "tokenizer"
    transformers.PreTrainedTokenizerFast(
        tokenizer_object=bytes_tokenizer(), eos_token=chr(0x100)
    ).save_pretrained(folder)
    offline = {"HF_DATASETS_OFFLINE": "1", "HF_HUB_OFFLINE": "1", "HF_HOME": str(tmp_path)}
    done = subprocess.run(
        [sys.executable, "-c", LM_EVAL, str(server.port), str(data), str(folder)],
        env=os.environ | offline | {"OPENAI_API_KEY": "none"},
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    assert json.loads(done.stdout.splitlines()[-1]) == 0.75
