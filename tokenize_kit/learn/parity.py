"""Parity-aware BPE: merges for the language that is encoded worst (Foroutan et al. 2025).

How a language fares is measured on texts that say the same in all of them, by tokens a text. Where
there are none, it is measured on the texts learned from, by tokens for each byte that bz2 makes of
them: how much a text says is closer to that than to its bytes or characters, which scripts and
languages need more or less of. That is ours, not the paper's.
"""

from __future__ import annotations

import bz2
import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from tokenize_kit.card.figures import Sample
from tokenize_kit.errors import usage_error
from tokenize_kit.learn.byte_words import byte_ids, merged_names, spelled, weighted_batches
from tokenize_kit.learn.options import TrainingOptions
from tokenize_kit.learn.parity_merges import learn_fairly
from tokenize_kit.learn.words import Text, WordCounts, lay_out
from tokenize_kit.pattern.automaton import compile_pattern

if TYPE_CHECKING:
    from tokenizers.normalizers import Normalizer

    from tokenize_kit.segment.dictionary import Dictionary


_SAMPLE = 1 << 16  # bytes of each group that are compressed: the more, the smaller a byte gets


@dataclass(frozen=True)
class Parity:
    """groups: numbers by name, complete when the documents are read; parallel: texts by group."""

    groups: dict[str, int]
    parallel: dict[str, list[str]] | None = None


def read_parity(
    options: TrainingOptions, groups: dict[str, int], normal: Normalizer | None
) -> Parity:
    """With the texts of the options' file; raises TokenizerError naming its line."""
    if options.parity_dev is None:
        return Parity(groups)
    path = Path(options.parity_dev)
    parallel: dict[str, list[str]] = {}
    try:
        lines = path.read_text(encoding="utf-8").splitlines()
    except OSError as error:
        raise usage_error(f"parity-dev {path}: {error.strerror}") from None
    except UnicodeDecodeError:
        raise usage_error(f"parity-dev {path}: not UTF-8 text") from None
    for number, line in enumerate(lines, 1):
        try:
            row = json.loads(line)
            text, group = row["text"], row[options.parity_by]
        except (ValueError, LookupError, TypeError):
            raise usage_error(
                f"parity-dev {path}, line {number}: give a JSON object with text and"
                f" {options.parity_by}"
            ) from None
        parallel.setdefault(str(group), []).append(normal.normalize_str(text) if normal else text)
    return Parity(groups, parallel)


def learn_parity(
    documents: Iterable[tuple[str, int]],
    parity: Parity,
    parts: Sequence[str],
    dictionary: Dictionary | None,
    tokens: int,
    banned: Sequence[bytes],
    least: int,
    longest: int,
) -> tuple[list[bytes], list[tuple[int, int]]]:
    """(tokens, merges) as byte_words.learn_merges gives them.

    documents: texts with the numbers of their groups; parts: patterns, one after the other; the
    rest as there. Raises TokenizerError for a group without a parallel text.
    """
    tables = [compile_pattern(part) for part in parts]
    counts: dict[int, WordCounts] = {}
    samples: dict[int, Sample] = {}
    for data, offsets, number in weighted_batches(documents):
        counted = counts.setdefault(number, WordCounts(tables))
        counted.add(data, dictionary.cut(data, offsets) if dictionary else offsets)
        samples.setdefault(number, Sample(most=_SAMPLE)).add_rows(data, offsets)
    names = sorted(parity.groups)
    groups = [counts[parity.groups[name]] for name in names]
    chosen = len(groups)
    by = np.arange(chosen)
    if parity.parallel is not None:
        for name in names:
            if name not in parity.parallel:
                raise usage_error(f"parity-dev: no text of {name!r}, which the corpus has")
            groups.append(WordCounts(tables))
            for data, offsets, _ in weighted_batches((t, 1) for t in parity.parallel[name]):
                groups[-1].add(data, offsets)
        by += chosen
    words = [group.words() for group in groups]
    sizes = np.array([np.dot(np.diff(ends), counts) for _, ends, counts in words])
    if parity.parallel is not None:
        units = np.array([len(parity.parallel[name]) for name in names], np.float64)
    else:
        units = sizes * [_compressed(samples[parity.groups[name]]) for name in names]
    text = _lay_out(words, tokens + 1)
    del counts, groups, words
    merges, _ = learn_fairly(text, 256, tokens, least, longest, *spelled(banned), sizes, units, by)
    return merged_names(merges)


def _compressed(sample: Sample) -> float:
    """What is left of a byte of the texts by bz2; of texts without a byte, one."""
    raw = b"".join(sample.pieces())
    return len(bz2.compress(raw)) / len(raw) if raw else 1.0


def _lay_out(words: list[tuple[np.ndarray, np.ndarray, np.ndarray]], width: int) -> Text:
    """The text of all groups; the bytes of each have numbers of their own, `width` apart."""
    symbols = np.concatenate([byte_ids()[w[0]] + g * width for g, w in enumerate(words)])
    sizes = np.concatenate([np.diff(ends) for _, ends, _ in words])
    weights = np.concatenate([counts for _, _, counts in words])
    return lay_out(symbols.astype(np.int32), np.append(0, np.cumsum(sizes)), weights)
