"""Evaluated tokenizers on a terminal."""

from __future__ import annotations

from typing import Any

from curate.inspect.evaluate.tokenizers_page import (
    NONE,
    PREMIUM,
    TRAINED_ON,
    pivot_name,
    ratio,
    rows,
    script_rows,
    share,
    whole,
)
from llmcurate.base.disk.units import counted
from llmcurate.base.pages.html import plain
from llmcurate.base.terminal.tables import table

GROUPS_SHOWN = 20  # languages or sources printed; evaluation.json has all
SCRIPTS_SHOWN, PAIRS_SHOWN = 8, 6
NAME = 24  # columns of a name
COSTS = {
    "price_a_million_characters": "price of a million characters",
    "context_pages": "pages in the context",
}
COLOURS = tuple(f"\x1b[30;48;5;{n}m" for n in (152, 223, 151, 218))
OFF = "\x1b[0m"
Body = list[tuple[list[str], list[int]]]  # cells, and the positions of the best among the numbers


def text(evaluation: dict[str, Any], width: int, colours: bool) -> str:
    """An evaluation for a terminal. width: its columns, of which a rule takes no more."""
    results = evaluation["tokenizers"]
    first = results[0]
    names = [short(t["name"]) for t in results]
    body: Body = [([title, *cells], best) for title, cells, best in rows(results)]
    lines = [
        f"{counted(first['texts'], 'text')}, {first['bytes']:,} bytes, {first['characters']:,}"
        " characters,"
        f" {first['words']:,} words",
        "",
        *_grid(["", *names], body, colours),
    ]
    if any(best for _, best in body):
        lines.append(f"{'bold' if colours else '*'}: the best of a line")
    if "baseline" in evaluation:
        lines.append(f"baseline: {short(evaluation['baseline'])}")
    lines += _vocabularies(evaluation, names)
    for tokenizer in results:
        lines += _remarks(tokenizer)
    lines += _groups(evaluation, names, colours)
    for nth, sample in enumerate(evaluation["shown"], 1):
        lines += ["", f"text {nth}{', its beginning' if sample['cut'] else ''}"]
        for name, cut in zip(names, sample["pieces"], strict=True):
            tokens = sum(n for _, n in cut)
            lines += [
                "─" * min(width, 40),
                f"{name}: {counted(tokens, 'token')}",
                _cut(cut, colours),
            ]
    return "\n".join(lines)


def short(name: str) -> str:
    shown = plain(name, 200).replace("\n", " ").replace("\t", " ")
    return shown if len(shown) <= NAME else "…" + shown[1 - NAME :]


def _grid(head: list[str], body: Body, colours: bool) -> list[str]:
    """The best of a row bold, or starred where there are no colours."""
    bold = [(y, x + 1) for y, (_, best) in enumerate(body) for x in best]
    if not colours and bold:
        cells = [
            [c + (("*" if x - 1 in best else " ") if x else "") for x, c in enumerate(row)]
            for row, best in body
        ]
        return table([head[0], *(f"{h} " for h in head[1:])], cells)
    return table(head, [row for row, _ in body], bold=bold)


def _remarks(tokenizer: dict[str, Any]) -> list[str]:
    """The longest tokens, and what is wrong with a tokenizer."""
    name = short(tokenizer["name"])
    longest = ", ".join(quoted(token["text"]) for token in tokenizer["longest"][:5])
    lines = ["", f"{name}: {tokenizer['engine']} encodes; longest tokens {longest or NONE}"]
    if tokenizer["trained_on"]:
        lines.append(f"  {name} {TRAINED_ON}")
    if tokenizer["unreachable"]:
        examples = ", ".join(quoted(t["text"]) for t in tokenizer["unreachable_examples"][:8])
        lines.append(f"  no text gives {whole(tokenizer['unreachable'])} of its tokens: {examples}")
    if lost := tokenizer["first_lost"]:
        lines.append(
            f"  {tokenizer['lost']:,} of {counted(tokenizer['texts'], 'text')} do not come"
            " back; text"
            f" {lost['text'] + 1:,} first, at character {lost['character']:,}"
            f" ({' became '.join(lost['code_points'])}):"
        )
        was, back = lost["was"][:80], lost["is"][:80]
        lines += [f"    was {quoted(was, 80)}", f"    is  {quoted(back, 80)}"]
    return lines


def quoted(word: str, most: int = 24) -> str:
    """One line, in quotes, control characters visible."""
    return f"“{plain(word, most).replace(chr(10), '↵').replace(chr(9), '→')}”"


def _vocabularies(evaluation: dict[str, Any], names: list[str]) -> list[str]:
    """Tokens by script, and how many of them two vocabularies share."""
    scripts = script_rows(evaluation["tokenizers"], SCRIPTS_SHOWN)
    body: Body = [([label, *map(whole, counts)], []) for label, counts in scripts]
    lines = ["", "tokens of the vocabulary by script", *_grid(["", *names], body, False)]
    for pair in evaluation["overlaps"][:PAIRS_SHOWN]:
        first, second = names[pair["first"]], names[pair["second"]]
        lines.append(
            f"{first} and {second} share {counted(pair['shared'], 'token')},"
            f" {share(pair['jaccard'])} of those in either"
        )
    return lines


def _groups(evaluation: dict[str, Any], names: list[str], colours: bool) -> list[str]:
    """Bytes a token by language and by source, and what languages pay against the pivot."""
    results = evaluation["tokenizers"]
    languages, sources = results[0]["lang"], results[0]["source"]
    lines = []
    if languages:
        lines += _by("lang", "bytes_a_token", "bytes a token by language", results, names, colours)
    if len(languages) > 1 and "premium_a_character" in languages[0]:
        title = f"tokens a character over those of {pivot_name(evaluation)}"
        lines += [*_by("lang", "premium_a_character", title, results, names, colours), PREMIUM]
    if len(languages) > 1 and any(row["boundary_f1"] is not None for row in languages):
        title = "boundaries of words kept (F1) by language"
        lines += _by("lang", "boundary_f1", title, results, names, colours)
    for key, title in COSTS.items():
        if len(languages) > 1 and key in languages[0]:
            lines += _by("lang", key, f"{title} by language", results, names, colours)
    if languages and "nsl" in languages[0]:
        title = "tokens over the baseline's by language"
        lines += _by("lang", "nsl", title, results, names, colours)
    if len(sources) > 1:
        lines += _by("source", "bytes_a_token", "bytes a token by source", results, names, colours)
    return lines


def _by(
    group: str, key: str, title: str, results: list[dict[str, Any]], names: list[str], colours: bool
) -> list[str]:
    """A line a label, a column a tokenizer."""
    first = results[0][group]
    body: Body = [
        (
            [short(row["label"]), whole(row["texts"])] + [ratio(t[group][i][key]) for t in results],
            [],
        )
        for i, row in enumerate(first[:GROUPS_SHOWN])
    ]
    rest = len(first) - GROUPS_SHOWN
    more = f" (those with the most text; {rest} more)" if rest > 0 else ""
    return ["", title + more, *_grid(["", "texts", *names], body, colours)]


def _cut(pieces: list[tuple[str, int]], colours: bool) -> str:
    """Pieces in turning colours, or with bars between them; ×n: a piece of n tokens."""
    shown = []
    for piece, tokens in pieces:
        word = plain(piece).replace("\n", "↵\n").replace("\t", "→")
        space = tokens == 0 and piece.isspace()  # left out by most tokenizers of whole words
        shown.append(word if tokens == 1 or space else f"{word}×{tokens}")
    if not colours:
        return "|".join(shown)
    out = []
    colour = 0
    for word, (_, tokens) in zip(shown, pieces, strict=True):
        if tokens == 0:
            out.append(word)
            continue
        start = COLOURS[colour % len(COLOURS)]
        colour += 1
        # The background must not run on to the end of a line.
        inner = word.replace("\n", f"{OFF}\n{start}")
        out.append(f"{start}{inner}{OFF}")
    return "".join(out)
