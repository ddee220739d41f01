"""Conversations over `tarn serve`, with models whose answers are known."""

import json

import bigram_model
import pytest
from serve_program import Server

# After <|assistant|> the answer is <think>ab</think>cd.
THINKS = dict(
    zip(
        ["<|assistant|>", "<think>", "a", "b", "</think>", "c", "d"],
        ["<think>", "a", "b", "</think>", "c", "d", "<|end|>"],
    )
)
# The answer is ok and a call.
CALLS = {
    "<|assistant|>": "o",
    "o": "k",
    "k": "<tool_call>",
    "<tool_call>": bigram_model.CALL,
    bigram_model.CALL: "</tool_call>",
    "</tool_call>": "<|end|>",
}
# Begins a call by itself; what else it writes is up to a grammar.
FORCED = {"<|assistant|>": "<tool_call>"}
TOOLS = [
    {
        "type": "function",
        "function": {
            "name": "weather",
            "description": "The weather of a city.",
            "parameters": {"type": "object", "properties": {"city": {"type": "string"}}},
        },
    }
]
NOW = {"type": "function", "function": {"name": "now"}}
HELLO = [{"role": "user", "content": "Hello"}]


@pytest.fixture(scope="module")
def servers(tmp_path_factory):
    root = tmp_path_factory.mktemp("models")
    keeps = bigram_model.KEEPS_THINKING
    bigram_model.write_bigram_model(root / "thinks", THINKS, keeps)
    bigram_model.write_bigram_model(root / "calls", CALLS, bigram_model.WITH_TOOLS)
    bigram_model.write_bigram_model(root / "endless", {"<|assistant|>": "e"})
    bigram_model.write_bigram_model(root / "forced", FORCED, bigram_model.WITH_TOOLS)
    started = Server(root / "thinks", root / "calls", root / "endless", root / "forced")
    yield started
    assert started.end() == 0, started.lines


def chat(server, model, messages=HELLO, **more):
    body = {"model": model, "messages": messages, "temperature": 0} | more
    return server.post("/v1/chat/completions", **body)


def test_an_answer_and_its_thinking(servers):
    answer = chat(servers, "thinks")
    message = answer["choices"][0]["message"]
    assert message == {"role": "assistant", "content": "cd", "reasoning_content": "ab"}
    assert answer["choices"][0]["finish_reason"] == "stop"
    # <|user|>Hello<|end|><|assistant|>; six tokens, and the one that ends them.
    assert answer["usage"]["prompt_tokens"] == 8
    assert answer["usage"]["completion_tokens"] == 7
    without = chat(servers, "thinks", chat_template_kwargs={"enable_thinking": False})
    assert without["choices"][0]["message"] == {"role": "assistant", "content": "cd"}


def test_a_session_reads_a_conversation_once(servers):
    servers.post("/sessions", 201, id="talk", model="thinks")
    messages = [{"role": "user", "content": "Hello"}]
    for turn in range(4):
        answer = servers.post(
            "/sessions/talk/completions", model="thinks", messages=messages, temperature=0
        )
        assert (answer["text"], answer["reasoning_content"]) == ("cd", "ab")
        # The first time all of it, then <|end|> and <|user|>Hi<|end|><|assistant|>.
        assert answer["timings"]["prompt_n"] == (6 if turn else 8)
        said = {"role": "assistant", "content": "cd", "reasoning_content": "ab"}
        messages += [said, {"role": "user", "content": "Hi"}]
    # Another beginning: it goes back to where the two part.
    other = [{"role": "user", "content": "Help"}]
    answer = servers.post("/sessions/talk/completions", model="thinks", messages=other)
    assert answer["timings"]["cache_n"] == 1 + len("Hel")
    assert servers.ask("DELETE", "/sessions/talk?model=thinks")[0] == 200


def test_a_stream(servers):
    events = servers.events(
        "/v1/chat/completions",
        model="thinks",
        messages=HELLO,
        temperature=0,
        stream_options={"include_usage": True},
    )
    deltas = [event["choices"][0]["delta"] for event in events[:-1]]
    assert deltas[0] == {"role": "assistant", "content": ""}
    assert "".join(delta.get("reasoning_content", "") for delta in deltas) == "ab"
    assert "".join(delta.get("content", "") for delta in deltas) == "cd"
    assert events[-2]["choices"][0]["finish_reason"] == "stop"
    assert events[-1]["choices"] == []
    assert events[-1]["usage"]["completion_tokens"] == 7
    assert all(event["usage"] is None for event in events[:-1])


def test_a_conversation_reads_its_new_tokens(servers):
    messages = [{"role": "user", "content": "A conversation"}]
    for turn in range(5):
        answer = chat(servers, "thinks", messages)
        message = answer["choices"][0]["message"]
        timings = answer["timings"]
        assert timings["cache_n"] + timings["prompt_n"] == answer["usage"]["prompt_tokens"]
        if turn:
            # <|end|>, which was drawn and not read, and <|user|>Hi<|end|><|assistant|>.
            assert timings["prompt_n"] == 1 + 5
        messages += [message, {"role": "user", "content": "Hi"}]


def test_tools(servers):
    answer = chat(servers, "calls", tools=TOOLS)
    choice = answer["choices"][0]
    assert choice["finish_reason"] == "tool_calls"
    assert choice["message"]["content"] == "ok"
    (call,) = choice["message"]["tool_calls"]
    assert call["type"] == "function" and call["id"]
    assert call["function"]["name"] == "weather"
    assert json.loads(call["function"]["arguments"]) == {"city": "Bern"}
    # The result goes back, and the answer to it comes.
    messages = [
        *HELLO,
        choice["message"],
        {"role": "tool", "tool_call_id": call["id"], "content": "rain"},
    ]
    chat(servers, "calls", messages, tools=TOOLS)
    # Without tools the text stays as it is.
    plain = chat(servers, "calls")["choices"][0]
    assert plain["finish_reason"] == "stop" and "<tool_call>" in plain["message"]["content"]
    events = servers.events(
        "/v1/chat/completions", model="calls", messages=HELLO, tools=TOOLS, temperature=0
    )
    calls = [
        call for event in events for call in event["choices"][0]["delta"].get("tool_calls", [])
    ]
    assert [call["index"] for call in calls] == [0]
    assert events[-1]["choices"][0]["finish_reason"] == "tool_calls"


def call_of(call, names=("weather", "now")):
    assert call["type"] == "function" and call["id"]
    name, arguments = call["function"]["name"], json.loads(call["function"]["arguments"])
    assert name in names
    assert arguments.keys() <= ({"city"} if name == "weather" else set())
    assert all(isinstance(city, str) for city in arguments.values())
    return name


@pytest.mark.parametrize("model", ["calls", "forced"])
def test_a_call_is_forced(servers, model):
    tools = [*TOOLS, NOW]
    names = set()
    for seed in range(12):
        more = {"tools": tools, "temperature": 1, "seed": seed}
        choice = chat(servers, model, tool_choice="required", **more)["choices"][0]
        assert choice["finish_reason"] == "tool_calls"
        assert choice["message"]["content"] is None
        names |= {call_of(call) for call in choice["message"]["tool_calls"]}
        one = {"tool_choice": "required", "parallel_tool_calls": False}
        choice = chat(servers, model, **one, **more)["choices"][0]
        (call,) = choice["message"]["tool_calls"]
        call_of(call)
        named = {"type": "function", "function": {"name": "now"}}
        choice = chat(servers, model, tool_choice=named, **more)["choices"][0]
        (call,) = choice["message"]["tool_calls"]
        assert call_of(call) == "now"
    assert names == {"weather", "now"}


def test_a_forced_call_begins_with_its_mark(servers):
    more = {"tools": TOOLS, "tool_choice": "required", "temperature": 0, "max_tokens": 1}
    choice = chat(servers, "forced", logprobs=True, **more)["choices"][0]
    assert choice["logprobs"]["content"][0]["token"] == "<tool_call>"


def test_a_forced_call_in_a_stream(servers):
    more = {"tools": [NOW], "tool_choice": "required", "parallel_tool_calls": False}
    events = servers.events("/v1/chat/completions", model="forced", messages=HELLO, **more)
    deltas = [event["choices"][0]["delta"] for event in events]
    (call,) = [call for delta in deltas for call in delta.get("tool_calls", [])]
    assert call_of(call) == "now" and call["index"] == 0
    assert not any(delta.get("content") for delta in deltas)
    assert events[-1]["choices"][0]["finish_reason"] == "tool_calls"
    body = {"model": "forced", "input": "Hello", "temperature": 1}
    tool = {"type": "function", "name": "now"}
    answer = servers.post("/v1/responses", **body, tools=[tool], tool_choice=tool)
    (call,) = [one for one in answer["output"] if one["type"] == "function_call"]
    assert call["name"] == "now" and json.loads(call["arguments"]) == {}
    assert answer["tools"] == [tool] and answer["tool_choice"] == tool


def test_one_call_of_several(servers):
    more = {"tools": TOOLS, "tool_choice": "none"}
    assert "tool_calls" not in chat(servers, "calls", **more)["choices"][0]["message"]
    more = {"tools": TOOLS, "parallel_tool_calls": False}
    (call,) = chat(servers, "calls", **more)["choices"][0]["message"]["tool_calls"]
    assert call_of(call) == "weather"


def test_responses(servers):
    body = {"model": "thinks", "input": "Hello", "temperature": 0}
    answer = servers.post("/v1/responses", **body)
    assert answer["status"] == "completed"
    assert answer["output"][-1]["content"][0]["text"] == "cd"
    assert answer["usage"]["input_tokens"] == 8
    short = servers.post("/v1/responses", **(body | {"max_output_tokens": 2}))
    assert short["status"] == "incomplete"


def test_a_client_that_goes_away_costs_nothing_more(servers):
    import http.client

    connection = http.client.HTTPConnection("localhost", servers.port)
    body = {"model": "endless", "messages": HELLO, "stream": True, "max_tokens": 10**8}
    connection.request(
        "POST", "/v1/chat/completions", json.dumps(body), {"Content-Type": "application/json"}
    )
    answer = connection.getresponse()
    answer.read(100)
    answer.close()
    connection.close()
    # It would run for hours, and the server would not end within the grace.
    assert chat(servers, "endless", max_tokens=3)["usage"]["completion_tokens"] == 3


def test_the_end_of_the_server_ends_streams(tmp_path):
    import http.client

    folder = bigram_model.write_bigram_model(tmp_path / "endless", {"<|assistant|>": "e"})
    server = Server(folder, "--grace", 2)
    connection = http.client.HTTPConnection("localhost", server.port)
    body = {"messages": HELLO, "stream": True, "max_tokens": 10**8}
    connection.request(
        "POST", "/v1/chat/completions", json.dumps(body), {"Content-Type": "application/json"}
    )
    answer = connection.getresponse()
    answer.read(100)
    server.process.terminate()
    text = answer.read().decode()
    assert text.endswith("data: [DONE]\n\n") and '"finish_reason":"cancelled"' in text
    assert server.process.wait() == 0
    server.end()


def test_models_and_templates(servers):
    status, answer = servers.ask(
        "POST", "/v1/chat/completions", {"model": "none", "messages": HELLO}
    )
    assert (status, answer["error"]["code"]) == (404, "model_not_found")
    names = {one["id"] for one in servers.ask("GET", "/v1/models")[1]["data"]}
    assert names == {"thinks", "calls", "endless", "forced"}


@pytest.mark.parametrize(
    ("body", "param"),
    [
        ({"messages": [{"role": "user"}]}, "messages[0]"),
        ({"messages": [{"role": "user", "content": 3}]}, "messages[0].content"),
        ({"messages": HELLO, "tool_choice": "required"}, "tool_choice"),
        (
            {"model": "thinks", "messages": HELLO, "tool_choice": "required", "tools": TOOLS},
            "tool_choice",
        ),
        ({"messages": HELLO, "tool_choice": "required", "tools": TOOLS, "regex": "a"}, "regex"),
        (
            {
                "messages": HELLO,
                "tool_choice": {"type": "function", "function": {"name": "x"}},
                "tools": TOOLS,
            },
            "tool_choice.function.name",
        ),
        (
            {
                "messages": HELLO,
                "tool_choice": "required",
                "tools": [
                    {
                        "type": "function",
                        "function": {
                            "name": "f",
                            "parameters": {
                                "properties": {"a": {"type": "number", "multipleOf": 2}}
                            },
                        },
                    }
                ],
            },
            "tools[0].function.parameters",
        ),
        ({"messages": HELLO, "parallel_tool_calls": 1}, "parallel_tool_calls"),
        ({"messages": HELLO, "tools": [{"type": "other"}]}, "tools[0]"),
    ],
)
def test_bad_conversations_are_named(servers, body, param):
    status, answer = servers.ask("POST", "/v1/chat/completions", {"model": "calls"} | body)
    assert status == 400
    assert answer["error"]["param"].startswith(param), answer


def test_openai_client(servers):
    openai = pytest.importorskip("openai")
    client = openai.OpenAI(base_url=f"http://localhost:{servers.port}/v1", api_key="none")
    answer = client.chat.completions.create(
        model="calls", messages=HELLO, tools=TOOLS, temperature=0
    )
    assert answer.choices[0].message.tool_calls[0].function.name == "weather"
    answer = client.chat.completions.create(
        model="forced", messages=HELLO, tools=[*TOOLS, NOW], tool_choice="required"
    )
    assert call_of(answer.choices[0].message.tool_calls[0].model_dump())
    stream = client.chat.completions.create(
        model="thinks", messages=HELLO, temperature=0, stream=True
    )
    assert "".join(c.choices[0].delta.content or "" for c in stream) == "cd"
    response = client.responses.create(model="thinks", input="Hello", temperature=0)
    assert response.output_text == "cd"
    with client.responses.stream(model="thinks", input="Hello", temperature=0) as events:
        for _ in events:
            pass
        assert events.get_final_response().output_text == "cd"
