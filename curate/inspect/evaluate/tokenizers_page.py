"""evaluate.html: tokenizers side by side, as one self-contained page."""

from __future__ import annotations

from typing import Any

from curate.inspect.evaluate.tokenizers_figures import ratio, rows
from curate.inspect.evaluate.tokenizers_terminal import PREMIUM
from curate.inspect.report.page import frame
from curate.pages.html import count, details, lead, name, plain, quote, section, shown, table

Chapter = tuple[str, str, str]
Found = dict[str, Any]
MOST = 200  # languages or sources


def render(found: Found) -> str:
    """The page of an evaluation."""
    every = found["tokenizers"]
    first = every[0]
    title = "Tokenizers compared" if len(every) > 1 else "Tokenizer evaluated"
    inputs = ", ".join(name(i) for i in found["inputs"][:8])
    inputs += " …" if len(found["inputs"]) > 8 else ""
    tiles = [
        (first["texts"], "texts"),
        (first["bytes"], "bytes"),
        (first["characters"], "characters"),
        (first["words"], "words"),
    ]
    cells = "".join(
        f"<div class=tile><b>{count(n)}</b><span>{what}</span></div>" for n, what in tiles
    )
    head = f"<h1>{title}</h1><p class=lead>On {inputs}.</p><div class=tiles>{cells}</div>"
    chapters = [
        _table(found),
        _shown(found),
        _languages(every),
        _sources(every),
        _tokens(every),
        _lost(every),
        _terms(),
    ]
    return frame(f"{title}: llmcurate", head, chapters, "For programs: evaluation.json.")


def _table(found: Found) -> Chapter:
    every = found["tokenizers"]
    said = "The best of a row is bold." if len(every) > 1 else "One tokenizer: nothing to compare."
    if "baseline" in found:
        said += f" Baseline: {name(found['baseline'])}."
    body = [
        [
            title.replace("  ", "&emsp;"),
            *(f"<b>{shown(c)}</b>" if i in best else shown(c) for i, c in enumerate(cells)),
        ]
        for title, cells, best in rows(every)
    ]
    body.append(["encoded by", *(shown(one["engine"]) for one in every)])
    head = ["", *(name(one["name"]) for one in every)]
    return section(
        "figures",
        "Figures",
        lead(said + " What each line means stands at the end."),
        table(head, body, numbers=range(1, len(head))),
    )


def _shown(found: Found) -> Chapter:
    """Every sample in a row, a tokenizer a card."""
    parts = []
    for nth, sample in enumerate(found["shown"], 1):
        cards = ""
        for one, cut in zip(found["tokenizers"], sample["pieces"], strict=True):
            tokens = sum(n for _, n in cut)
            cards += (
                f"<article class=card><h3>{name(one['name'])}</h3><p class=note>{count(tokens)}"
                f" tokens</p>{_cut(cut)}</article>"
            )
        what = f"Text {nth}{', its beginning' if sample['cut'] else ''}"
        parts.append(f"<h3>{what}</h3><div class=cards>{cards}</div>")
    if not parts:
        return section("texts", "Texts")
    return section(
        "texts",
        "Where texts are cut",
        lead(
            "Every token has a colour that differs from its neighbours'. ×n: n tokens within one"
            " character, or over characters that they share; struck out: what the tokenizer leaves"
            " out, where that is not white space."
        ),
        *parts,
    )


def _cut(pieces: list[tuple[str, int]]) -> str:
    out = []
    colour = 0
    for piece, tokens in pieces:
        word = shown(piece).replace("\n", "↵\n").replace("\t", "→\t")
        if tokens == 0:
            out.append(word if piece.isspace() else f"<del>{word}</del>")
            continue
        many = f"<sub>×{tokens}</sub>" if tokens > 1 else ""
        out.append(f"<span class=t{colour % 4}>{word}{many}</span>")
        colour += 1
    return f"<pre class=tokens dir=auto>{''.join(out)}</pre>"


def _languages(every: list[Found]) -> Chapter:
    first = every[0]["lang"]
    if not first:
        return section("languages", "By language")
    english = "premium_a_character" in first[0]
    kinds = [
        ("bytes_a_token", "bytes<br>a token"),
        ("fertility", "tokens<br>a word"),
        ("tokens_a_letter", "tokens<br>a letter"),
        ("tokens_a_text", "tokens<br>a text"),
    ]
    if english:
        kinds += [
            ("premium_a_character", "premium<br>a character"),
            ("premium_a_byte", "premium<br>a byte"),
            ("premium_a_text", "premium<br>a text"),
        ]
    if "nsl" in first[0]:
        kinds.append(("nsl", "over the<br>baseline"))
    parts = []
    for one in every:
        body = [
            [shown(row["label"]), count(row["texts"]), *(ratio(row[key]) for key, _ in kinds)]
            for row in one["lang"][:MOST]
        ]
        head = ["language", "texts", *(what for _, what in kinds)]
        inner = table(head, body, numbers=range(1, len(head)))
        parts.append(f"<h3>{name(one['name'])}</h3>{inner}")
    said = "The languages with the most text first. "
    if english:
        said += f"Premium: tokens over those of English, by the same measure; {PREMIUM}."
    else:
        said += "No text is English, so nothing is set against it."
    return section("languages", "By language", lead(said), *parts)


def _sources(every: list[Found]) -> Chapter:
    first = every[0]["source"]
    if len(first) < 2:
        return section("sources", "By source")
    body = [
        [
            name(row["label"]),
            count(row["texts"]),
            *(ratio(one["source"][i]["bytes_a_token"]) for one in every),
        ]
        for i, row in enumerate(first[:MOST])
    ]
    head = ["source", "texts", *(name(one["name"]) for one in every)]
    return section(
        "sources", "Bytes a token by source", table(head, body, numbers=range(1, len(head)))
    )


def _tokens(every: list[Found]) -> Chapter:
    """The longest tokens of each, and those that no text gives."""
    cards = ""
    for one in every:
        body = [
            [f"<code>{_word(token['text'])}</code>", count(token["bytes"]), count(token["id"])]
            for token in one["longest"]
        ]
        inner = table(["longest tokens", "bytes", "id"], body, numbers={1, 2})
        if one["unreachable"]:
            some = [
                [f"<code>{_word(t['text'])}</code>", count(t["id"]), _numbers(t["gives"])]
                for t in one["unreachable_examples"]
            ]
            said = f"{count(one['unreachable'])} tokens that no text gives"
            inner += details(said, table(["token", "id", "its text gives"], some, numbers={1}))
        cards += f"<article class=card><h3>{name(one['name'])}</h3>{inner}</article>"
    return section("tokens", "Tokens", f"<div class=cards>{cards}</div>")


def _word(text: str) -> str:
    return shown(plain(text, 80).replace("\n", "↵").replace("\t", "→").replace(" ", "␣"))


def _numbers(ids: list[int]) -> str:
    return " ".join(map(str, ids[:12])) + (" …" if len(ids) > 12 else "")


def _lost(every: list[Found]) -> Chapter:
    parts = []
    for one in every:
        if lost := one["first_lost"]:
            parts.append(
                f"<h3>{name(one['name'])}</h3><p>{count(one['lost'])} of {count(one['texts'])}"
                f" texts do not come back; the first is text {count(lost['text'] + 1)}, from"
                f" character {count(lost['character'])} on"
                f" ({' became '.join(lost['code_points'])}).</p><div class=sides><div>"
                f"<p class=note>was</p>{quote(lost['was'])}</div><div><p class=note>comes back as"
                f"</p>{quote(lost['is'])}</div></div>"
            )
    return section("lost", "Texts that do not come back", *parts)


TERMS = (
    ("word", "A run of letters and marks; white space, digits and signs end it, so don't is two."),
    ("tokens a word", "Tokens that hold a part of a word, on average (fertility)."),
    ("words kept whole", "Words of one token, with a space before it or not (STRR)."),
    (
        "tokens a letter",
        "In Han, kana, Thai, Lao, Khmer and Burmese, which have no spaces between words.",
    ),
    (
        "Rényi efficiency",
        "log(sum of p^2.5) / (1 - 2.5) / log(vocabulary), p: a token's share of all tokens; 1 where"
        " all are as frequent (Zouhar et al. 2023). Below it the same over the tokens that occur.",
    ),
    (
        "NSL",
        "Normalised sequence length: tokens over those of the baseline on the same texts; less is"
        " shorter (Dagan et al. 2024).",
    ),
    (
        "Gini",
        "Of the tokens that languages take, each language counted once: 0 where all take as many,"
        " towards 1 where one takes them all. A byte and a character do not say the same in two"
        " languages; on texts that do, look at tokens a text.",
    ),
    (
        "parts of characters",
        "Tokens of bytes that are no whole character, byte fallback included.",
    ),
    (
        "that no text gives",
        "The token's text, alone and behind other text, never gives the token back.",
    ),
    ("do not come back", "Texts that differ after encoding and decoding."),
    ("CPU time", "Of all threads, at this run: compare engines, not machines."),
)


def _terms() -> Chapter:
    rows = "".join(f"<dt>{shown(word)}</dt><dd>{shown(what)}</dd>" for word, what in TERMS)
    return section("terms", "What the words mean", f"<dl>{rows}</dl>")
