"""Learns a profile of a language, with what the rules must know of it, from good texts.

    python benchmarks/language_profiles.py IN... --lang nl > profiles.yaml

IN: documents in any form that llmcurate reads. Without --lang their column `lang` says the language
of each, else the model does. The setting `profile` of the rules takes the file (docs/language.md).

FineWeb2's method (Penedo et al. 2025, arXiv:2506.20920): the texts are good ones, and a limit is
put where as much of them lies beyond it as the limit for English leaves out of English texts. How
much that is stands in the shipped profile of English; where it is next to nothing, the limit lies
as many standard deviations from the mean as it does in English.
"""

from __future__ import annotations

import argparse
import json
import sys
import unicodedata
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import yaml

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
from curate.documents.documents import Documents
from curate.steps.profiled import WordCounting
from curate.text.languages import ENGLISH, FILE, SHIPPED, Profile, comparable, shipped
from llmcurate.base.disk.files import write_text
from llmcurate.base.disk.units import counted
from llmcurate.base.errors import LlmcurateError

STOP_WORDS = 8  # as many as Gopher's, at least
MOST_STOP_WORDS = 24
TAIL = 0.01  # share of English reference texts from which on a percentile can be told
LEAST_END = 0.01  # of a language's lines end in a mark that ends its sentences
# Penedo et al. 2025: the threshold of language confidence is the median less a standard deviation,
# within these bounds.
LEAST_SCORE, MOST_SCORE = 0.3, 0.9
# English pages lose more than this to some rules, for pages have more wrong with them.
MOST_LOST = 0.01
WIDER = 2.5  # a limit on a share goes so many times as far from 0, or from 1, at most
UNMARKED = 0.25  # where fewer lines end in a mark, on average, the language does without
# Settings whose limits a language has of its own: those of FineWeb2's configs, and of dialogues.
LEARNED = {
    "gopher_quality": (
        "min_word_length", "max_word_length", "max_bullet_lines", "max_ellipsis_lines",
        "min_alpha_words",
    ),
    "gopher_repetition": (
        "max_duplicate_lines", "max_top_n_gram_chars", "max_duplicate_n_gram_chars",
    ),
    "fineweb_quality": ("min_end_marks", "max_newlines"),
}  # fmt: skip
BUCKETS = 1 << 22  # hashes of words that are counted at once


@dataclass
class Counts:
    """The counts of one pass over a language's texts. words: by hash; spelled: a word of that hash;
    ends: lines by their last character."""

    documents: int = 0
    lines: int = 0
    words: dict[int, int] = field(default_factory=dict)
    spelled: dict[int, str] = field(default_factory=dict)
    chars: float = 0.0
    squares: float = 0.0
    ends: dict[str, int] = field(default_factory=dict)
    scores: list[np.ndarray] = field(default_factory=list)

    def add(self, docs: Documents) -> None:
        """Counts a batch of the language."""
        from curate.filters.repeats import last_code_points
        from curate.filters.tokens import ALPHA, symbol_tokens
        from curate.text.lines import written_lines

        data, _ = docs.buffers()
        tokens = symbol_tokens(docs)
        letters = np.flatnonzero((tokens.flags & ALPHA) > 0)
        chars = tokens.chars[letters].astype(np.float64)
        self.documents += len(docs)
        self.chars += float(chars.sum())
        self.squares += float((chars**2).sum())
        hashes, first, number = np.unique(
            tokens.hash[letters], return_index=True, return_counts=True
        )
        for value, at, times in zip(hashes.tolist(), letters[first], number.tolist(), strict=True):
            if value not in self.words:
                start = int(tokens.start[at])
                word = bytes(data[start : start + 4 * int(tokens.chars[at])])
                self.spelled[value] = word.decode("utf-8", "ignore")[: int(tokens.chars[at])]
            self.words[value] = self.words.get(value, 0) + times
        if len(self.words) > BUCKETS:
            self.words = {h: n for h, n in self.words.items() if n > 1}
            self.spelled = {h: self.spelled[h] for h in self.words}
        lines = written_lines(docs, strip=True)
        self.lines += len(lines.start)
        last, times_ = np.unique(last_code_points(data, lines.start, lines.end), return_counts=True)
        for code, times in zip(last.tolist(), times_.tolist(), strict=True):
            self.ends[chr(code)] = self.ends.get(chr(code), 0) + times

    @property
    def total(self) -> int:
        """Words that hold a letter."""
        return sum(self.words.values())

    def share(self, words: Iterable[str]) -> float:
        """The share of all words that these have."""
        asked = set(words)
        held = sum(n for h, n in self.words.items() if self.spelled[h] in asked)
        return held / max(self.total, 1)

    def word_length(self) -> tuple[float, float]:
        """(mean, standard deviation) of the characters of a word."""
        mean = self.chars / max(self.total, 1)
        return mean, max(self.squares / max(self.total, 1) - mean**2, 0.0) ** 0.5

    def stop_words(self, share: float) -> list[str]:
        """The most frequent words, until they have that share of all; at least 8."""
        order = sorted(self.words, key=lambda h: (-self.words[h], self.spelled[h]))
        chosen: list[str] = []
        held = 0
        for value in order:
            word = self.spelled[value]
            if word != word.lower():
                continue  # the rule looks for lower case
            if len(chosen) >= STOP_WORDS and held >= share * self.total:
                break
            if len(chosen) >= MOST_STOP_WORDS:
                break
            chosen.append(word)
            held += self.words[value]
        return chosen

    def end_marks(self) -> str:
        """The marks and closing quotes in which lines end, the most frequent first; none where
        most lines end without."""
        from curate.filters.tokens import TERMINAL

        def closes(mark: str) -> bool:
            quote = mark in "\"'”’“»«」』"  # no ellipsis: C4 has it for the end of a teaser
            return bool(TERMINAL[ord(mark)]) or quote or unicodedata.category(mark) == "Pe"

        marks = {m: n for m, n in self.ends.items() if closes(m) and n >= LEAST_END * self.lines}
        if sum(marks.values()) < UNMARKED * self.lines:
            return ""
        return "".join(sorted(marks, key=lambda m: (-marks[m], m)))


def learned(
    read: Callable[[], Iterable[pa.RecordBatch]],
    labeller: Any,
    lang: str | None = None,
    min_documents: int = 50,
) -> tuple[dict[str, dict[str, Any]], list[str]]:
    """(entries by name of the language, lines on those passed over for too few documents).

    read: begins a pass over the documents, of which there are two. labeller: the step `language`,
    whose confidence the threshold is learned from. lang: the language of all texts; None: what the
    column `lang` says, else the labeller."""
    counts: dict[str, Counts] = {}
    names: dict[str, str] = {}
    passed: list[str] = []
    for code, name, docs in by_language(read(), labeller, lang, scored=True):
        of_code = counts.setdefault(code, Counts())
        names.setdefault(code, name)
        of_code.add(docs)
        of_code.scores.append(_scores(docs, code))
    for code in sorted(counts):
        if counts[code].documents < min_documents:
            many = counted(counts[code].documents, "document")
            passed.append(f"no profile of {names[code]}: {many}, fewer than {min_documents}")
            del counts[code]
    measured: dict[str, dict[str, list[np.ndarray]]] = {}
    drafts = {code: draft(names[code], counts[code]) for code in counts}
    for code, _, docs in by_language(read(), labeller, lang):
        if code in drafts:
            add_measures(measured.setdefault(code, {}), docs, drafts[code])
    columns = {
        code: {rule: np.concatenate(x) for rule, x in measured[code].items()}
        for code in sorted(drafts)
    }
    english = shipped_reference()
    if ENGLISH in columns:
        share = round(counts[ENGLISH].share(GOPHERS), 4)
        english = reference(columns[ENGLISH]) | {"stop_words": share}
    entries = {
        names[code]: entry(drafts[code], counts[code], columns[code], english, code == ENGLISH)
        for code in columns
    }
    return entries, passed


def by_language(
    batches: Iterable[pa.RecordBatch], labeller: Any, lang: str | None, scored: bool = False
) -> Iterator[tuple[str, str, Documents]]:
    """(code, name, documents) of each language of each batch; scored: with the labeller's scores,
    whatever the column `lang` says."""
    for batch in batches:
        table = pa.table({n: batch[n] for n in ("text", "lang") if n in batch.schema.names})
        if "lang" not in table.column_names:
            table = table.append_column("lang", pa.nulls(len(table), pa.string()))
        docs = Documents(table)
        declared = [lang or label for label in table["lang"].to_pylist()]
        if scored or None in declared:
            docs = labeller.apply(docs.within("language"))
            labels = docs.table["lang"].to_pylist()
            declared = [a or b for a, b in zip(declared, labels, strict=True)]
        codes = [comparable(x) if x else "" for x in declared]
        for code in sorted({*codes} - {""}):
            rows = [i for i, c in enumerate(codes) if c == code]
            part = Documents(docs.table.take(pa.array(rows)))
            yield code, str(declared[rows[0]]), part


GOPHERS = ("the", "be", "to", "of", "and", "that", "have", "with")


def _scores(docs: Documents, code: str) -> np.ndarray:
    """The model's confidence in the documents that it takes for that language."""
    labels = docs.table["lang"].to_pylist()
    is_of_code = np.array(
        [label is not None and comparable(label) == code for label in labels], np.bool_
    )
    scores: np.ndarray = docs.table["language.score"].to_numpy()[is_of_code]
    return scores


def draft(name: str, counts: Counts) -> Profile:
    """The profile as far as words and end marks go. How words of a script without spaces are
    counted is the shipped profile's."""
    earlier = shipped().get(comparable(name), Profile(name))
    if comparable(name) == ENGLISH:
        return Profile(name, stop_words=GOPHERS, end_marks=counts.end_marks())
    share = shipped_reference()["stop_words"]
    words = earlier.stop_words if earlier.clusters else tuple(counts.stop_words(share))
    return Profile(name, earlier.clusters, words, counts.end_marks())


def shipped_reference() -> dict[str, Any]:
    """The place of English reference texts about the limits of rules, as in the shipped file."""
    return dict(yaml.safe_load(SHIPPED.read_text("utf-8"))["en"]["reference"])


def steps_measured() -> list[WordCounting]:
    """The steps whose limits a profile has, as they are by default."""
    from curate.filters.fineweb import FineWebQuality
    from curate.filters.gopher import GopherQuality, GopherRepetition

    none = {"profile": "none", "words": "estimate"}
    return [cls(**none) for cls in (GopherQuality, GopherRepetition, FineWebQuality)]


def add_measures(into: dict[str, list[np.ndarray]], docs: Documents, profile: Profile) -> None:
    """Adds the columns that limits look at, by `step.rule`."""
    for step in steps_measured():
        table = step.measure(docs.within(step.label), profile).table
        for limit in step.own_limits():
            values = table[f"{step.label}.{limit.column}"].to_numpy().astype(np.float64)
            into.setdefault(f"{step.name}.{limit.rule}", []).append(values)


def learned_limits() -> Iterator[tuple[str, str, Any]]:
    """(step, setting, limit) of all that is learned."""
    for step in steps_measured():
        for limit in step.own_limits():
            if limit.setting.partition(".")[0] in LEARNED[step.name]:
                yield step.name, limit.setting, limit


def reference(columns: dict[str, np.ndarray]) -> dict[str, list[float]]:
    """Of English texts, by rule: the share beyond the default, mean, standard deviation."""
    out = {}
    for step, _, limit in learned_limits():
        values = columns[f"{step}.{limit.rule}"]
        beyond = float(np.mean(limit.over(values, limit.threshold)))
        out[f"{step}.{limit.rule}"] = [
            float(f"{x:.3g}") for x in (beyond, values.mean(), values.std())
        ]
    return out


def limit_of(limit: Any, values: np.ndarray, english: list[float]) -> float:
    """The limit of a language; never stricter than the default: good texts are cleaner than the
    web, and what is learned of them only widens."""
    beyond, mean, sd = english
    if beyond >= TAIL:
        beyond = min(beyond, MOST_LOST)
        learned = float(np.quantile(values, 1 - beyond if limit.above else beyond))
    else:
        # At least as widely spread about the mean as English is: few texts may all be alike.
        own_mean = float(values.mean())
        spread = max(float(values.std()), sd * own_mean / mean if mean else 0.0)
        learned = own_mean + (limit.threshold - mean) / sd * spread if sd else limit.threshold
    wider = max(learned, limit.threshold) if limit.above else min(learned, limit.threshold)
    if limit.threshold < 1:  # a share
        far = WIDER * (limit.threshold if limit.above else 1 - limit.threshold)
        wider = min(wider, far, 1.0) if limit.above else max(wider, 1 - far)
        if limit.rule == "end_marks":
            wider = 0.0 if values.mean() < UNMARKED else max(wider, limit.threshold / 2)
    return round(max(wider, 0.0), 3)


def entry(
    profile: Profile,
    counts: Counts,
    columns: dict[str, np.ndarray],
    english: Mapping[str, Any],
    is_english: bool,
) -> dict[str, Any]:
    """A profile as its file has it."""
    mean, sd = counts.word_length()
    values: dict[str, Any] = {}
    if profile.clusters:
        values["clusters"] = profile.clusters
    else:
        values["word_length"] = {"mean": round(mean, 2), "sd": round(sd, 2)}
    values |= {"stop_words": list(profile.stop_words), "end_marks": profile.end_marks}
    if is_english:
        return values | {"reference": english}
    limits: dict[str, Any] = {}
    defaults: dict[tuple[str, str], dict[int, float]] = {}
    scores = np.concatenate(counts.scores)
    if len(scores):
        threshold = float(np.median(scores) - scores.std())
        threshold = max(LEAST_SCORE, min(MOST_SCORE, threshold))
        limits["language"] = {"threshold": round(threshold, 3)}
    for step, setting, limit in learned_limits():
        rule = f"{step}.{limit.rule}"
        value = limit_of(limit, columns[rule], english[rule])
        key, _, part = setting.partition(".")
        if part:
            limits.setdefault(step, {}).setdefault(key, {})[int(part)] = value
            defaults.setdefault((step, key), {})[int(part)] = limit.threshold
        elif value != limit.threshold:
            limits.setdefault(step, {})[key] = value
    for (step, key), same in defaults.items():
        if limits[step][key] == same:
            del limits[step][key]
    if profile.clusters:  # how many of its stop words a text must hold goes with them
        earlier = shipped()[profile.code].limits.get("gopher_quality", {})
        kept = {k: v for k, v in earlier.items() if k == "min_stop_words"}
        limits.setdefault("gopher_quality", {}).update(kept)
    return values | {"limits": {step: bounds for step, bounds in limits.items() if bounds}}


def text_of(entries: dict[str, dict[str, Any]]) -> str:
    """The file of some profiles: a line each for what belongs together."""
    lines = []
    for name, values in entries.items():
        lines.append(f"{name}:")
        for key, value in values.items():
            if key == "limits":
                lines.append("  limits:")
                lines += [f"    {step}: {_flow(bounds)}" for step, bounds in value.items()]
            else:
                lines.append(f"  {key}: {_flow(value)}")
    return "\n".join(lines) + "\n"


def _flow(value: Any) -> str:
    """A value on one line."""
    if isinstance(value, str):
        return json.dumps(value, ensure_ascii=False)
    text = yaml.safe_dump(
        value, default_flow_style=True, allow_unicode=True, sort_keys=False, width=10**6
    )
    return text.removesuffix("...\n").strip()


def main() -> int:
    """Learns from the inputs and prints the file. Returns 1 where no language had texts enough, an
    error's exit code where they cannot be read."""
    from curate.api.corpus import Corpus
    from curate.corpus.direct_input import DirectInput
    from curate.formats.reading import plan_reading
    from curate.scoring.language.identification import Language

    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("inputs", nargs="+", metavar="IN")
    parser.add_argument("--lang", help="the language of all texts")
    parser.add_argument("--model", help="a fastText model, as of the step language")
    parser.add_argument(
        "--min-documents", type=int, default=50, help="of a language, or no profile"
    )
    parser.add_argument("--text-column", help="the column of the texts")
    parser.add_argument("--limit", type=int, help="the first documents alone")
    parser.add_argument("-o", "--out", type=Path, help=f"a folder for {FILE}, in place of stdout")
    asked = parser.parse_args()
    reading = {"limit": asked.limit, "text_column": asked.text_column}
    try:
        corpus = Corpus.read(*asked.inputs, **{k: v for k, v in reading.items() if v is not None})
        settings = corpus.recipe.read
        direct = DirectInput(plan_reading(corpus.inputs, settings), settings)
        labeller = Language(model=asked.model, profile="none")
        entries, passed = learned(
            lambda: direct.batches(["text", "lang"]), labeller, asked.lang, asked.min_documents
        )
    except LlmcurateError as error:
        print(error, file=sys.stderr)
        return error.exit_code
    met = direct.tally
    many = counted(met["kept"], "document")
    passed.append(f"read {many}, {met['rejected']} rejected, {met['corrupt']} corrupt")
    print(*passed, sep="\n", file=sys.stderr)
    if not entries:
        return 1
    if asked.out is None:
        print(text_of(entries), end="")
    else:
        asked.out.mkdir(parents=True, exist_ok=True)
        write_text(asked.out / FILE, text_of(entries))
    return 0


if __name__ == "__main__":
    sys.exit(main())
