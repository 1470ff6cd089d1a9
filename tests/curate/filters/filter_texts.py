"""Texts that quality filters are tried on: real ones, junk of the web, and what bytes get wrong."""

from __future__ import annotations

import io
import json
import os
from functools import lru_cache
from itertools import islice
from pathlib import Path

import zstandard
from hypothesis import strategies as st

from curate.documents.documents import Documents, documents
from curate.steps.contracts import Step

SHARED = Path(os.environ.get("LLMCURATE_SHARED", Path(__file__).resolve().parents[4] / "shared"))
PROSE = (
    "The river was the quiet one of the two, and it had been so for as long as people could "
    "remember. Boats went down to the sea with wood and came back with salt; nobody asked who "
    "had built the bridge, or why that bridge was never painted. In spring the water rose over "
    "the lower fields, left its mud there, and went away again before the farmers had to worry.\n"
)
JUNK = [
    *(
        "",
        " ",
        "\n",
        "\n\n\n",
        " \n \n",
        "\r\n\r\n",
        "a",
        "the",
        "...",
        "…",
        "#",
        "-",
        "• ",
        "\u3000",
    ),
    *(
        "a\n",
        "\na",
        "\na\n",
        "a\n\na",
        "a\n\n\n a\n\n",
        "\n\na\na",
        " a\n\n a",
        "a \n\na",
        "a\u2028a",
    ),
    "buy now " * 200,
    "Home\nAbout\nContact\n" * 30,
    "\n".join(f"- item {i}" for i in range(60)),
    "\n".join(f"• item {i} of the list" for i in range(60)),
    "\n".join(f"●  item {i} of the list" for i in range(60)),
    "\n".join(f"* item {i}" for i in range(60)),
    "Read more about the house...\n" * 20 + "Go to the end…\n" * 10 + "And so on . . .\n" * 10,
    "# #tag ## of # and #\n" * 12,
    ". . . . . .. .... ..... ...... . . . . ........ … ……",
    " ".join(str(i) for i in range(300)),
    "x" * 5000,
    "don't can't e.g. 3.14 1,000.5 o'clock a:b 1:2 'tis U.S.A. x_y _a a' 'b d’or ‘q’ " * 4,
    "the The THE be Be to of and that have with. (with) with, And",
    "日本語の文章です。" * 40,
    "ภาษาไทยไม่มีช่องว่างระหว่างคำ การตัดคำจึงยาก\n" * 20,
    "é ü ñ e\u0301 a\u0300b \u0301 x\u200by \ufeff½ ² ١٢٣ ४५ Ⅷ ﬁ \U0001f600 \U0001f600\U0001f600",
    PROSE,
    PROSE + "\n" + PROSE,
    PROSE.replace(". ", ".\n"),
    PROSE.replace(". ", ".\n\n") * 2,
    PROSE.replace(" ", "\xa0"),
]
PIECES = [
    *(
        "the",
        "The",
        "be",
        "to",
        "of",
        "word",
        "ab",
        "c",
        "a",
        "longer-word",
        "don't",
        "3.14",
        "1,0",
    ),
    *(
        "é",
        "e\u0301",
        "ไทย",
        "日本",
        "\U0001f600",
        "_",
        "²",
        "·",
        "’",
        "'",
        ":",
        ";",
        ",",
        "\u0301",
    ),
    *("Mr.", "Messrs.", "e.g.", "J.", "U.S.", "x.y", "a.B", "St", "vs.", "--", "1.", "’s"),
    *("#", "...", "..", ".", "…", ". . .", "-", "- ", "•", "• x", "●", "*", '."', "!", "?", "。"),
    *(
        " ",
        " ",
        " ",
        "  ",
        "\t",
        "\n",
        "\n",
        "\n\n",
        "\r\n",
        "\x0b",
        "\x1c",
        "\x85",
        "\u2028",
        "\xa0",
    ),
    *("a b c d e f g h i j k l ", "one two three four five six ", "line one\n", "line two.\n"),
    *("x" * 30, "y" * 31, "é" * 30, "\u3000", "\x00", "\U0010ffff"),
]
texts = st.lists(st.sampled_from(PIECES), max_size=60).map("".join) | st.text(max_size=60)


@lru_cache(maxsize=1)
def real_texts() -> tuple[str, ...]:
    """Pieces of a long text of every language and kind in the shared folder; empty without it."""
    samples = []
    for path in sorted((SHARED / "corpora" / "longtext").glob("*.jsonl.zst")):
        with path.open("rb") as file:
            lines = io.TextIOWrapper(zstandard.ZstdDecompressor().stream_reader(file), "utf-8")
            for line in islice(lines, 1):
                text = json.loads(line)["text"]
                samples += [text[i : i + 3400] for i in range(0, min(len(text), 40_000), 3400)]
                samples.append(text[:30_000])
    return tuple(samples)


def measured(docs: Documents, step: str) -> list[dict[str, object]]:
    """Each row's columns of a step, by their names without it."""
    columns = [n for n in docs.table.column_names if n.startswith(f"{step}.")]
    rows = docs.table.select(columns).to_pylist()
    return [{n.removeprefix(f"{step}."): v for n, v in row.items()} for row in rows]


def applied(step: Step, values: list[str | None]) -> tuple[Documents, list[set[str]]]:
    """The batch after a step, and each row's rules."""
    ids = [str(i) for i in range(len(values))]
    docs = step.apply(documents({"id": ids, "text": values}).within(step.name))
    rules: list[set[str]] = [set() for _ in values]
    for mark in docs.drops:
        for row, value in zip(mark.rows, mark.values, strict=True):
            assert mark.rule not in rules[row], "a rule marks a row once"
            assert mark.rule == "empty" or value == value, "a value stands beside its threshold"
            rules[row].add(mark.rule)
    return docs, rules
