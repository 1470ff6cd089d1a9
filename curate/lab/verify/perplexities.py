"""Check of `perplexity` with KenLM, which scores the sampled documents with the run's model."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

from curate.lab.verify.finished_run import FinishedRun
from curate.lab.verify.tally import PERPLEXITY_BOUND, NotChecked, Tally, need
from curate.scoring.perplexity.perplexity import Perplexity
from curate.text.languages import entry_for
from llmcurate.base.errors import LlmcurateError

if TYPE_CHECKING:
    from curate.scoring.perplexity.model_file import ModelData

TENTH = 0.1 + 1e-9  # one step of a perplexity with one decimal


def check(run: FinishedRun) -> list[Tally]:
    steps = run.need(Perplexity)
    need("kenlm", "'llmcurate[kenlm]'")
    return [_check(run, step) for step in steps]


def _check(run: FinishedRun, step: Perplexity) -> Tally:
    from curate.scoring.perplexity.perplexity import EVERY, find_models

    tally = Tally("kenlm", f"{step.label}: perplexities")
    try:
        paths = find_models(step.model)
    except LlmcurateError as error:
        raise NotChecked(str(error)) from None
    measured: dict[str, list[tuple[str, float, str]]] = {}
    for document in run.sample:
        stored = document.row.get(f"{step.label}.score")
        lang = EVERY if EVERY in paths else entry_for(document.row["lang"] or "", paths)
        if stored is None or lang is None:
            continue
        try:
            text = run.text_before(document, step.label) or ""
        except ValueError as error:
            tally.differs(document.id, str(error))
            continue
        measured.setdefault(lang, []).append((document.id, stored, text))
    for lang, rows in sorted(measured.items()):
        peer = Peer(paths[lang], [text for _, _, text in rows])
        for name, stored, text in rows:
            theirs = peer.perplexity(text)
            bound = PERPLEXITY_BOUND * stored + (TENTH if peer.rounded else 0.0)
            tally.compare_numbers(name, stored, theirs, bound)
    return tally


class Peer:
    """A run's perplexity model in KenLM. `rounded` is True if perplexities have one decimal, as in
    CCNet. Models may have gigabytes, so KenLM gets only n-grams of words that occur in `texts`."""

    def __init__(self, path: Path, texts: list[str]) -> None:
        import kenlm

        from curate.scoring.perplexity.model import NgramModel, kenlm_beside
        from curate.scoring.perplexity.model_file import is_kenlm

        self.own = self.ccnet = None
        if is_kenlm(path):
            self.ccnet, self.rounded = kenlm_beside(path), True
            return
        self.own = NgramModel.open(path)
        self.rounded = self.own.data.variant == "ccnet"
        self.words = [w.decode("utf-8", "surrogateescape") for w in self.own.data.words.words()]
        config = kenlm.Config()
        config.show_progress = False
        config.arpa_complain = kenlm.ARPALoadComplain.NONE
        with tempfile.TemporaryDirectory() as folder:
            arpa = Path(folder) / "model.arpa"
            ids = self.own.sentences(pa.array(texts, pa.large_string())).ids
            write_part(arpa, self.own.data, self.words, np.unique(ids))
            self.kenlm = kenlm.Model(str(arpa), config)

    def perplexity(self, text: str) -> float | None:
        """Return the perplexity of a text, or None if it has no words."""
        texts = pa.array([text], pa.large_string())
        if self.ccnet is not None:
            value = float(self.ccnet.perplexity(texts)[0])
            return value if value == value else None
        assert self.own is not None
        log10, length = 0.0, 0
        for words in self._sentences(texts):
            log10 += self.kenlm.score(" ".join(words))
            length += len(words) + 1
        if not length:
            return None
        value = 10.0 ** (-log10 / length)
        return round(value, 1) if self.rounded else value

    def _sentences(self, texts: pa.LargeStringArray) -> list[list[str]]:
        assert self.own is not None
        if self.own.data.variant == "plain" and self.own.data.unit == "whitespace":
            lines = (line.split() for line in texts[0].as_py().splitlines())
            return [words for words in lines if words]
        sentences = self.own.sentences(texts)
        begin, cut = 0, []
        for end in sentences.ends.tolist():
            cut.append([self.words[i] for i in sentences.ids[begin:end].tolist()])
            begin = end
        return cut


def write_part(path: Path, model: ModelData, words: list[str], ids: np.ndarray) -> None:
    """Write an ARPA file with those n-grams of a model that consist only of special words and of
    the words with the numbers `ids`, int64[]."""
    from curate.scoring.perplexity.sentences import SPECIAL
    from curate.scoring.perplexity.table import level

    chosen = np.zeros(len(words), np.bool_)
    chosen[ids] = chosen[: len(SPECIAL)] = True
    all_words = np.arange(len(words), dtype=np.uint32)[:, None]
    levels = [(all_words, model.word_prob, model.word_backoff)]
    levels += [
        level(model.entries, model.firsts, model.counts, n) for n in range(2, model.order + 1)
    ]
    parts = [
        tuple(column[chosen[rows[0]].all(axis=1)].tolist() for column in rows) for rows in levels
    ]
    with open(path, "w", encoding="utf-8", errors="surrogateescape", newline="\n") as file:
        file.write("\\data\\\n")
        file.writelines(f"ngram {n}={len(part[0])}\n" for n, part in enumerate(parts, 1))
        for n, part in enumerate(parts, 1):
            file.write(f"\n\\{n}-grams:\n")
            for ngram, probability, backoff in zip(*part, strict=True):
                end = f"\t{backoff:.9g}\n" if n < len(parts) else "\n"
                file.write(f"{probability:.9g}\t{' '.join(words[i] for i in ngram)}{end}")
        file.write("\n\\end\\\n")
