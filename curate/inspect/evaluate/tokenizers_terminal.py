"""What `llmcurate tokenizer eval` prints."""

from __future__ import annotations

import json
import shutil
import sys
from pathlib import Path
from typing import Any

from curate.errors import UsageError
from curate.inspect.evaluate.tokenizers_figures import NONE, ratio, rows, whole
from curate.inspect.report.clusters_text import coloured
from curate.pages.html import plain
from curate.terminal.progress import say

GROUPS = 20  # languages or sources printed; evaluation.json has all
NAME = 24  # columns of a name
COLOURS = tuple(f"\x1b[30;48;5;{n}m" for n in (152, 223, 151, 218))
BOLD, OFF = "\x1b[1m", "\x1b[0m"
PREMIUM = (
    "languages need unlike numbers of characters to say a thing: real parity needs texts that say"
    " the same in each language; on such texts compare tokens a text"
)
Body = list[tuple[list[str], list[int]]]  # cells, and the places of the best among the numbers


def evaluate(
    tokenizers: list[Path],
    inputs: list[str],
    out: Path | None,
    show: int,
    color: bool | None,
    as_json: bool,
    pattern: str | None = None,
    baseline: Path | None = None,
) -> None:
    """Prints the figures; with OUT also evaluation.json and evaluate.html."""
    from curate.inspect.evaluate.tokenizers import evaluate as run
    from curate.inspect.evaluate.tokenizers import write

    if out is not None and out.exists() and not out.is_dir():
        raise UsageError(f"OUT {out} is a file; name a folder")
    found = run(tokenizers, inputs, show, as_json, pattern, baseline)
    if not as_json:
        colours = coloured(sys.stdout) if color is None else color
        print(text(found, shutil.get_terminal_size().columns, colours))
    if out is not None:
        for path in write(found, out):
            say(f"wrote {path}", as_json)
    if as_json:
        print(json.dumps(found, ensure_ascii=False))


def text(found: dict[str, Any], width: int, colours: bool) -> str:
    """An evaluation for a terminal. width: its columns, of which a rule takes no more."""
    every = found["tokenizers"]
    first = every[0]
    names = [_short(one["name"]) for one in every]
    body: Body = [([title, *cells], best) for title, cells, best in rows(every)]
    lines = [
        f"{first['texts']:,} texts, {first['bytes']:,} bytes, {first['characters']:,} characters,"
        f" {first['words']:,} words",
        "",
        *_grid(["", *names], body, colours),
    ]
    if any(best for _, best in body):
        lines.append(f"{'bold' if colours else '*'}: the best of a line")
    if "baseline" in found:
        lines.append(f"baseline: {_short(found['baseline'])}")
    for one in every:
        lines += _remarks(one)
    lines += _groups(every, names, colours)
    for nth, sample in enumerate(found["shown"], 1):
        lines += ["", f"text {nth}{', its beginning' if sample['cut'] else ''}"]
        for name, cut in zip(names, sample["pieces"], strict=True):
            tokens = sum(n for _, n in cut)
            lines += ["─" * min(width, 40), f"{name}: {tokens:,} tokens", _cut(cut, colours)]
    return "\n".join(lines)


def _short(name: str) -> str:
    seen = plain(name, 200).replace("\n", " ").replace("\t", " ")
    return seen if len(seen) <= NAME else "…" + seen[1 - NAME :]


def _grid(head: list[str], body: Body, colours: bool) -> list[str]:
    """Columns set to the right, the first one to the left; the best of a row bold or starred."""
    cells = [head, *([*line] for line, _ in body)]
    marks = any(best for _, best in body) and not colours
    widths = [max(len(line[i]) for line in cells) for i in range(len(head))]
    out = [_line(head, widths, [], colours, marks)]
    return out + [_line(line, widths, best, colours, marks) for line, best in body]


def _line(cells: list[str], widths: list[int], best: list[int], colours: bool, marks: bool) -> str:
    parts = [f"{cells[0]:<{widths[0]}}"]
    for i, cell in enumerate(cells[1:]):
        piece = f"{cell:>{widths[i + 1]}}"
        if marks:
            piece += "*" if i in best else " "
        parts.append(f"{BOLD}{piece}{OFF}" if colours and i in best else piece)
    return "  ".join(parts).rstrip()


def _remarks(one: dict[str, Any]) -> list[str]:
    """The longest tokens, and what is wrong with a tokenizer."""
    name = _short(one["name"])
    longest = ", ".join(_quoted(token["text"]) for token in one["longest"][:5])
    lines = ["", f"{name}: {one['engine']} encodes; longest tokens {longest or NONE}"]
    if one["unreachable"]:
        some = ", ".join(_quoted(t["text"]) for t in one["unreachable_examples"][:8])
        lines.append(f"  no text gives {whole(one['unreachable'])} of its tokens: {some}")
    if lost := one["first_lost"]:
        lines.append(
            f"  {one['lost']:,} of {one['texts']:,} texts do not come back; text"
            f" {lost['text'] + 1:,} first, at character {lost['character']:,}"
            f" ({' became '.join(lost['code_points'])}):"
        )
        was, back = lost["was"][:80], lost["is"][:80]
        lines += [f"    was {_quoted(was, 80)}", f"    is  {_quoted(back, 80)}"]
    return lines


def _quoted(word: str, most: int = 24) -> str:
    """One line, in quotes, control characters visible."""
    return f"“{plain(word, most).replace(chr(10), '↵').replace(chr(9), '→')}”"


def _groups(every: list[dict[str, Any]], names: list[str], colours: bool) -> list[str]:
    """Bytes a token by language and by source, and what languages pay against English."""
    languages, sources = every[0]["lang"], every[0]["source"]
    lines = []
    if languages:
        lines += _by("lang", "bytes_a_token", "bytes a token by language", every, names, colours)
    if len(languages) > 1 and "premium_a_character" in languages[0]:
        title = "tokens a character over those of English"
        lines += [*_by("lang", "premium_a_character", title, every, names, colours), PREMIUM]
    if languages and "nsl" in languages[0]:
        title = "tokens over the baseline's by language"
        lines += _by("lang", "nsl", title, every, names, colours)
    if len(sources) > 1:
        lines += _by("source", "bytes_a_token", "bytes a token by source", every, names, colours)
    return lines


def _by(
    group: str, key: str, title: str, every: list[dict[str, Any]], names: list[str], colours: bool
) -> list[str]:
    """A line a label, a column a tokenizer."""
    first = every[0][group]
    body: Body = [
        (
            [_short(row["label"]), whole(row["texts"])]
            + [ratio(one[group][i][key]) for one in every],
            [],
        )
        for i, row in enumerate(first[:GROUPS])
    ]
    rest = len(first) - GROUPS
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
