"""`tarn serve` as clients see it: OpenAI's package, plain HTTP, sessions and files.
Conversations are in test_serve_chat.py."""

import http.client
import json
import pathlib
import signal
import subprocess
import threading

import pytest
from conftest import TARN
from serve_program import Server

ROOT = pathlib.Path(__file__).resolve().parents[2]
MODEL = ROOT / "examples/fortunes"


@pytest.fixture(scope="module")
def server():
    one = Server(MODEL, "--metrics")
    yield one
    assert one.end() == 0, one.lines


def text_of(*words):
    done = subprocess.run(
        [TARN, "generate", str(MODEL), "--json", *map(str, words)],
        capture_output=True,
        text=True,
        check=True,
    )
    return json.loads(done.stdout)["text"]


def test_a_text_is_the_one_of_the_command_line(server):
    wanted = text_of("--prompt", "Once", "--max-tokens", 40, "--seed", 7)
    body = {"prompt": "Once", "max_tokens": 40, "seed": 7}
    answer = server.post("/v1/completions", **body)
    assert answer["choices"][0]["text"] == wanted
    assert answer["choices"][0]["finish_reason"] == "length"
    assert answer["usage"]["prompt_tokens"] == 4
    assert answer["usage"]["completion_tokens"] == 40
    # The same in a stream, and beside others.
    chunks = server.events("/v1/completions", **body)
    assert "".join(chunk["choices"][0]["text"] for chunk in chunks) == wanted
    texts = [None] * 6

    def run(index):
        texts[index] = server.post("/v1/completions", **body)["choices"][0]["text"]

    threads = [threading.Thread(target=run, args=(i,)) for i in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert texts == [wanted] * 6


def test_choices_prompts_stops_and_probabilities(server):
    answer = server.post(
        "/v1/completions", prompt=["Once", "Never"], n=3, max_tokens=9, seed=1, logprobs=2
    )
    assert [one["index"] for one in answer["choices"]] == list(range(6))
    assert len({one["text"] for one in answer["choices"]}) > 3
    for choice in answer["choices"]:
        probs = choice["logprobs"]
        assert len(probs["tokens"]) == len(probs["token_logprobs"]) == 9
        assert all(len(top) == 2 for top in probs["top_logprobs"])
        assert all(p <= 0 for p in probs["token_logprobs"])
    ended = server.post("/v1/completions", prompt="Once", max_tokens=200, seed=1, stop=[" "])
    assert ended["choices"][0]["finish_reason"] == "stop"
    assert " " not in ended["choices"][0]["text"]


@pytest.mark.parametrize(
    "constraint",
    [
        {"regex": "[0-9]{3} (cats|dogs)"},
        {"grammar": 'root ::= [0-9] [0-9] [0-9] " " ("cats" | "dogs")'},
    ],
)
def test_grammars(server, constraint):
    answer = server.post("/v1/completions", prompt="Once", max_tokens=50, **constraint)
    text = answer["choices"][0]["text"]
    assert text[:3].isdigit() and text[3:] in {" cats", " dogs"}
    assert answer["choices"][0]["finish_reason"] == "stop"


def test_json_schema(server):
    schema = {
        "type": "object",
        "properties": {"name": {"enum": ["a", "b"]}, "count": {"enum": [1, 2]}},
        "required": ["name", "count"],
        "additionalProperties": False,
    }
    answer = server.post(
        "/v1/completions",
        prompt="Once",
        max_tokens=200,
        temperature=0,
        response_format={"type": "json_schema", "json_schema": {"name": "x", "schema": schema}},
    )
    assert json.loads(answer["choices"][0]["text"]).keys() == {"name", "count"}


def test_nothing_is_read_twice(server):
    prompt = "It was a dark and stormy night, "
    computed = 0
    for turn in range(20):
        prompt += f"turn {turn}: "
        answer = server.post("/v1/completions", prompt=prompt, max_tokens=12, seed=turn)
        timings = answer["timings"]
        assert timings["cache_n"] + timings["prompt_n"] == answer["usage"]["prompt_tokens"]
        computed += timings["prompt_n"]
        prompt += answer["choices"][0]["text"]
    # Each turn: its own words, and the last token of the answer before.
    words = sum(len(f"turn {turn}: ") for turn in range(20))
    assert computed <= len("It was a dark and stormy night, ") + words + 19


def test_sessions(server):
    one = server.post("/sessions", 201, id="tree", text="Once upon a time")
    assert one["position"] == 16
    first = server.post("/sessions/tree/completions", max_tokens=20, seed=3)
    assert first["usage"]["prompt_tokens"] == 16
    fork = server.post("/sessions/tree/fork", 201, n=2)["sessions"]
    assert [each["parent"] for each in fork] == ["tree", "tree"]
    for each in fork:
        assert each["position"] == first["position"]
    # The same draws from the same value.
    texts = {
        server.post(f"/sessions/{each['id']}/completions", max_tokens=9, seed=5)["text"]
        for each in fork
    }
    assert len(texts) == 1
    server.post("/sessions/tree/mark", name="here")
    server.post("/sessions/tree/append", text=" more and more")
    status, answer = server.ask("POST", "/sessions/tree/append", {"text": "x", "if_position": 0})
    assert (status, answer["error"]["code"]) == (409, "position_mismatch")
    back = server.post("/sessions/tree/rollback", mark="here")
    assert back["position"] == first["position"]
    assert server.ask("GET", "/sessions/tree")[1]["marks"] == {"here": back["position"]}
    assert len(server.ask("GET", "/sessions")[1]["data"]) == 3
    for each in ["tree", *(each["id"] for each in fork)]:
        assert server.ask("DELETE", f"/sessions/{each}")[0] == 200
    status, answer = server.ask("GET", "/sessions/tree")
    assert (status, answer["error"]["code"]) == (404, "session_not_found")


def test_a_session_without_text_needs_one(server):
    server.post("/sessions", 201, id="empty")
    status, answer = server.ask("POST", "/sessions/empty/completions", {"max_tokens": 3})
    assert status == 400
    assert answer["error"]["param"] == "text", answer
    server.post("/sessions/empty/completions", text="Once", max_tokens=3)
    assert server.ask("DELETE", "/sessions/empty")[0] == 200


@pytest.mark.parametrize(
    ("path", "body", "param"),
    [
        ("/v1/completions", {"prompt": 3}, "prompt"),
        ("/v1/completions", {"prompt": [[1, -1]]}, "prompt[0]"),
        ("/v1/completions", {"prompt": "a", "n": 9}, "n"),
        ("/v1/completions", {"prompt": "a", "n": "1"}, "n"),
        ("/v1/completions", {"prompt": "a", "max_tokens": -5}, "max_tokens"),
        ("/v1/completions", {"prompt": "a", "temperature": "hot"}, "temperature"),
        ("/v1/completions", {"prompt": "a", "top_p": 0}, "top_p"),
        ("/v1/completions", {"prompt": "a", "stop": [""]}, "stop[0]"),
        ("/v1/completions", {"prompt": "a", "stop": ["a"] * 17}, "stop"),
        ("/v1/completions", {"prompt": "a", "logit_bias": {"999": 1}}, "logit_bias.999"),
        ("/v1/completions", {"prompt": "a", "logprobs": 21}, "logprobs"),
        ("/v1/completions", {"prompt": "a", "suffix": "b"}, "suffix"),
        ("/v1/completions", {"prompt": "a", "regex": "("}, None),
        ("/v1/chat/completions", {"messages": []}, None),
        ("/sessions", {"id": "a b"}, "id"),
        ("/tokenize", {}, "content"),
        ("/detokenize", {"tokens": [1000]}, "tokens[0]"),
    ],
)
def test_bad_fields_are_named(server, path, body, param):
    status, answer = server.ask("POST", path, body)
    assert status == 400
    if param:
        assert answer["error"]["param"].startswith(param), answer
    assert server.ask("GET", "/health") == (200, {"status": "ok"})


@pytest.mark.parametrize("text", ["{", '{"a":1,"a":2}', "[1]", '{"a":1e999}', '"\\ud800"'])
def test_bad_json_is_a_bad_request(server, text):
    connection = http.client.HTTPConnection("localhost", server.port)
    connection.request("POST", "/tokenize", text, {"Content-Type": "application/json"})
    answer = connection.getresponse()
    assert answer.status == 400
    assert json.loads(answer.read())["error"]["type"] == "invalid_request_error"


def test_facts(server):
    models = server.ask("GET", "/v1/models")[1]
    assert [one["id"] for one in models["data"]] == ["fortunes"]
    assert server.ask("GET", "/v1/models/fortunes")[1]["meta"]["vocab_size"] > 0
    (model,) = server.ask("GET", "/props")[1]["models"]
    assert model["load"].keys() == {"running", "slots", "waiting", "queue"}
    assert model["load"]["waiting"] == 0 and model["load"]["slots"] > 0
    names = {row["name"] for row in server.ask("GET", "/props")[1]["sampling"]}
    assert {"temperature", "top_k", "dry_multiplier", "mirostat"} <= names
    ids = server.post("/tokenize", content="Once")["tokens"]
    assert server.post("/detokenize", tokens=ids)["content"] == "Once"
    status, metrics = server.ask("GET", "/metrics")
    assert status == 200 and 'tarn_requests_total{model="fortunes"}' in metrics
    assert 'tarn_draft_tokens_accepted_total{model="fortunes"} 0' in metrics


def test_sessions_outlive_the_server(tmp_path):
    server = Server(MODEL, "--park-dir", tmp_path)
    server.post("/sessions", 201, id="kept", text="Once upon a time")
    first = server.post("/sessions/kept/completions", max_tokens=20, seed=3)
    server.post("/sessions/kept/fork", 201, ids=["other"])
    assert server.end() == 0
    server = Server(MODEL, "--park-dir", tmp_path)
    answer = server.post("/sessions/kept/completions", max_tokens=20, seed=4)
    other = server.post("/sessions/other/completions", max_tokens=20, seed=4)
    assert answer["text"] == other["text"]
    # Only the token that was drawn last and not read is read.
    assert answer["timings"]["prompt_n"] == 1
    assert answer["timings"]["cache_n"] == first["position"]
    # Killed, each file is the old one or the new one.
    server.post("/sessions/kept/park")
    server.end(signal.SIGKILL)
    server = Server(MODEL, "--park-dir", tmp_path)
    assert server.post("/sessions/kept/completions", max_tokens=1)["timings"]["prompt_n"] == 1
    assert server.end() == 0


def test_keys(tmp_path):
    keys = tmp_path / "keys"
    keys.write_text("# of tests\nalice:alice-has-a-key\nbob-has-a-key\n")
    server = Server(MODEL, "--api-key-file", keys)
    assert server.ask("GET", "/v1/models")[0] == 401
    assert server.ask("GET", "/health")[0] == 200
    alice = {"Authorization": "Bearer alice-has-a-key"}
    bob = {"Authorization": "Bearer bob-has-a-key"}
    body = {"id": "mine", "text": "Once"}
    assert server.ask("POST", "/sessions", body, alice)[0] == 201
    assert server.ask("GET", "/sessions/mine", None, alice)[0] == 200
    assert server.ask("GET", "/sessions/mine", None, bob)[0] == 404
    assert server.end() == 0


@pytest.mark.parametrize(
    ("words", "code"),
    [
        (["--port", "70000"], 2),
        (["--slots", "0"], 2),
        (["--host", "0.0.0.0"], 2),
        (["--prompt-slice", "0"], 2),
        (["--api-key-file", "/none/here"], 1),
    ],
)
def test_bad_flags(words, code):
    done = subprocess.run(
        [TARN, "serve", str(MODEL), *words], capture_output=True, text=True, timeout=60
    )
    assert done.returncode == code, done.stderr
    assert 1 <= done.stderr.count("\n") <= 2  # and where the help is


def test_openai_client(server):
    openai = pytest.importorskip("openai")
    client = openai.OpenAI(base_url=f"http://localhost:{server.port}/v1", api_key="none")
    assert [one.id for one in client.models.list()] == ["fortunes"]
    wanted = text_of("--prompt", "Once", "--max-tokens", 20, "--seed", 7)
    options = {"model": "fortunes", "prompt": "Once", "max_tokens": 20, "seed": 7}
    answer = client.completions.create(**options)
    assert answer.choices[0].text == wanted
    stream = client.completions.create(
        **options, stream=True, stream_options={"include_usage": True}
    )
    chunks = list(stream)
    assert "".join(c.choices[0].text for c in chunks if c.choices) == wanted
    assert chunks[-1].usage.completion_tokens == 20
    with pytest.raises(openai.BadRequestError, match="top_p"):
        client.completions.create(**options, top_p=3)
