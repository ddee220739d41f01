"""The session of docs/chat.md is the one that scripts/record_chat.py recorded."""

import pathlib

DOCS = pathlib.Path(__file__).resolve().parents[2] / "docs"


def test_the_page_shows_what_was_recorded():
    session = (DOCS / "demonstrations" / "chat.txt").read_text()
    assert f"```\n{session}```\n" in (DOCS / "chat.md").read_text()
    # What the text after it says.
    assert "93 tokens before it, 35 of them read" in session
