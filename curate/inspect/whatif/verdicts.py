"""Verdicts: the documents that rules keep under other thresholds, and those that nobody measured.

A step measures every document of its stage, so a stored column and a threshold decide a rule for
all of them. Two things end what is known of a document that was rejected: the stage, for what comes
later never saw it; and within the stage a step that edits only texts that nothing had marked, for
what stands behind it measured this text uncut. Marks from beyond that point do not count, and a
document that nothing else holds back is *unmeasured*: kept by these rules, undecided by the rest.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from curate.documents.limits import Langs, marks
from curate.inspect.whatif.question import READER, Question, Rule
from curate.inspect.whatif.scores import Scores
from llmcurate.base.errors import UsageError


@dataclass
class Verdicts:
    """fails: rule -> bool[rows], for rules that count; number: int16[rows] of rules that fail a
    document; whole: bool[rows], whether every step's verdict on it is known."""

    scores: Scores
    fails: dict[str, np.ndarray]
    number: np.ndarray
    whole: np.ndarray

    @property
    def kept(self) -> np.ndarray:
        """bool[rows]: passes every rule, all of them known."""
        mask: np.ndarray = (self.number == 0) & self.whole
        return mask

    @property
    def unmeasured(self) -> np.ndarray:
        """bool[rows]: passes all rules that are known of it, but not all are."""
        mask: np.ndarray = (self.number == 0) & ~self.whole
        return mask

    def without(self, rule: str) -> np.ndarray:
        """bool[rows]: documents that no other rule fails."""
        mask: np.ndarray = self.number == self.fails[rule]
        return mask


class Decider:
    """Reads what was stored once, decides for any thresholds."""

    def __init__(self, question: Question, scores: Scores) -> None:
        self.question, self.scores = question, scores
        places = {label: at for at, label in enumerate(question.steps)}
        # `step.rule`: a label holds no point, a rule of a plug-in may.
        self._at = np.array(
            [places.get(n.partition(".")[0], READER) for n in scores.rules] + [READER], np.int64
        )
        # Of each document the place of the first step that marked it, behind all for a kept one.
        kept = scores.primary < 0
        self.first = np.where(kept, len(question.steps), self._at[scores.primary])
        self.langs = Langs(scores.langs, scores.lang)
        self._known_to()
        self.stored = {n: np.zeros(len(scores), np.bool_) for n in scores.rules}
        for name, mask in self.stored.items():
            mask[scores.marks[name]] = True
        self.trusted = self._trusted()

    def _known_to(self) -> None:
        """until: the last step whose marks on a document count; whole; seen: the last step that
        saw it at all."""
        question, last = self.question, len(self.question.steps) - 1
        ends = [max(i for i, s in enumerate(question.stage) if s == t) for t in question.stage]
        until, seen = [last], [last]
        for at in range(last + 1):
            edits = [i for i in range(at, ends[at] + 1) if question.edits[i]]
            until.append(edits[0] if edits else ends[at])
            seen.append(ends[at])
        first = self._at[self.scores.primary]
        at_all = np.where(self.scores.primary < 0, 0, first + 1)
        unread = (self.scores.primary >= 0) & (first == READER)
        self.until = np.where(unread, READER, np.array(until)[at_all]).astype(np.int16)
        self.seen = np.where(unread, READER, np.array(seen)[at_all]).astype(np.int16)
        edited = np.array([True, *(not any(question.edits[i:]) for i in range(last + 1))])
        self.whole = (self.scores.primary < 0) | ((self.until == last) & edited[at_all])

    def _masks(self, rules: list[Rule], now: bool) -> dict[str, np.ndarray]:
        """rule -> bool[rows] of one step's rules, wherever it measured; by stored columns."""
        masks = marks(
            [r.now if now else r.was for r in rules],
            lambda column: self.scores.columns[rules[0].column(column)],
            self.langs,
        )
        saw = self.seen >= rules[0].at
        return {f"{rules[0].step}.{n}": mask & saw for n, mask in masks.items()}

    def _by_step(self) -> dict[str, list[Rule]]:
        by_step: dict[str, list[Rule]] = {}
        for rule in self.question.rules:
            by_step.setdefault(rule.step, []).append(rule)
        return by_step

    def _trusted(self) -> set[str]:
        """Rules whose stored columns and thresholds give exactly the marks that are stored. A
        changed one that does not is refused: the run was made by another version of its step."""
        trusted = set()
        for rules in self._by_step().values():
            masks = self._masks(rules, now=False)
            for rule in rules:
                mask = masks.get(rule.name)
                stored = self.stored.get(rule.name)
                if mask is None or stored is None:
                    same = not (mask if mask is not None else np.zeros(1)).any()
                    same = same and (stored is None or not stored.any())
                else:
                    same = bool(np.array_equal(mask, stored))
                if same:
                    trusted.add(rule.name)
                elif rule.was != rule.now:
                    raise UsageError(
                        f"{rule.name}: stored scores and reasons disagree, so another threshold"
                        " cannot be tried on them; run the recipe anew"
                    )
        return trusted

    def decide(self, now: bool = True) -> Verdicts:
        """The verdicts under the settings asked for, or under those that the run had."""
        fails = {n: m for n, m in self.stored.items() if n not in self.trusted}
        for rules in self._by_step().values():
            for name, mask in self._masks(rules, now).items():
                if name in self.trusted:
                    fails[name] = mask
        number = np.zeros(len(self.scores), np.int16)
        places = {label: at for at, label in enumerate(self.question.steps)}
        for name, mask in fails.items():
            at = places.get(name.partition(".")[0], READER)
            if at >= 0 and (self.until < at).any():
                fails[name] = mask = mask & (self.until >= at)
            number += mask
        return Verdicts(self.scores, fails, number, self.whole)
