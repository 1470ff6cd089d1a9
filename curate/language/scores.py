"""How well labels were recognised: accuracy, macro F1, accuracy by length, confusions."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from typing import Any

from curate.language.codes import comparable, script

# Shortest text of each bucket, in characters.
LENGTHS = (0, 20, 50, 100, 200, 500)
CONFUSIONS = 20


class Scores:
    """Counts what was expected and what was found. labels: those of the model.

    `en`, `eng` and `eng_Latn` are one language; where everything has a script, scripts count too.
    """

    def __init__(self, labels: Iterable[str]) -> None:
        self.labels = tuple(labels)
        self._counts: Counter[tuple[str, str | None, int]] = Counter()

    def add(
        self, expected: Sequence[str], found: Sequence[str | None], chars: Sequence[int]
    ) -> None:
        """One batch; found: None where the model gave no label; chars: length of each text."""
        buckets = [sum(c >= least for least in LENGTHS[1:]) for c in chars]
        self._counts.update(zip(expected, found, buckets, strict=True))

    def result(self) -> dict[str, Any]:
        """The figures; shares are None where nothing was counted. `known` leaves out texts in
        languages that the model has no label for."""
        truths = {truth for truth, _, _ in self._counts}
        scripts = all(script(x) for x in (*truths, *self.labels))
        one = (lambda x: x) if scripts else comparable
        knows = {one(x) for x in self.labels}
        pairs: Counter[tuple[str, str | None]] = Counter()
        lengths = [[0, 0, 0, 0] for _ in LENGTHS]  # texts, right; of those known, right
        for (truth, found, bucket), times in self._counts.items():
            want, have = one(truth), None if found is None else one(found)
            pairs[want, have] += times
            right = times if want == have else 0
            known = want in knows
            for place, n in enumerate((times, right, times * known, right * known)):
                lengths[bucket][place] += n
        total = [sum(column) for column in zip(*lengths, strict=True)]
        wrong = [(n, t, f) for (t, f), n in pairs.items() if t != f]
        wrong.sort(key=lambda w: (-w[0], w[1], w[2] or ""))
        return {
            "texts": total[0],
            "accuracy": _share(total[1], total[0]),
            "known": {
                "texts": total[2],
                "labels": len({one(t) for t in truths} & knows),
                "accuracy": _share(total[3], total[2]),
                "macro_f1": _macro_f1(pairs, knows),
            },
            "unknown_labels": sorted(t for t in truths if one(t) not in knows),
            "by_length": [
                {
                    "from": least,
                    "texts": row[0],
                    "accuracy": _share(row[1], row[0]),
                    "known_accuracy": _share(row[3], row[2]),
                }
                for least, row in zip(LENGTHS, lengths, strict=True)
            ],
            "confusions": [
                {"expected": t, "found": f, "texts": n} for n, t, f in wrong[:CONFUSIONS]
            ],
        }


def _share(part: int, whole: int) -> float | None:
    return round(part / whole, 6) if whole else None


def _macro_f1(pairs: Counter[tuple[str, str | None]], knows: set[str]) -> float | None:
    """The mean F1 of the known languages that occur."""
    expected: Counter[str] = Counter()
    found: Counter[str] = Counter()
    for (want, have), n in pairs.items():
        expected[want] += n
        if have is not None:
            found[have] += n
    each = [
        2 * pairs[name, name] / (expected[name] + found[name])
        for name in sorted(expected)
        if name in knows
    ]
    return round(sum(each) / len(each), 6) if each else None


def table(result: dict[str, Any]) -> str:
    """The figures for a terminal."""
    known = result["known"]
    lines = [
        f"{result['texts']} texts, accuracy {_percent(result['accuracy'])}",
        f"{known['texts']} texts in the {known['labels']} languages that the model knows:"
        f" accuracy {_percent(known['accuracy'])}, macro F1 {_percent(known['macro_f1'])}",
    ]
    if result["unknown_labels"]:
        lines.append(f"languages without a label: {' '.join(result['unknown_labels'])}")
    lines.append(f"  {'characters':<14}{'texts':>8}{'accuracy':>11}{'known':>11}")
    rows = result["by_length"]
    for row, after in zip(rows, [*(r["from"] - 1 for r in rows[1:]), None], strict=True):
        span = f"{row['from']} to {after}" if after is not None else f"from {row['from']}"
        right, among = _percent(row["accuracy"]), _percent(row["known_accuracy"])
        lines.append(f"  {span:<14}{row['texts']:>8}{right:>11}{among:>11}")
    if result["confusions"]:
        lines.append("  most frequent confusions (expected, found, texts):")
        for c in result["confusions"]:
            lines.append(f"    {c['expected']:<12}{c['found'] or 'no label':<12}{c['texts']:>6}")
    return "\n".join(lines)


def _percent(share: float | None) -> str:
    return "-" if share is None else f"{100 * share:.2f} %"
