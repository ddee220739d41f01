"""Writes the goldens of chat templates: what transformers renders.

    python tests/golden/chat_templates/make_chat_templates.py

goldens.json has the contexts of conversations.py, for each of templates/*.jinja what
each context gives, and expressions.py with their results; null where transformers
raises.
"""

import json
import pathlib

import conversations
import expressions
import oracle

FOLDER = pathlib.Path(__file__).resolve().parent


def goldens() -> dict:
    contexts = {
        name: oracle.aliased(context) for name, context in conversations.conversations().items()
    }
    return {
        "now": list(conversations.NOW),
        "contexts": contexts,
        "templates": {
            path.name: {
                name: oracle.rendered(path.read_bytes().decode(), context)
                for name, context in contexts.items()
            }
            for path in sorted((FOLDER / "templates").glob("*.jinja"))
        },
        "expression_context": expressions.CONTEXT,
        "expressions": [
            [text, oracle.rendered(text, expressions.CONTEXT)] for text in expressions.expressions()
        ],
    }


if __name__ == "__main__":
    (FOLDER / "goldens.json").write_text(
        json.dumps(goldens(), ensure_ascii=True, indent=0, separators=(",", ":")) + "\n"
    )
