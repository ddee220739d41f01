"""Seeds that are texts, and which of the goldens become seeds."""

import json

# Of tests/golden/tokenizers/cases.json, and of tests/golden/chat_templates/templates.
TOKENIZER_CASES = ["byte_level", "qwen35", "deepseek", "llama2", "gemma", "signs", "unigram"]
TEMPLATES = [
    "01_chatml",
    "05_tools_json",
    "06_tool_calls",
    "08_loop_filters",
    "10_namespace",
    "12_macros",
    "15_text_methods",
    "17_numbers",
    "19_tests",
    "21_list_filters",
    "26_dates",
    "30_everything",
]

# tokenizer.json in tarn's own form.
TOKENIZERS = {
    "byte": {"format_version": 1, "type": "byte"},
    "char": {"format_version": 1, "type": "char", "code_points": [10, 32, 49, 50, 97, 98, 128512]},
    "world": {
        "format_version": 1,
        "type": "world",
        "vocabulary": "".join(f"{i + 1} b'\\x{i:02x}' 1\n" for i in range(256))
        + "257 'ab' 2\n258 b'\\xe2\\x96' 2\n259 ' 1' 2\n",
    },
    "ids": {"format_version": 1, "type": "ids", "vocab_size": 11},
}

_WEATHER = {
    "type": "function",
    "function": {
        "name": "get_weather",
        "description": "The weather of a place.",
        "parameters": {
            "type": "object",
            "properties": {"place": {"type": "string"}, "days": {"type": "integer"}},
            "required": ["place"],
        },
    },
}
_CALL = {
    "id": "call00001",
    "type": "function",
    "function": {"name": "get_weather", "arguments": {"place": "Bern", "days": 2}},
}
CHAT = {
    "messages": [
        {"role": "system", "content": "Be brief."},
        {"role": "user", "content": "Weather in Bern? <|im_end|>"},
        {"role": "assistant", "content": "", "tool_calls": [_CALL]},
        {"role": "tool", "content": '{"sky": "grey"}', "tool_call_id": "call00001"},
    ],
    "tools": [_WEATHER],
    "documents": None,
    "add_generation_prompt": True,
    "bos_token": "<s>",
    "eos_token": "</s>",
    "enable_thinking": False,
}

_CONFIG = {
    "format_version": 4,
    "model": {
        "vocab_size": 256,
        "d_model": 16,
        "n_layers": 2,
        "n_heads": 2,
        "d_key": 8,
        "d_value": 8,
        "dropout": 0.0,
        "tied_head": False,
        "tokenizer": "byte",
        "arch": "decoder",
        "task": "lm",
        "n_classes": 0,
        "n_decoder_layers": 0,
        "cross_attention": "linear",
        "input_dim": 0,
    },
    "layers": ["linear", {"attention": "full"}],
}

_SCHEMA = {
    "type": "object",
    "properties": {
        "name": {"type": "string", "pattern": "^[A-Z][a-z]+$"},
        "age": {"type": "integer", "minimum": 0, "maximum": 150},
        "tags": {"type": "array", "items": {"enum": ["a", 1, None]}, "maxItems": 3},
        "born": {"type": "string", "format": "date"},
        "next": {"$ref": "#"},
    },
    "required": ["name"],
}


def _request(path, body=None, method="POST"):
    return f"{method} {path}\n" + ("" if body is None else json.dumps(body))


def _http(line, *fields, body=""):
    head = [f"{line} HTTP/1.1", "Host: localhost", *fields]
    if body:
        head += [f"Content-Length: {len(body)}", "Content-Type: application/json"]
    return "\r\n".join(head) + "\r\n\r\n" + body


_KEY = "Authorization: Bearer secret-key"
_USER = [{"role": "user", "content": "Hi"}]
_FEW = {"max_tokens": 4, "seed": 1}

SEEDS = {
    "config": {
        "valid-own": json.dumps({"d_model": 32, "layers": ["linear", "full"], "max_positions": 64}),
        "valid-parallel": json.dumps(
            {"n_layers": 2, "d_model": 32, "positions": "rotary", "norm_kind": "rms"}
        ),
        "whole": json.dumps(_CONFIG),
    },
    "json": {
        "valid-object": '{"a": [1, -2.5e3, true, null], "b": {"\\u00e9\\ud83d\\ude00": "\\n\\\\"}}',
        "valid-number": " 18446744073709551615 ",
        "valid-list": '[[], {}, [[["x"]]], 0.1, -0, 1e-7, "\u00e9"]',
        "duplicate": '{"a": 1, "a": 2}',
        "surrogate": '"\\ud800"',
        "deep": "[" * 70 + "]" * 70,
    },
    "gbnf": {
        "valid-list": 'root ::= "- " item ("\\n- " item)*\nitem ::= [^\\n]+\n\0- a\n- b',
        "valid-repeats": 'root ::= x{2} x{0,1} y{1,} # end\nx ::= "x"\ny ::= [yz]\0xxyyz',
        "valid-nested": 'root ::= "(" root ")" | ""\n\0(())',
        "valid-escapes": 'root ::= "\\x41\\u00e9\\U0001F600" [^\\x00-\\x7F] . ( "a" |\n "b" )?\0A',
        "left": 'root ::= root "a" | "b"',
    },
    "regex": {
        "valid-classes": "[a-z\\d_]+@(?:[^\\s.]{2,8}\\.)+(?<end>com|org)\0ab@cd.org",
        "valid-escapes": "^\\x41\\u{1F600}?\\cJ|\\w*?\\W{0,3}$\0A\n",
        "valid-counts": "(a{1,3}b{2}){0,4}\0abbabb",
        "backreference": "(a)\\1",
    },
    "json_schema": {
        "valid-object": json.dumps(_SCHEMA) + '\0{"name": "Ada", "age": 36}',
        "valid-one-of": json.dumps(
            {"oneOf": [{"type": "number", "exclusiveMinimum": -3, "maximum": 10}, {"const": "x"}]}
        )
        + "\x003.5",
        "valid-any": "{}\0[1, {}]",
        "valid-parts": json.dumps(
            {
                "$defs": {"id": {"type": "string", "minLength": 1, "maxLength": 4}},
                "allOf": [
                    {
                        "type": "object",
                        "properties": {"id": {"$ref": "#/$defs/id"}},
                        "additionalProperties": {"type": ["boolean", "null"]},
                    },
                    {"required": ["id"]},
                ],
            }
        )
        + '\0{"id":"ab"}',
        "unknown": '{"type": "integer", "multipleOf": 3}',
    },
    "requests": {
        "valid-completion": _request(
            "/v1/completions",
            {"prompt": ["ab", "c"], "n": 2, "stop": ["x"], "logprobs": 2, "top_k": 5, **_FEW},
        ),
        "valid-stream": _request(
            "/v1/completions",
            {
                "prompt": [65, 66],
                "stream": True,
                "stream_options": {"include_usage": True},
                "logit_bias": {"65": -5, "66": False},
                "regex": "[a-c]{2}",
                **_FEW,
            },
        ),
        "valid-chat": _request(
            "/v1/chat/completions",
            {
                "messages": [
                    *_USER,
                    {"role": "assistant", "content": [{"type": "text", "text": "x"}]},
                ],
                "chat_template_kwargs": {"enable_thinking": True},
                "logprobs": True,
                "top_logprobs": 1,
                "response_format": {"type": "json_object"},
                **_FEW,
            },
        ),
        "valid-tools": _request(
            "/v1/chat/completions",
            {
                "messages": _USER,
                "tools": [{"type": "function", "function": {"name": "f"}}],
                "tool_choice": "auto",
                "samplers": ["top_k", "temperature"],
                "stream": True,
                **_FEW,
            },
        ),
        "valid-response": _request(
            "/v1/responses",
            {
                "instructions": "I",
                "input": [
                    {"role": "user", "content": [{"type": "input_text", "text": "a"}]},
                    {"type": "function_call", "call_id": "c", "name": "f", "arguments": "{}"},
                    {"type": "function_call_output", "call_id": "c", "output": "1"},
                ],
                "text": {"format": {"type": "text"}},
                "max_output_tokens": 3,
                "stream": True,
            },
        ),
        "valid-session": "\0".join(
            [
                _request("/sessions", {"id": "s", "text": "ab"}),
                _request("/sessions/s/mark", {"name": "m"}),
                _request("/sessions/s/completions", {"if_position": 2, **_FEW}),
                _request("/sessions/s/fork", {"n": 2, "ids": ["t"]}),
                _request("/sessions/s/rollback", {"mark": "m"}),
                _request("/sessions/t/append", {"tokens": [1, 2]}),
                _request("/v1/sessions/t", method="GET"),
                _request("/v1/sessions/s", method="DELETE"),
            ]
        ),
        "valid-tokens": "\0".join(
            [
                _request("/tokenize", {"content": "a\u00e9", "with_pieces": True}),
                _request("/detokenize", {"tokens": [97, 195]}),
                _request("/props", method="GET"),
                _request("/metrics", method="GET"),
            ]
        ),
        "unsupported": _request("/v1/completions", {"prompt": "a", "suffix": "b"}),
    },
    "http_head": {
        "valid-head": _http("GET /health?x=1", "Accept: */*"),
        "valid-path": "/sessions/a%20b/mark?x=%00",
        "two": "localhost\0http://localhost",
        "two-lengths": _http("POST /", "Content-Length: 1", "content-length: 2"),
        "folded": _http("GET /", "A: b\r\n c"),
        "upwards": "/a/%2E%2e/b",
    },
    "http_connection": {
        "valid-get": _http("GET /health"),
        "valid-several": _http("GET /items/7", _KEY)
        + _http("POST /echo", _KEY, body='{"a":1}')
        + _http("HEAD /items/x", _KEY, "X-Request-Id: r-1"),
        "valid-chunks": _http(
            "POST /stream?q", _KEY, "Transfer-Encoding: chunked", "Content-Type: application/json"
        )
        + "3\r\nabc\r\n\x002;x=y\r\nde\r\n0\r\nT: v\r\n\r\n",
        "valid-pieces": "GET /hea\0lth HTTP/1.0\r\nHost: 127.0.0.1\r\n\0Connection: keep-alive\r\n\r\n",
        "valid-options": _http("OPTIONS /echo", "Origin: https://example.org"),
        "expect": _http("POST /any", _KEY, "Expect: 100-continue", "Content-Length: 2") + "\0ab",
        "no-key": _http("GET /items/7"),
        "other-host": "GET /health HTTP/1.1\r\nHost: example.com\r\n\r\n",
        "not-http": "\x16\x03\x01\x02",
    },
}
