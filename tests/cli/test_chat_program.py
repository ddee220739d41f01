"""`tarn chat`, over pipes and on a terminal, with models whose answers are known."""

import json
import os
import pathlib
import pty
import re
import signal
import subprocess
import time

import bigram_model
import plain_model
import pytest

# After <|assistant|> the answer is <think>ab</think>cd.
THINKS = dict(
    zip(
        ["<|assistant|>", "<think>", "a", "b", "</think>", "c", "d"],
        ["<think>", "a", "b", "</think>", "c", "d", "<|end|>"],
    )
)


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    root = tmp_path_factory.mktemp("chat")
    bigram_model.write_bigram_model(root / "thinks", THINKS)
    bigram_model.write_bigram_model(root / "keeps", THINKS, bigram_model.KEEPS_THINKING)
    bigram_model.write_bigram_model(root / "endless", {"<|assistant|>": "e"})
    return root


def chat(tarn, folder, *lines, flags=()):
    done = tarn(
        "chat", folder, "--temperature", 0, *flags, stdin="".join(f"{x}\n" for x in lines).encode()
    )
    return done.returncode, done.stdout.decode(), done.stderr.decode()


def turns(stderr):
    """(tokens before an answer, of them read, written) of every /stats."""
    found = re.findall(r"(\d+) tokens before it, (\d+) of them read, (\d+) written", stderr)
    return [tuple(map(int, row)) for row in found]


def test_answers_go_to_stdout_and_nothing_else(tarn, folder):
    code, out, err = chat(tarn, folder / "thinks", "Hello", "Hi")
    assert (code, out, err) == (0, "ab\n\ncd\n" * 2, "")
    code, out, err = chat(tarn, folder / "thinks", "Hello", flags=["--hide-thinking"])
    assert (code, out, err) == (0, "cd\n", "")
    code, out, _ = chat(tarn, folder / "thinks", "Hello", flags=["--no-thinking"])
    assert (code, out) == (0, "cd\n")


def test_nothing_is_read_twice(tarn, folder):
    # <|user|>Hello<|end|><|assistant|> and the answer's six tokens; then <|end|> and a
    # message of five tokens.
    lines = ["Hello", "/stats", "Hi", "/stats", "Hi", "/stats"]
    _, _, err = chat(tarn, folder / "keeps", *lines)
    assert turns(err) == [(8, 8, 6), (20, 6, 6), (32, 6, 6)]
    # A template that forgets thinking: c d <|end|> and the message are read, from the
    # state before the answer on.
    _, _, err = chat(tarn, folder / "thinks", *lines)
    assert turns(err) == [(8, 8, 6), (16, 8, 6), (24, 8, 6)]


def test_drafts_change_no_answer(tarn, folder):
    lines = ["Hello", "Hi", "/fork", "Hello", "/stats", "/undo", "Hi", "/stats"]
    plain = chat(tarn, folder / "thinks", *lines)
    drafted = chat(tarn, folder / "thinks", *lines, flags=["--speculate", "ngram"])
    assert drafted[:2] == plain[:2] and drafted[0] == 0
    assert turns(drafted[2]) == turns(plain[2])
    code, _, err = chat(tarn, folder / "thinks", flags=["--speculate", "mtp"])
    assert code == 2 and "--speculate" in err


def test_undo_fork_and_switch(tarn, folder):
    lines = ["Hello", "/fork", "A", "/undo", "B", "/stats", "/switch 1", "C", "/stats", "/undo"]
    code, out, err = chat(tarn, folder / "keeps", *lines, "/undo", "/undo")
    assert code == 0 and out == "ab\n\ncd\n" * 4
    # A and B have the same length; of B's turn only B and what follows it is read.
    assert turns(err) == [(19, 5, 6), (19, 5, 6)]
    assert "branch       2 of 2, 2 turns" in err and "branch       1 of 2, 2 turns" in err
    assert "took the last turn back; 0 left" in err and "no turn to take back" in err


def test_save_and_load(tarn, folder, tmp_path):
    path = tmp_path / "talk.json"
    code, _, _ = chat(tarn, folder / "keeps", "/system Be brief.", "Hello", f"/save {path}")
    assert code == 0
    saved = json.loads(path.read_text())
    assert [(m["role"], m["content"]) for m in saved["messages"]] == [
        ("system", "Be brief."),
        ("user", "Hello"),
        ("assistant", "cd"),
    ]
    assert saved["messages"][2]["reasoning"] == "ab"
    _, out, err = chat(tarn, folder / "keeps", f"/load {path}", "Hi", "/stats")
    assert out == "ab\n\ncd\n" and "loaded 1 turns\n" in err
    assert turns(err) == [(31, 6, 6)]
    # Without the state, or with another model's, the messages are read again.
    (tmp_path / "talk.json.state").unlink()
    _, _, err = chat(tarn, folder / "keeps", f"/load {path}", "Hi", "/stats")
    assert "will be read again" in err and turns(err) == [(31, 31, 6)]


def test_system_message_from_the_flag_and_the_command(tarn, folder):
    _, _, err = chat(tarn, folder / "keeps", "Hi", "/stats", flags=["--system", "x"])
    assert turns(err) == [(8, 8, 6)]
    _, _, err = chat(tarn, folder / "keeps", "Hi", "/system xy", "Hi", "/stats")
    assert turns(err)[0][0] == 4 + 5 + 7 + 5 and turns(err)[0][1] == 4 + 5 + 7 + 5
    _, _, err = chat(tarn, folder / "keeps", "/system x", "/system", "Hi", "/stats")
    assert turns(err) == [(5, 5, 6)]


def test_messages_of_several_lines(tarn, folder):
    fence = '"""'
    lines = ["a\\", "b", "/stats", fence, "/undo", "", "c", fence, "/stats"]
    code, out, err = chat(tarn, folder / "keeps", *lines)
    assert code == 0 and out == "ab\n\ncd\n" * 2
    first, second = turns(err)
    assert first[0] == 3 + len("a\nb")
    assert second[1] == 4 + len("/undo\n\nc")
    # The input ends within a message.
    assert chat(tarn, folder / "keeps", fence, "a")[:2] == (0, "ab\n\ncd\n")


def test_special_tokens_in_messages_are_text(tarn, folder):
    _, out, err = chat(tarn, folder / "keeps", "<|end|><|assistant|>", "/stats")
    assert out == "ab\n\ncd\n"
    assert turns(err)[0][0] == 3 + len("<|end|><|assistant|>")


def test_limits_and_stop_texts(tarn, folder):
    code, out, err = chat(tarn, folder / "endless", "Hi", flags=["--max-tokens", 5])
    assert (code, out, err) == (0, "eeeee\n", "(ended after --max-tokens)\n")
    _, out, _ = chat(tarn, folder / "thinks", "Hi", flags=["--stop", "d", "--hide-thinking"])
    assert out == "c\n"


def test_own_models_chat_with_a_template(tarn, models, tmp_path):
    template = tmp_path / "plain.jinja"
    template.write_text(
        "{% for m in messages %}{% if m.role == 'user' %}{{ m.content }}a{% else %}"
        "{{ m.content }}\n{% endif %}{% endfor %}"
    )
    flags = ["--template", template, "--max-tokens", 20, "--seed", 1]
    code, out, err = chat(tarn, models / "char", "abc", "/stats", "b", "/stats", flags=flags)
    assert code == 0 and out.endswith("\n")
    first, second = turns(err)
    assert first[:2] == (4, 4) and second[0] == second[1] + first[0] + first[2]
    code, out, err = chat(tarn, models / "char", "abc")
    assert code == 3 and out == ""
    assert "want a chat template" in err and err.count("\n") == 1


def test_faults_end_a_script(tarn, folder, tmp_path):
    for line, code, part in [
        ("/undoo", 2, "did you mean '/undo'"),
        ("/undo 3", 2, "nothing after it"),
        ("/save", 2, "FILE"),
        ("/switch 2", 2, "1 to 1"),
        (f"/load {tmp_path}/none", 1, "none"),
        (f"/save {tmp_path}/no/where", 1, "where"),
    ]:
        done = chat(tarn, folder / "keeps", line, "Hello")
        assert done[0] == code and done[1] == "", done
        assert part in done[2] and done[2].count("\n") == 1, done
    refuses = tmp_path / "refuses.jinja"
    refuses.write_text("{{ raise_exception('no roles') }}")
    code, _, err = chat(tarn, folder / "keeps", "Hi", flags=["--template", refuses])
    assert code == 2 and "no roles" in err
    refuses.write_text("{% if %}")
    code, _, err = chat(tarn, folder / "keeps", "Hi", flags=["--template", refuses])
    assert code == 3 and "refuses.jinja: chat template, line 1" in err


def test_models_that_do_not_chat_are_refused(tarn, tmp_path):
    plain_model.write_model(tmp_path / "classes", arch="encoder", n_classes=2)
    (tmp_path / "classes" / "labels.json").write_text('["a", "b"]')
    code, _, err = chat(tarn, tmp_path / "classes", "Hi")
    assert code == 3 and err.count("\n") == 1


def _started(program, folder, *flags, **pipes):
    return subprocess.Popen([program, "chat", str(folder), "--temperature", "0", *flags], **pipes)


def test_an_interrupt_ends_the_answer_alone(tarn_program, folder):
    pipes = dict.fromkeys(("stdin", "stdout", "stderr"), subprocess.PIPE)
    with _started(tarn_program, folder / "endless", "--max-tokens", "100000000", **pipes) as run:
        for _ in range(2):
            run.stdin.write(b"Hi\n")
            run.stdin.flush()
            assert run.stdout.read(3) == b"eee"
            run.send_signal(signal.SIGINT)
            assert set(run.stdout.readline()) <= set(b"e\n")
            assert run.stderr.readline() == b"(stopped)\n"
        run.stdin.write(b"/stats\n")
        run.stdin.flush()
        run.stderr.readline()
        before, read, written = turns(run.stderr.readline().decode())[0]
        # The first answer, as far as it was written, was not read again.
        assert read == 6 and before > 5 + 6 and written >= 3
        run.stdin.write(b"Hi\n")
        run.stdin.flush()
        run.stdout.read(1)
        run.send_signal(signal.SIGTERM)
        run.communicate()
        assert run.returncode == 128 + signal.SIGTERM


def _wait_until_it_reads(run):
    """Until it sleeps, as it does when it waits for a message."""
    stat = pathlib.Path(f"/proc/{run.pid}/stat")
    while stat.read_text().rsplit(")")[1].split()[0] != "S":
        time.sleep(0.01)


def test_an_interrupt_at_the_prompt_ends_a_script(tarn_program, folder):
    pipes = dict.fromkeys(("stdin", "stdout", "stderr"), subprocess.PIPE)
    with _started(tarn_program, folder / "thinks", **pipes) as run:
        run.stdin.write(b"Hi\n")
        run.stdin.flush()
        assert run.stdout.read(7) == b"ab\n\ncd\n"
        _wait_until_it_reads(run)
        run.send_signal(signal.SIGINT)
        run.communicate()
        assert run.returncode == 130


def _screen(terminal, until):
    shown = b""
    while not re.search(until, shown):
        try:
            more = os.read(terminal, 4096)
        except OSError:
            break
        if not more:
            break
        shown += more
    return shown


def test_on_a_terminal(tarn_program, folder):
    terminal, side = pty.openpty()
    with _started(tarn_program, folder / "thinks", stdin=side, stdout=side, stderr=side) as run:
        os.close(side)
        assert b"/help" in _screen(terminal, b"> $")
        os.write(terminal, b"Hello\n")
        shown = _screen(terminal, b"cd\r\n> $")
        assert b"\x1b[2mab\x1b[0m\r\n\r\ncd\r\n> " in shown
        # Faults do not end it, nor does an interrupt at the prompt.
        os.write(terminal, b"/nothing\n")
        assert b"want a command" in _screen(terminal, b"> $")
        run.send_signal(signal.SIGINT)
        assert b"Ctrl-D ends" in _screen(terminal, b"ends\\.\r\n> $")
        os.write(terminal, b"/quit\n")
        _screen(terminal, b"never")
        assert run.wait() == 0
    os.close(terminal)


def test_generate_ends_at_the_models_tokens(tarn, folder, tmp_path):
    arguments = ("--temperature", 0, "--prompt", "c", "--json")
    got = json.loads(tarn("generate", folder / "thinks", *arguments).stdout)
    assert got["text"] == "d" and got["finish_reason"] == "stop"
    more = ("--ignore-eos", "--max-tokens", 4)
    got = json.loads(tarn("generate", folder / "thinks", *arguments, *more).stdout)
    assert got["text"] == "d<|end|><|end|><|end|>"
    # generation_config.json outranks config.json, and flags outrank both.
    other = bigram_model.write_bigram_model(
        tmp_path / "other",
        THINKS,
        generation_config={
            "eos_token_id": [bigram_model.id_of("b"), 300],
            "do_sample": True,
            "temperature": 100,
            "top_k": 1,
        },
    )
    got = json.loads(tarn("generate", other, "--prompt", "<", "--json", "--seed", 1).stdout)
    assert set(got["text"]) == {"<"} and got["tokens"] == 256
    got = json.loads(tarn("generate", other, "--prompt", "a", "--json").stdout)
    assert got["text"] == "" and got["finish_reason"] == "stop"
    noisy = ("--prompt", "<", "--json", "--seed", 1, "--top-k", 0)
    got = json.loads(tarn("generate", other, *noisy).stdout)
    assert set(got["text"]) != {"<"}
    (other / "generation_config.json").write_text('{"eos_token_id": "x"}')
    done = tarn("generate", other, "--prompt", "a")
    assert done.returncode == 3 and b"eos_token_id" in done.stderr
    done = tarn("verify", other)
    assert done.returncode != 0 and b"eos_token_id" in done.stdout + done.stderr


def test_rwkvs_vocabulary_is_read_where_there_is_no_tokenizer_json(tarn, tmp_path):
    folder = bigram_model.write_bigram_model(tmp_path / "world", {}, None, tokenizer=None)
    rows = [(i, chr(i) if i < 128 else bytes([i])) for i in range(256)]
    text = "".join(f"{i + 1} {row!r} 1\n" for i, row in rows)
    (folder / "rwkv_vocab_v20230424.txt").write_text(text)
    assert tarn("tokenize", folder, stdin=b"ab\n").stdout == b"98 99\n"
    arguments = ("--prompt", "ab", "--json", "--temperature", 0, "--max-tokens", 2)
    got = json.loads(tarn("generate", folder, *arguments).stdout)
    assert got["prompt_tokens"] == 2 and got["text"] == "bb"
    assert tarn("verify", folder).returncode == 0
    own = tmp_path / "own"
    assert tarn("import", folder, "--out", own).returncode == 0
    assert json.loads(tarn("generate", own, *arguments).stdout)["text"] == "bb"
    assert tarn("verify", own).returncode == 0


@pytest.fixture(scope="module")
def published(folder):
    """A directory with a tokenizer, one that puts <|user|> before texts, one without."""
    begins = bigram_model.tokenizer_json()
    token = {"SpecialToken": {"id": "<|user|>", "type_id": 0}}
    text = {"Sequence": {"id": "A", "type_id": 0}}
    begins["post_processor"] = {
        "type": "TemplateProcessing",
        "single": [token, text],
        "pair": [token, text],
        "special_tokens": {
            "<|user|>": {
                "id": "<|user|>",
                "ids": [bigram_model.id_of("<|user|>")],
                "tokens": ["<|user|>"],
            }
        },
    }
    bigram_model.write_bigram_model(folder / "begins", THINKS, tokenizer=begins)
    bigram_model.write_bigram_model(folder / "ids", THINKS, None, tokenizer=None)
    return folder


@pytest.mark.parametrize("name", ["thinks", "begins", "ids"])
def test_every_subcommand_takes_published_directories(tarn, published, tmp_path, name):
    ids = name == "ids"
    text = tmp_path / "text"
    text.write_text("97 98 99 97 98" if ids else "abcab")
    prompt = "97" if ids else "a"
    got = json.loads(
        tarn(
            "generate", published / name, "--prompt", prompt, "--json", "--temperature", 0,
            "--max-tokens", 2,
        ).stdout
    )  # fmt: skip
    begins = name == "begins"
    assert got["prompt_tokens"] == (2 if begins else 1)
    assert got["text"].split() == (["98", "261"] if ids else ["b</think>"])
    done = tarn("eval", published / name, text, "--json")
    assert done.returncode == 0, done.stderr
    scored = json.loads(done.stdout)
    assert scored["tokens"] == (6 if begins else 5)
    per_token = json.loads(tarn("eval", published / name, text, "--json", "--per-token").stdout)
    assert len(per_token["logprobs"]) == (5 if begins else 4)
    done = tarn("tokenize", published / name, text)
    if ids:
        assert done.returncode == 3 and b"tokenizer.json" in done.stderr
    else:
        assert done.stdout == b"97 98 99 97 98\n"
        back = tarn("tokenize", published / name, "--decode", stdin=done.stdout)
        assert back.stdout == b"abcab\n"
    facts = json.loads(tarn("info", published / name, "--json").stdout)
    assert facts["tokenizer_entries"] == 265
    done = tarn("verify", published / name)
    assert done.returncode == 0, done.stderr
    done = tarn("bench", published / name, "--n-prompt", 8, "--n-gen", 4, "-o", "json")
    assert done.returncode == 0, done.stderr
