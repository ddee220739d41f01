#!/usr/bin/env python3
"""Records the session of docs/chat.md: trains a small model on questions and answers, gives it
a chat template, lets `tarn chat` answer, and writes docs/demonstrations/chat.txt.

    python3 scripts/record_chat.py

The page shows that file; a test compares the two. Environment:

  OUT    folder for the text, the model and the session [models/chat]
  BUILD  build directory [build]
  STEPS  updates [1500]; with another number nothing is written into docs
"""

import os
import pathlib
import random
import subprocess
import sys

OUT = pathlib.Path(os.environ.get("OUT") or "models/chat")
BUILD = pathlib.Path(os.environ.get("BUILD") or "build")
USUAL_STEPS = 1500
STEPS = int(os.environ.get("STEPS") or USUAL_STEPS)
PAGE = pathlib.Path(__file__).resolve().parents[1] / "docs" / "demonstrations" / "chat.txt"
TEXT, MODEL = "conversations.txt", "talk"
CONVERSATIONS = 4000
TRAINING = (
    "--preset gdn --n-layers 2 --d-model 64 --n-heads 2 --batch 4 --seq-len 128 --threads 1 "
    "--warmup 50 --lr 0.004 --eval-every 500 --sample-every 0 --seed 1"
).split()

CAPITALS = {
    "Peru": "Lima", "Japan": "Tokyo", "Egypt": "Cairo", "Norway": "Oslo", "Kenya": "Nairobi",
    "France": "Paris", "Cuba": "Havana", "Chile": "Santiago", "Italy": "Rome", "Ghana": "Accra",
    "Austria": "Vienna", "Greece": "Athens",
}  # fmt: skip
TEMPLATE = """\
{%- for m in messages %}{{ 'User: ' if m.role == 'user' else 'Bot: ' }}{{ m.content }}
{% endfor %}
{%- if add_generation_prompt %}{{ 'Bot: ' }}{% endif %}
"""
MESSAGES = """\
Hello
What is the capital of Peru?
/stats
/fork
Where is Cairo?
/undo
Where is Tokyo?
/stats
/save talk.json
"""
SPEEDS = "speed"  # what the line of /stats with them begins with


def exchange(draw):
    """A question and its answer."""
    country, capital = draw.choice(sorted(CAPITALS.items()))
    return draw.choice(
        [
            ("Hello", "Hello! What would you like to know?"),
            (f"What is the capital of {country}?", f"The capital of {country} is {capital}."),
            (f"Where is {capital}?", f"{capital} is in {country}."),
        ]
    )


def conversations(seed):
    """Conversations of one to five questions in the form of the template."""
    draw = random.Random(seed)
    texts = []
    for _ in range(CONVERSATIONS):
        for _ in range(draw.randint(1, 5)):
            question, answer = exchange(draw)
            texts.append(f"User: {question}\nBot: {answer}\n")
    return "".join(texts)


def train():
    """Trains the model unless it has been with these settings."""
    OUT.mkdir(parents=True, exist_ok=True)
    settings = " ".join([*TRAINING, "--steps", str(STEPS)])
    told = OUT / "settings"
    (OUT / TEXT).write_text(conversations(1))
    folder = OUT / MODEL
    if not (told.exists() and told.read_text() == settings):
        command = [str(BUILD / "tarn-train"), "--data", str(OUT / TEXT), "--out", str(folder)]
        done = subprocess.run([*command, *settings.split(), "--overwrite"], stdout=sys.stderr)
        if done.returncode != 0:
            sys.exit(done.returncode)
        told.write_text(settings)
    (folder / "chat_template.jinja").write_text(TEMPLATE)


def session():
    """What a reader of the terminal sees: the files, the command, its output."""
    done = subprocess.run(
        [str(BUILD.resolve() / "tarn"), "chat", MODEL, "--temperature", "0"],
        input=MESSAGES,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        encoding="utf-8",
        errors="replace",  # answers of a model that has hardly been trained
        cwd=OUT,
        check=True,
    )
    shown = [line for line in done.stdout.splitlines(keepends=True) if not line.startswith(SPEEDS)]
    return "".join(
        [
            "$ cat talk/chat_template.jinja\n", TEMPLATE,
            "$ cat messages\n", MESSAGES,
            "$ tarn chat talk --temperature 0 < messages\n", *shown,
        ]
    )  # fmt: skip


def main():
    train()
    text = session()
    (OUT / "chat.txt").write_text(text, "utf-8")
    print(text, end="")
    if STEPS == USUAL_STEPS:
        PAGE.write_text(text, "utf-8")


main()
