"""Our quality filters (variant datatrove) against DataTrove's own, rule by rule.

    python benchmarks/parity_datatrove.py [documents]

Both judge the same English documents: pieces of novels and documentation, and copies of them with
repeated lines, lists, cut-off sentences and symbols, so that rules have documents near their limit.
DataTrove runs in an environment of its own (peer_env.sh), each rule alone. What differs, differs by
word segmentation (curate/filters/tokens.py); lines are judged alike. Exit status 1 where fewer than
98 % of the decisions of a filter agree.
"""

from __future__ import annotations

import json
import random
import sys
import tempfile
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
from benchmarks.shared_texts import ROOT, last_json, peer_python, pieces

LEAST = 0.98
FILTERS = ("gopher_quality", "gopher_repetition", "fineweb_quality")
SYMBOL_RATIOS = ("hash_ratio", "ellipsis_ratio")  # one limit, so one rule, in DataTrove


def worsened(text: str, rng: random.Random) -> str:
    """The text with a fault of one kind, in a random dose."""
    lines = text.split("\n")
    dose = rng.random()
    kind = rng.randrange(8)
    if kind == 0:
        return "\n".join(line for line in lines for _ in range(1 + (rng.random() < dose / 2)))
    if kind == 1:
        return "\n".join(("- " if rng.random() < dose**0.2 else "") + line for line in lines)
    if kind == 2:
        return "\n".join(line + ("..." if rng.random() < dose else "") for line in lines)
    if kind == 3:
        words = text.split(" ")
        return " ".join(
            rng.choice(("#", "12", "--")) if rng.random() < dose / 3 else w for w in words
        )
    if kind == 4:
        run = " ".join(text.split()[:12]) + ". "
        return text + run * int(30 * dose)
    if kind == 5:
        return "\n".join(w for w in text.split()[: 1 + int(300 * dose)])
    if kind == 6:
        return text[: 20 + int(600 * dose)]
    return "\n".join(line[: int(5 + 80 * dose)] for line in lines)


def our_decisions(texts: list[str]) -> tuple[dict[str, list[bool]], list[dict[str, object]]]:
    """({filter or filter.rule: [whether it drops the document, ...]}, measured values)."""
    from curate.documents import documents
    from curate.steps import Step, step_class

    dropped: dict[str, list[bool]] = {}
    docs = documents({"text": texts})
    for name in FILTERS:
        step = step_class(name)(variant="datatrove")
        assert isinstance(step, Step)
        docs = step.apply(docs.within(name))
    for mark in docs.drops:
        rule = "symbol_ratio" if mark.rule in SYMBOL_RATIOS else mark.rule
        for key in (mark.step, f"{mark.step}.{rule}"):
            rows = dropped.setdefault(key, [False] * len(texts))
            for row in mark.rows:
                rows[row] = True
    return dropped, docs.table.to_pylist()


def main() -> None:
    count = int(sys.argv[1]) if len(sys.argv) > 1 else 3000
    rng = random.Random(0)
    real = rng.sample(pieces(), count // 2)
    texts = real + [worsened(t, rng) for t in real]
    ours, values = our_decisions(texts)
    with tempfile.NamedTemporaryFile("w", suffix=".jsonl") as file:
        file.writelines(json.dumps(t) + "\n" for t in texts)
        file.flush()
        peer = ROOT / "benchmarks" / "peers" / "datatrove_quality.py"
        theirs = last_json([peer_python(), str(peer), "rules", file.name])
    print(f"{len(texts)} documents, {len(real)} as they are and {len(real)} worsened")
    print(f"{'rule':<46}{'ours':>7}{'theirs':>8}{'agree':>9}")
    examples = []
    failed = False
    for name, their in theirs.items():
        our = ours.get(name, [False] * len(texts))
        agree = sum(a == b for a, b in zip(our, their, strict=True))
        failed |= name in FILTERS and agree < LEAST * len(texts)
        print(f"{name:<46}{sum(our):>7}{sum(their):>8}{agree / len(texts):>9.2%}")
        if "." in name:
            differing = [i for i in range(len(texts)) if our[i] != their[i]]
            examples += [(name, i, our[i]) for i in differing[:2]]
    for name, i, our_says in examples:
        measured = values[i].get(name, values[i].get(name.replace("few_words", "words")))
        print(f"\n{name}: we {'drop' if our_says else 'keep'} ({measured}): {texts[i][:160]!r}")
    sys.exit(1 if failed else 0)


if __name__ == "__main__":
    main()
