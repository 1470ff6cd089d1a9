"""The evaluation of tokenizers on the documents of some inputs."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import product
from pathlib import Path
from typing import Any

import pyarrow as pa

from curate.corpus.direct import DirectInput
from curate.disk.units import counted, format_percent
from curate.errors import CurateError, RunFailed, UsageError
from curate.formats.part import plan_reading
from curate.formats.read_settings import ReadSettings
from curate.pages import templates
from curate.pages.html import plain
from curate.run.records import read_record
from curate.terminal.progress import say
from curate.terminal.tables import table
from curate.text.buffers import as_large_string, text_buffers

GROUPS = ("lang", "source")
ROWS = 500  # texts at a time: their tokens and positions are in memory
Buffers = tuple[Any, Any, dict[str, list[str | None]]]


class Documents:
    """The documents with text of some inputs, read as often as `batches` is called."""

    def __init__(
        self, inputs: list[str], quiet: bool = False, read: ReadSettings | None = None
    ) -> None:
        read = read or ReadSettings()
        plan = plan_reading(inputs, read)
        web = [f for f in plan.files if f.holds_pages]
        if web:
            raise UsageError(
                f"input {web[0].path} holds web pages, not text: run `llmcurate extract` first"
            )
        for notice in plan.notices:
            say(notice, quiet)
        self.files = [Path(f.path).resolve() for f in plan.files if "://" not in f.path]
        self._direct = DirectInput(plan, read)

    def batches(self) -> Iterator[Buffers]:
        """(data: uint8[], offsets: int64[rows + 1], labels by group), in input order."""
        for batch in self._direct.batches(None):
            for first in range(0, batch.num_rows, ROWS):
                part = batch.slice(first, ROWS)
                labels = {
                    name: part.column(name).cast(pa.string()).to_pylist()
                    for name in GROUPS
                    if name in part.schema.names
                }
                yield *text_buffers(as_large_string(part.column("text"))), labels

    @property
    def tally(self) -> dict[str, Any]:
        """Counts of the last reading: documents, and records that could not be read."""
        tally = self._direct.tally
        return {name: tally[name] for name in ("read", "kept", "rejected", "corrupt")}


def evaluate(
    tokenizers: list[Path],
    inputs: list[str],
    show: int,
    quiet: bool,
    pattern: str | None = None,
    baseline: Path | None = None,
    read: ReadSettings | None = None,
) -> dict[str, Any]:
    """The figures of `tokenize_kit.judge.compare`, with the inputs and the counts of reading.

    baseline: one of the tokenizers, or one more, which then comes last. UsageError where a
    tokenizer cannot be read or no document has text.
    """
    from tokenize_kit.errors import TokenizerError
    from tokenize_kit.judge.compare import compare

    documents = Documents(inputs, quiet, read)
    if pattern is not None and not any(
        _is_ranks(p) for p in [*tokenizers, *filter(None, [baseline])]
    ):
        raise UsageError("--pattern is for .tiktoken files, and none is given; leave it out")
    if baseline is not None and baseline not in tokenizers:
        tokenizers = [*tokenizers, baseline]
    against = None if baseline is None else tokenizers.index(baseline)
    try:
        figures = compare(tokenizers, documents.batches(), GROUPS, show, pattern, against)
    except TokenizerError as error:
        raise translated(error) from None
    if not figures["tokenizers"][0]["bytes"]:
        refused = documents.tally["rejected"] + documents.tally["corrupt"]
        reason = f": {counted(refused, 'record')} could not be taken" if refused else ""
        raise UsageError(f"no document with text in the input{reason}")
    for row, name, path in zip(figures["tokenizers"], names(tokenizers), tokenizers, strict=True):
        row["name"] = name
        row["trained_on"] = trained_on(path, documents.files)
    if against is not None:
        figures["baseline"] = figures["tokenizers"][against]["name"]
    return {"inputs": inputs, **documents.tally, **figures}


def trained_on(tokenizer: Path, files: list[Path]) -> bool:
    """Whether one of these files was read to train the tokenizer, as far as that is known: from the
    run.json of the run that made it, which stands beside it, there in .run/ or, of several sizes,
    above it."""
    beside = tokenizer.resolve() if tokenizer.is_dir() else tokenizer.resolve().parent
    for folder, home in product((beside, beside.parent), (".run", "")):
        try:
            record = read_record(folder / home)
            is_maker = any(p["makes"] == "tokenizer" for p in record["products"])
            read = {Path(file["path"]).resolve() for file in record["inputs"]}
        except (OSError, ValueError, KeyError, TypeError):
            continue
        if is_maker and any(file in read or folder / "corpus" in file.parents for file in files):
            return True
    return False


def _is_ranks(path: Path) -> bool:
    return path.suffix == ".tiktoken"


def translated(error: Any) -> CurateError:
    """A TokenizerError as an error of the command line."""
    return (UsageError if error.exit_code == 2 else RunFailed)(str(error))


def names(paths: list[Path]) -> list[str]:
    """Short names that differ: the folder of a tokenizer.json, the stem of another file, else the
    paths as they were given."""
    short = []
    for path in paths:
        folder = path.name in ("tokenizer.json", "tokenizer.model")
        name = path.resolve().parent.name if folder else path.resolve().name
        short.append(
            name.removesuffix(".json").removesuffix(".model").removesuffix(".tiktoken") or str(path)
        )
    return short if len(set(short)) == len(short) else [str(p) for p in paths]


def render(evaluation: dict[str, Any]) -> str:
    """evaluation.html."""
    return templates.render(
        "evaluate/tokenizers.html",
        evaluation=evaluation,
        rows=rows(evaluation["tokenizers"]),
        premium=PREMIUM,
        ratio=ratio,
        trained_on=TRAINED_ON,
        bars=bars(evaluation["tokenizers"][:SERIES]),
        series=SERIES,
    )


NONE = "-"
SERIES, LANGUAGES = 4, 8  # tokenizers, and languages, in the chart
TRAINED_ON = (
    "was trained on some of these texts: it is better on them than on others; judge it on texts"
    " that it never saw"
)


def bars(tokenizers: list[dict[str, Any]]) -> list[tuple[str, list[float | None]]]:
    """(label, bytes a token of each tokenizer): of all texts, and of the languages with most."""
    rows = [("all texts", [t["bytes_a_token"] for t in tokenizers])]
    languages = tokenizers[0]["lang"][:LANGUAGES]
    if len(languages) > 1:
        rows += [
            (plain(row["label"], 12), [t["lang"][nth]["bytes_a_token"] for t in tokenizers])
            for nth, row in enumerate(languages)
        ]
    return rows


def whole(value: float | None) -> str:
    """A count."""
    return NONE if value is None else f"{value:,}"


def ratio(value: float | None) -> str:
    """Three decimals; one from a hundred on."""
    if value is None:
        return NONE
    return f"{value:.3f}" if abs(value) < 100 else f"{value:,.1f}"


def share(value: float | None) -> str:
    """A share of one as per cent."""
    return format_percent(value, 2)


def speed(value: float | None) -> str:
    """MB/s."""
    return NONE if value is None else f"{value:.3g}"


# key, title, formatter, which is better (+1 more, -1 less, 0 neither)
FIGURES: tuple[tuple[str, str, Callable[[Any], str], int], ...] = (
    ("vocab", "vocabulary", whole, 0),
    ("bytes_a_token", "bytes a token", ratio, 1),
    ("characters_a_token", "characters a token", ratio, 1),
    ("nsl", "tokens over the baseline's (NSL)", ratio, -1),
    ("fertility", "tokens a word (fertility)", ratio, -1),
    ("whole_share", "words kept whole", share, 1),
    ("tokens_a_letter", "tokens a letter, scripts without spaces", ratio, -1),
    ("gini_a_byte", "Gini of languages, tokens a byte", ratio, -1),
    ("gini_a_character", "Gini of languages, a character", ratio, -1),
    ("gini_a_text", "Gini of languages, a text", ratio, -1),
    ("unknown_share", "unknown tokens", share, -1),
    ("parts_share", "tokens that are parts of characters", share, -1),
    ("renyi_efficiency", "Rényi efficiency", ratio, 1),
    ("renyi_efficiency_of_used", "  of the tokens that occur", ratio, 1),
    ("used_share", "vocabulary used", share, 0),
    ("never_used", "tokens never used", whole, 0),
    ("unreachable", "tokens that no text gives", whole, -1),
    ("parts_of_characters", "tokens of parts of characters", whole, 0),
    ("white_space", "tokens of white space only", whole, 0),
    ("digits", "tokens of digits only", whole, 0),
    ("lost", "texts that do not come back", whole, -1),
    ("encode_mb_per_cpu_second", "encoding, MB/s of CPU time", speed, 1),
    ("decode_mb_per_cpu_second", "decoding, MB/s of CPU time", speed, 1),
)
RATES = frozenset({"encode_mb_per_cpu_second", "decode_mb_per_cpu_second"})


def rows(tokenizers: list[dict[str, Any]]) -> list[tuple[str, list[str], list[int]]]:
    """(title, a cell a tokenizer, the positions of the best) of every figure that is not missing
    everywhere. No best of one, of what reads the same in all, or of speeds, which no two runs
    share."""
    lines = []
    for key, title, format_figure, better in FIGURES:
        values = [t.get(key) for t in tokenizers]
        if all(v is None for v in values):
            continue
        cells = [format_figure(v) for v in values]
        measured = [v for v in values if v is not None]
        best: list[int] = []
        if better and len(set(cells) - {NONE}) > 1 and key not in RATES:
            top = format_figure(max(measured) if better > 0 else min(measured))
            best = [i for i, cell in enumerate(cells) if cell == top]
        lines.append((title, cells, best))
    return lines


GROUPS_SHOWN = 20  # languages or sources printed; evaluation.json has all
NAME = 24  # columns of a name
COLOURS = tuple(f"\x1b[30;48;5;{n}m" for n in (152, 223, 151, 218))
OFF = "\x1b[0m"
PREMIUM = (
    "languages need unlike numbers of characters to say a thing: real parity needs texts that say"
    " the same in each language; on such texts compare tokens a text"
)
Body = list[tuple[list[str], list[int]]]  # cells, and the positions of the best among the numbers


def text(evaluation: dict[str, Any], width: int, colours: bool) -> str:
    """An evaluation for a terminal. width: its columns, of which a rule takes no more."""
    results = evaluation["tokenizers"]
    first = results[0]
    names = [_short(t["name"]) for t in results]
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
        lines.append(f"baseline: {_short(evaluation['baseline'])}")
    for tokenizer in results:
        lines += _remarks(tokenizer)
    lines += _groups(results, names, colours)
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


def _short(name: str) -> str:
    seen = plain(name, 200).replace("\n", " ").replace("\t", " ")
    return seen if len(seen) <= NAME else "…" + seen[1 - NAME :]


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
    name = _short(tokenizer["name"])
    longest = ", ".join(_quoted(token["text"]) for token in tokenizer["longest"][:5])
    lines = ["", f"{name}: {tokenizer['engine']} encodes; longest tokens {longest or NONE}"]
    if tokenizer["trained_on"]:
        lines.append(f"  {name} {TRAINED_ON}")
    if tokenizer["unreachable"]:
        examples = ", ".join(_quoted(t["text"]) for t in tokenizer["unreachable_examples"][:8])
        lines.append(f"  no text gives {whole(tokenizer['unreachable'])} of its tokens: {examples}")
    if lost := tokenizer["first_lost"]:
        lines.append(
            f"  {tokenizer['lost']:,} of {counted(tokenizer['texts'], 'text')} do not come"
            " back; text"
            f" {lost['text'] + 1:,} first, at character {lost['character']:,}"
            f" ({' became '.join(lost['code_points'])}):"
        )
        was, back = lost["was"][:80], lost["is"][:80]
        lines += [f"    was {_quoted(was, 80)}", f"    is  {_quoted(back, 80)}"]
    return lines


def _quoted(word: str, most: int = 24) -> str:
    """One line, in quotes, control characters visible."""
    return f"“{plain(word, most).replace(chr(10), '↵').replace(chr(9), '→')}”"


def _groups(results: list[dict[str, Any]], names: list[str], colours: bool) -> list[str]:
    """Bytes a token by language and by source, and what languages pay against English."""
    languages, sources = results[0]["lang"], results[0]["source"]
    lines = []
    if languages:
        lines += _by("lang", "bytes_a_token", "bytes a token by language", results, names, colours)
    if len(languages) > 1 and "premium_a_character" in languages[0]:
        title = "tokens a character over those of English"
        lines += [*_by("lang", "premium_a_character", title, results, names, colours), PREMIUM]
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
            [_short(row["label"]), whole(row["texts"])]
            + [ratio(t[group][i][key]) for t in results],
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
