"""A tokenizer's card as Markdown, for who gets the folder and nothing else.

What is shown is in the JSON beside it; a text of a corpus, a pattern or a token is shown so that no
character of it is Markdown.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from tokenize_kit.card.markdown import code, table
from tokenize_kit.card.words import about, figures_of, kept, made
from tokenize_kit.files import to_json, write_atomic

MOST_ROWS = 50  # of a table whose length the corpus or the vocabulary decides


def write_card(file: Path, card: dict[str, Any]) -> None:
    """The card in that JSON file, behind the page of the same name (.md)."""
    write_atomic(file.with_suffix(".md"), page(card, file.name).encode("utf-8", "replace"))
    write_atomic(file, to_json(card))


def page(card: dict[str, Any], name: str) -> str:
    """The page of a card of training, extending, pruning or converting; name: of its JSON."""
    parts = [
        f"# Tokenizer: {card['algorithm']}, {card['vocab']:,} tokens",
        "\n\n".join([about(card), kept(card)]),
        _use(card),
        _figures(card),
        _made(card),
        _settings(card),
        _special(card),
        _list("Warnings", card.get("warnings", [])),
        _list("Notes", [n for n in card["notes"] if n != card.get("gguf", {}).get("refused")]),
        f"All of this, for programs: {code(name)}.",
    ]
    return "\n\n".join(part for part in parts if part) + "\n"


def _section(title: str, *paragraphs: str) -> str:
    return "\n\n".join([f"## {title}", *paragraphs])


def _list(title: str, lines: list[str]) -> str:
    return _section(title, "\n".join(f"- {code(line)}" for line in lines)) if lines else ""


def _use(card: dict[str, Any]) -> str:
    """How to load it: by the file that lies beside the card."""
    file, lines = card["file"], []
    if file == "tokenizer.json":
        lines += [
            "- transformers: `AutoTokenizer.from_pretrained(FOLDER)`",
            '- tokenizers: `Tokenizer.from_file("tokenizer.json")`',
        ]
    if file.endswith(".model") or card.get("model") == "unigram":
        own = file if file.endswith(".model") else "tokenizer.model"
        lines.append(f'- sentencepiece: `SentencePieceProcessor(model_file="{own}")`')
    if file.endswith(".gguf"):
        lines.append(f"- llama.cpp: {code(file)} is the vocabulary alone, without a model")
    else:
        own = code(f"llmcurate tokenizer encode corpus/ --tokenizer {_name(card)} -o shards")
        lines.append(f"- token shards: {own}")
    if "gguf" in card:
        lines.append(_gguf(card["gguf"]))
    return _section("How to load it", "\n".join(lines))


def _name(card: dict[str, Any]) -> str:
    """How a command takes it: ranks by their file and the pattern that they lack."""
    if not card["file"].endswith(".tiktoken"):
        return "FOLDER" if card["file"] == "tokenizer.json" else card["file"]
    return f"{card['file']} --pattern {card.get('pattern') or 'NAME'}"


def _gguf(found: dict[str, str]) -> str:
    if "refused" in found:
        return f"- llama.cpp cannot load it: {code(found['refused'])}"
    names = ", ".join(f"{code(key)} {code(value)}" for key, value in found.items())
    return f"- llama.cpp: `llmcurate tokenizer convert FOLDER --to gguf -o tok.gguf` ({names})"


def _figures(card: dict[str, Any]) -> str:
    said, rows = figures_of(card)
    return _section("Figures", said, table(("figure", "value"), rows)) if rows else ""


def _made(card: dict[str, Any]) -> str:
    rows = [(k, f"{v:,}" if isinstance(v, int) else code(str(v))) for k, v in made(card)]
    paragraphs = [table(("what", "value"), rows)]
    mixture = card.get("mixture")
    if mixture:
        values = mixture["values"]
        shown = sorted(values, key=lambda v: (-values[v]["share"], v))
        lines = [
            (
                code(v),
                f"{values[v]['weight']:g}",
                f"{values[v]['documents']:,}",
                f"{values[v]['bytes']:,}",
                f"{values[v]['share']:.2%}",
            )
            for v in shown[:MOST_ROWS]
        ]
        by = f"by the column {code(mixture['column'])}"
        if mixture["temperature"] is not None:
            by += f", temperature {mixture['temperature']:g}"
        head = (mixture["column"], "weight", "documents", "bytes", "share")
        paragraphs += [f"Mixture {by}:", table((code(head[0]), *head[1:]), lines)]
        paragraphs += _more(len(values))
    return _section("How it was made", *paragraphs)


def _settings(card: dict[str, Any]) -> str:
    if "settings" not in card:
        return ""
    given = {k: json.dumps(v, ensure_ascii=False) for k, v in card["settings"].items()}
    rows = [(code(k), "not given" if v == "null" else code(v)) for k, v in given.items()]
    paragraphs = [table(("setting", "as given"), rows)]
    if card.get("regex"):
        parts = "\n".join(f"{n}. {code(part)}" for n, part in enumerate(card["regex"], 1))
        paragraphs += ["Text is cut by these expressions, one after the other:", parts]
    return _section("Settings", *paragraphs)


def _special(card: dict[str, Any]) -> str:
    special = card["special_tokens"]
    if not special:
        return _section("Special tokens", "None.")
    ordered = sorted(special.items(), key=lambda pair: pair[1])
    rows = [(code(token), str(number)) for token, number in ordered[:MOST_ROWS]]
    end = card["end_of_text"]
    said = f"{code(end)} ends a document." if end else "None ends a document."
    said += " Their spelling in a text stays text, where `llmcurate` encodes."
    return _section("Special tokens", said, table(("token", "id"), rows), *_more(len(special)))


def _more(count: int) -> list[str]:
    return [f"{count - MOST_ROWS:,} more are in the JSON."] if count > MOST_ROWS else []
