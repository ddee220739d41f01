"""Anthropic's interface over `tarn serve`, with models whose answers are known."""

import json

import bigram_model
import pytest
from serve_program import Server
from test_serve_chat import CALLS, FORCED, THINKS

HELLO = [{"role": "user", "content": "Hello"}]
TOOLS = [
    {
        "name": "weather",
        "description": "The weather of a city.",
        "input_schema": {"type": "object", "properties": {"city": {"type": "string"}}},
    }
]


@pytest.fixture(scope="module")
def servers(tmp_path_factory):
    root = tmp_path_factory.mktemp("models")
    keeps = bigram_model.KEEPS_THINKING
    bigram_model.write_bigram_model(root / "thinks", THINKS, keeps)
    bigram_model.write_bigram_model(root / "calls", CALLS, bigram_model.WITH_TOOLS)
    bigram_model.write_bigram_model(root / "forced", FORCED, bigram_model.WITH_TOOLS)
    (root / "keys").write_text("me:secret-key\n")
    models = [root / name for name in ("thinks", "calls", "forced")]
    started = Server(*models, "--api-key-file", root / "keys")
    yield started
    assert started.end() == 0, started.lines


def ask(server, path="/v1/messages", **body):
    given = {"model": "thinks", "max_tokens": 100, "temperature": 0, "messages": HELLO}
    return server.ask("POST", path, given | body, {"X-Api-Key": "secret-key"})


def answer_of(server, **body):
    status, answer = ask(server, **body)
    assert status == 200, answer
    assert (answer["type"], answer["role"]) == ("message", "assistant")
    return answer


def events_of(server, **body):
    status, text = ask(server, stream=True, **body)
    assert status == 200, text
    events = []
    for one in text.strip().split("\n\n"):
        name, data = one.split("\n")
        events.append(json.loads(data.removeprefix("data: ")))
        assert name == "event: " + events[-1]["type"]
    return events


def test_an_answer_and_its_thinking(servers):
    answer = answer_of(servers)
    assert answer["content"] == [
        {"type": "thinking", "thinking": "ab", "signature": ""},
        {"type": "text", "text": "cd"},
    ]
    assert (answer["stop_reason"], answer["stop_sequence"]) == ("end_turn", None)
    usage = answer["usage"]
    assert usage["input_tokens"] + usage["cache_read_input_tokens"] == 8
    assert usage["output_tokens"] == 7
    plain = answer_of(servers, thinking={"type": "disabled"})
    assert plain["content"] == [{"type": "text", "text": "cd"}]
    short = answer_of(servers, max_tokens=1)
    assert short["stop_reason"] == "max_tokens"
    stopped = answer_of(servers, stop_sequences=["x", "d"])
    assert (stopped["stop_reason"], stopped["stop_sequence"]) == ("stop_sequence", "d")
    assert stopped["content"][-1]["text"] == "c"


def test_a_stream(servers):
    events = events_of(servers)
    kinds = [event["type"] for event in events]
    assert kinds[0] == "message_start" and kinds[-2:] == ["message_delta", "message_stop"]
    assert kinds.count("content_block_start") == kinds.count("content_block_stop") == 2
    assert events[0]["message"]["usage"]["input_tokens"] == 8
    text = {0: "", 1: ""}
    for event in events:
        if event["type"] == "content_block_delta":
            delta = event["delta"]
            text[event["index"]] += delta.get("text", "") + delta.get("thinking", "")
    assert text == {0: "ab", 1: "cd"}
    assert events[-2]["delta"] == {"stop_reason": "end_turn", "stop_sequence": None}
    assert events[-2]["usage"]["output_tokens"] == 7


def test_tools(servers):
    answer = answer_of(servers, model="calls", tools=TOOLS)
    text, call = answer["content"]
    assert text == {"type": "text", "text": "ok"}
    assert (call["type"], call["name"], call["input"]) == ("tool_use", "weather", {"city": "Bern"})
    assert answer["stop_reason"] == "tool_use"
    result = {"type": "tool_result", "tool_use_id": call["id"], "content": "rain"}
    messages = [
        *HELLO,
        {"role": "assistant", "content": answer["content"]},
        {"role": "user", "content": [result, {"type": "text", "text": "Thanks"}]},
    ]
    answer_of(servers, model="calls", tools=TOOLS, messages=messages)
    events = events_of(servers, model="calls", tools=TOOLS)
    (start,) = [
        event["content_block"]
        for event in events
        if event["type"] == "content_block_start" and event["content_block"]["type"] == "tool_use"
    ]
    (delta,) = [
        event["delta"]["partial_json"]
        for event in events
        if event["type"] == "content_block_delta" and event["delta"]["type"] == "input_json_delta"
    ]
    assert start["input"] == {} and json.loads(delta) == {"city": "Bern"}


@pytest.mark.parametrize(
    "choice",
    [
        {"type": "any", "disable_parallel_tool_use": True},
        {"type": "tool", "name": "weather"},
    ],
)
def test_a_call_is_forced(servers, choice):
    answer = answer_of(
        servers, model="forced", tools=TOOLS, tool_choice=choice, temperature=1, max_tokens=4000
    )
    (call,) = answer["content"]
    assert call["type"] == "tool_use" and call["input"].keys() <= {"city"}
    assert answer["stop_reason"] == "tool_use"


def test_the_form_of_an_answer(servers):
    schema = {"type": "object", "properties": {"a": {"enum": [1, 2]}}, "required": ["a"]}
    config = {"format": {"type": "json_schema", "schema": schema}}
    answer = answer_of(servers, model="forced", output_config=config)
    (block,) = answer["content"]
    assert json.loads(block["text"]).keys() == {"a"}


def test_tokens_are_counted(servers):
    status, answer = ask(servers, "/v1/messages/count_tokens")
    assert (status, answer) == (200, {"input_tokens": 8})
    status, longer = ask(servers, "/v1/messages/count_tokens", system="Be kind")
    # <|system|>Be kind<|end|>
    assert longer == {"input_tokens": 8 + 9}
    blocks = [{"type": "text", "text": "Be kind"}]
    assert ask(servers, "/v1/messages/count_tokens", system=blocks)[1] == longer


@pytest.mark.parametrize(
    ("body", "param"),
    [
        ({"max_tokens": None}, "max_tokens"),
        ({"max_tokens": 0}, "max_tokens"),
        ({"messages": []}, "messages"),
        ({"messages": [{"role": "system", "content": "a"}]}, "messages[0].role"),
        ({"messages": [*HELLO, {"role": "assistant", "content": "a"}]}, "messages[1]"),
        (
            {"messages": [{"role": "user", "content": [{"type": "image"}]}]},
            "messages[0].content[0].type",
        ),
        ({"tools": [{"type": "web_search_20250305", "name": "w"}]}, "tools[0].type"),
        ({"tools": TOOLS, "tool_choice": {"type": "all"}}, "tool_choice.type"),
        ({"stop_sequences": [""]}, "stop_sequences[0]"),
    ],
)
def test_bad_fields_are_named(servers, body, param):
    status, answer = ask(servers, **body)
    assert status == 400
    assert answer["type"] == "error" and answer["error"]["type"] == "invalid_request_error"
    assert answer["error"]["param"] == param


def test_keys(servers):
    body = {"model": "thinks", "max_tokens": 1, "messages": HELLO}
    assert servers.ask("POST", "/v1/messages", body)[0] == 401
    assert servers.ask("POST", "/v1/messages", body, {"X-Api-Key": "other-key"})[0] == 401
    assert ask(servers, model="none")[1]["error"]["type"] == "not_found_error"


def test_anthropic_client(servers):
    anthropic = pytest.importorskip("anthropic")
    client = anthropic.Anthropic(
        base_url=f"http://localhost:{servers.port}", api_key="secret-key", max_retries=0
    )
    given = dict(max_tokens=100, messages=HELLO, extra_body={"temperature": 0})
    message = client.messages.create(model="thinks", **given)
    assert [block.type for block in message.content] == ["thinking", "text"]
    assert message.content[1].text == "cd" and message.stop_reason == "end_turn"
    with client.messages.stream(model="thinks", **given) as stream:
        assert "".join(stream.text_stream) == "cd"
        final = stream.get_final_message()
    assert final.content[0].thinking == "ab" and final.usage.output_tokens == 7
    with client.messages.stream(model="calls", tools=TOOLS, **given) as stream:
        call = stream.get_final_message().content[-1]
    assert (call.name, call.input) == ("weather", {"city": "Bern"})
    count = client.messages.count_tokens(model="thinks", messages=HELLO)
    assert count.input_tokens == 8
    with pytest.raises(anthropic.BadRequestError):
        client.messages.create(model="thinks", **(given | {"extra_body": {"temperature": 1e9}}))
