"""Vectors of texts: `tarn embed`, and /v1/embeddings with OpenAI's package."""

import base64
import http.client
import json
import pathlib
import threading

import numpy as np
import pytest
from serve_program import Server

ROOT = pathlib.Path(__file__).resolve().parents[2]
MODEL = ROOT / "examples/fortunes"
TEXTS = ["Once upon a time", "Never", "Once"]


@pytest.fixture(scope="module")
def server():
    one = Server(MODEL, "--max-prompt-tokens", 5000, "--metrics")
    yield one
    assert one.end() == 0, one.lines


def rows_of(tarn, *words, texts=TEXTS):
    done = tarn("embed", MODEL, *words, stdin="\n".join(texts).encode())
    assert done.returncode == 0, done.stderr
    return np.array([line.split() for line in done.stdout.splitlines()], np.float32)


def vectors(answer):
    assert [one["index"] for one in answer["data"]] == list(range(len(answer["data"])))
    return np.array([one["embedding"] for one in answer["data"]], np.float32)


def test_lines_become_vectors(tarn, tmp_path):
    rows = rows_of(tarn)
    assert rows.shape[0] == 3
    assert np.allclose(np.linalg.norm(rows, axis=1), 1, atol=1e-5)
    assert np.array_equal(rows, rows_of(tarn, "--batch", 1, "--threads", 1))
    last = rows_of(tarn, "--pooling", "last")
    assert not np.array_equal(rows, last)
    done = tarn("embed", MODEL, "--json", stdin=TEXTS[0].encode())
    line = json.loads(done.stdout)
    assert line["tokens"] == 16
    assert np.array_equal(np.array(line["embedding"], np.float32), rows[0])
    (tmp_path / "a").write_text("two\nlines")
    whole = tarn("embed", MODEL, tmp_path / "a", tmp_path / "a", "--whole")
    first, second = whole.stdout.splitlines()
    assert first == second


@pytest.mark.parametrize(
    ("words", "stdin", "code"),
    [
        (("--pooling", "max"), b"a", 2),
        ((), b"a\n\nb", 3),
        (("missing.txt",), b"", 3),
    ],
)
def test_what_has_no_vector(tarn, words, stdin, code):
    done = tarn("embed", MODEL, *words, stdin=stdin)
    assert done.returncode == code, done.stderr
    assert done.stderr.startswith(b"tarn embed: error")


def test_the_server_gives_the_same(server, tarn):
    for pooling in ("mean", "last"):
        rows = rows_of(tarn, "--pooling", pooling)
        answer = server.post("/v1/embeddings", input=TEXTS, pooling=pooling)
        assert np.array_equal(vectors(answer), rows)
        assert answer["object"] == "list" and answer["model"] == "fortunes"
        assert answer["usage"] == {"prompt_tokens": 25, "total_tokens": 25}
        for text, row in zip(TEXTS, rows, strict=True):
            one = server.post("/v1/embeddings", input=text, pooling=pooling)
            assert np.array_equal(vectors(one)[0], row)
        ids = [server.post("/tokenize", content=text)["tokens"] for text in TEXTS]
        of_ids = server.post("/v1/embeddings", input=ids, pooling=pooling)
        assert np.array_equal(vectors(of_ids), rows)
        flat = server.post("/v1/embeddings", input=ids[0], pooling=pooling)
        assert np.array_equal(vectors(flat)[0], rows[0])
    packed = server.post("/v1/embeddings", input=TEXTS, encoding_format="base64")
    for one, row in zip(packed["data"], rows_of(tarn), strict=True):
        assert np.array_equal(np.frombuffer(base64.b64decode(one["embedding"]), "<f4"), row)


def test_next_to_texts_that_are_written(server):
    wanted = server.post("/v1/completions", prompt="Once", max_tokens=30, seed=1)
    alone = server.post("/v1/embeddings", input=TEXTS * 20)
    got = {}

    def write(index):
        got[index] = server.post("/v1/completions", prompt="Once", max_tokens=30, seed=1)

    def embed(index):
        got[index] = server.post("/v1/embeddings", input=TEXTS * 20)

    threads = [threading.Thread(target=embed if i % 2 else write, args=(i,)) for i in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for index, answer in got.items():
        if index % 2:
            assert answer == alone
        else:
            assert answer["choices"][0]["text"] == wanted["choices"][0]["text"]


@pytest.mark.parametrize(
    ("body", "param"),
    [
        ({}, "input"),
        ({"input": 3}, "input"),
        ({"input": ""}, "input"),
        ({"input": []}, "input"),
        ({"input": ["a", ""]}, "input[1]"),
        ({"input": ["a", 3]}, "input[1]"),
        ({"input": [[-1]]}, "input[0]"),
        ({"input": ["a"] * 257}, "input"),
        ({"input": ["a" * 1000] * 6}, "input"),
        ({"input": "a" * 5001}, "input"),
        ({"input": "a", "dimensions": 3}, "dimensions"),
        ({"input": "a", "encoding_format": "int8"}, "encoding_format"),
        ({"input": "a", "pooling": "max"}, "pooling"),
    ],
)
def test_bad_fields_are_named(server, body, param):
    status, answer = server.ask("POST", "/v1/embeddings", body)
    assert status == 400
    assert answer["error"]["param"].startswith(param), answer


def test_the_width_of_the_model_may_be_named(server):
    width = len(server.post("/v1/embeddings", input="a")["data"][0]["embedding"])
    server.post("/v1/embeddings", input="a", dimensions=width)


def test_a_client_that_goes_away_costs_nothing_more(server):
    connection = http.client.HTTPConnection("localhost", server.port)
    body = json.dumps({"input": ["a" * 4999]})
    connection.request("POST", "/v1/embeddings", body, {"Content-Type": "application/json"})
    connection.close()
    assert server.post("/v1/completions", prompt="Once", max_tokens=3)


def test_openai_client(server, tarn):
    openai = pytest.importorskip("openai")
    client = openai.OpenAI(base_url=f"http://localhost:{server.port}/v1", api_key="none")
    rows = rows_of(tarn)
    for given in ({}, {"encoding_format": "float"}):
        answer = client.embeddings.create(model="fortunes", input=TEXTS, **given)
        got = np.array([one.embedding for one in answer.data], np.float32)
        assert np.array_equal(got, rows)
        assert answer.usage.prompt_tokens == 25
    one = client.embeddings.create(model="fortunes", input=TEXTS[0])
    assert np.array_equal(np.array(one.data[0].embedding, np.float32), rows[0])
