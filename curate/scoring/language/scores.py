"""Measures of language identification: accuracy, F1, accuracy by length, confusions."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Sequence
from typing import Any, NamedTuple

from curate.text.languages import comparable, script_of
from llmcurate.base.disk.units import counted, format_percent
from llmcurate.base.terminal import table

BINS = 10  # of scores, equal width


def calibration(
    bins: Sequence[Sequence[float]],
) -> dict[str, float | list[dict[str, float]] | None]:
    """Return {"error": the expected calibration error, "bins": mean score and accuracy of each bin
    with texts}. `bins` has (texts, correct labels, sum of scores) per bin. The error is None if
    there are no texts. Source: Guo et al. 2017, "On Calibration of Modern Neural Networks", 2."""
    texts = sum(bin[0] for bin in bins)
    error = sum(abs(right - score) for _, right, score in bins)
    return {
        "error": round(error / texts, 6) if texts else None,
        "bins": [
            {
                "from": place / len(bins),
                "texts": int(n),
                "score": round(score / n, 6),
                "accuracy": round(right / n, 6),
            }
            for place, (n, right, score) in enumerate(bins)
            if n
        ],
    }


# Lower limits of the length buckets, in characters.
LENGTHS = (0, 20, 50, 100, 200, 500)
CONFUSIONS = 20
Pairs = Counter[tuple[str, str | None]]


class Scores:
    """Counts of expected and predicted labels. `labels` are the labels of the model. `en`, `eng`
    and `eng_Latn` count as one language; if all labels have a script, scripts must match too."""

    def __init__(self, labels: Iterable[str]) -> None:
        self.labels = tuple(labels)
        # (expected, found, length bucket, score bin): number of texts, and sum of their scores.
        self._counts: Counter[tuple[str, str | None, int, int]] = Counter()
        self._sums: defaultdict[tuple[str, str | None, int, int], float] = defaultdict(float)

    def add(
        self,
        expected: Sequence[str],
        predicted: Sequence[str | None],
        chars: Sequence[int],
        scores: Sequence[float],
    ) -> None:
        """Add a batch of texts. `predicted` is the label of each text, or None if the model gave
        none. `chars` is the length of each text. `scores` is the score of the predicted label, 0 to
        1."""
        lengths = [sum(c >= least for least in LENGTHS[1:]) for c in chars]
        bins = [min(BINS - 1, int(score * BINS)) for score in scores]
        for key, score in zip(
            zip(expected, predicted, lengths, bins, strict=True), scores, strict=True
        ):
            self._counts[key] += 1
            self._sums[key] += score  # type: ignore[assignment]

    def _names(self) -> tuple[Callable[[str], str], set[str]]:
        truths = {key[0] for key in self._counts}
        scripts = all(script_of(x) for x in (*truths, *self.labels))
        canonical = (lambda x: x) if scripts else comparable
        return canonical, {canonical(x) for x in self.labels}

    def pairs(self) -> Pairs:
        canonical, _ = self._names()
        counts: Pairs = Counter()
        for (truth, label, _, _), times in self._counts.items():
            counts[canonical(truth), None if label is None else canonical(label)] += times
        return counts

    def result(self) -> dict[str, Any]:
        """Return the measures. Those under `known` cover the languages for which the model has a
        label."""
        canonical, knows = self._names()
        truths = {key[0] for key in self._counts}
        lengths = [[0, 0, 0, 0] for _ in LENGTHS]  # texts, right; texts in known languages, right
        bins = {part: [[0, 0, 0.0] for _ in range(BINS)] for part in ("all", "known")}
        for key, times in self._counts.items():
            truth, label, length, place = key
            want, have = canonical(truth), None if label is None else canonical(label)
            right = times if want == have else 0
            is_known = want in knows
            for column, n in enumerate((times, right, times * is_known, right * is_known)):
                lengths[length][column] += n
            for part in ("all", "known") if is_known else ("all",):
                for column, value in enumerate((times, right, self._sums[key])):
                    bins[part][place][column] += value
        total = [sum(column) for column in zip(*lengths, strict=True)]
        pairs = self.pairs()
        languages = _languages(pairs, knows)
        each = [language.f1 or 0.0 for language in languages if language.texts]
        wrong = [(n, t, f) for (t, f), n in pairs.items() if t != f]
        wrong.sort(key=lambda w: (-w[0], w[1], w[2] or ""))
        return {
            "texts": total[0],
            "accuracy": _share(total[1], total[0]),
            "known": {
                "texts": total[2],
                "labels": len({canonical(t) for t in truths} & knows),
                "accuracy": _share(total[3], total[2]),
                "macro_f1": round(sum(each) / len(each), 6) if each else None,
            },
            "unknown_labels": sorted(t for t in truths if canonical(t) not in knows),
            "by_length": [
                {
                    "from": least,
                    "texts": row[0],
                    "accuracy": _share(row[1], row[0]),
                    "known_accuracy": _share(row[3], row[2]),
                }
                for least, row in zip(LENGTHS, lengths, strict=True)
            ],
            "calibration": {part: calibration(counts) for part, counts in bins.items()},
            "languages": [language._asdict() for language in languages],
            "confusions": [
                {"expected": t, "found": f, "texts": n} for n, t, f in wrong[:CONFUSIONS]
            ],
        }


def _share(part: int, whole: int) -> float | None:
    return round(part / whole, 6) if whole else None


class Language(NamedTuple):
    """Counts and measures of one language."""

    label: str
    texts: int  # texts in this language
    found: int  # texts with its label
    right: int  # texts in this language with its label
    precision: float | None
    recall: float | None
    f1: float | None


def _languages(pairs: Pairs, knows: set[str]) -> list[Language]:
    expected: Counter[str] = Counter()
    predicted: Counter[str] = Counter()
    for (want, have), n in pairs.items():
        expected[want] += n
        if have is not None:
            predicted[have] += n
    return [
        Language(
            *(name, expected[name], predicted[name], pairs[name, name]),
            _share(pairs[name, name], predicted[name]),
            _share(pairs[name, name], expected[name]),
            _share(2 * pairs[name, name], expected[name] + predicted[name]),
        )
        for name in sorted(knows & (expected.keys() | predicted.keys()))
    ]


def text_of(result: dict[str, Any]) -> str:
    totals = result["known"]
    lines = [
        f"{counted(result['texts'], 'text')}, accuracy {_percent(result['accuracy'])}",
        f"{counted(totals['texts'], 'text')} in the"
        f" {counted(totals['labels'], 'language')} that the model knows:"
        f" accuracy {_percent(totals['accuracy'])}, macro F1 {_percent(totals['macro_f1'])}",
    ]
    error = result["calibration"]["all"]["error"]
    if error is not None:
        lines.append(f"scores differ from the accuracy by {_percent(error)} on average")
    if result["unknown_labels"]:
        lines.append(f"languages without a label: {' '.join(result['unknown_labels'])}")
    rows = result["by_length"]
    cells = []
    for row, after in zip(rows, [*(r["from"] - 1 for r in rows[1:]), None], strict=True):
        span = f"{row['from']} to {after}" if after is not None else f"from {row['from']}"
        shares = _percent(row["accuracy"]), _percent(row["known_accuracy"])
        cells.append((span, f"{row['texts']}", *shares))
    lines += table(("characters", "texts", "accuracy", "known"), cells, indent=2)
    if result["confusions"]:
        lines.append("  most frequent confusions (expected, found, texts):")
        pairs = [
            (c["expected"], c["found"] or "no label", f"{c['texts']}") for c in result["confusions"]
        ]
        lines += table((), pairs, left=(0, 1), indent=4)
    return "\n".join(lines)


def _percent(share: float | None) -> str:
    return format_percent(share, 2)
