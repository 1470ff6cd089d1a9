"""Our quality filters (variant datatrove) against DataTrove's own, rule by rule.

    python benchmarks/parity_datatrove.py [documents]

Both judge the same English documents: pieces of novels and documentation, and copies of them with
repeated lines, lists, cut-off sentences and symbols, so that rules have documents near their limit.
DataTrove runs in an environment of its own (peer_env.sh), each rule alone. Ours run twice: with our
words, and with the words that DataTrove's spaCy cut put in the place of ours ("its words"), which
shows what differs by word segmentation (curate/filters/tokens.py) and what does not. Exit status 1
where fewer than 98 % of a filter's decisions agree, or any differs with the same words.
"""

from __future__ import annotations

import json
import random
import sys
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
from benchmarks.shared_texts import ROOT, last_json, peer_python, pieces

if TYPE_CHECKING:
    from curate.documents.documents import Documents

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


def with_words(docs: Documents, texts: list[str], words: list[list[str]]) -> None:
    """Puts these words in the place of those that our filters would cut."""
    import numpy as np

    from curate.filters.tokens import PUNCTUATION, Tokens, describe
    from curate.text.words import character_tables

    data, offsets = docs.buffers()
    start: list[int] = []
    chars: list[int] = []
    size: list[int] = []
    rows = [0]
    for text, of_text, base in zip(texts, words, offsets.tolist(), strict=False):
        at = done = 0
        place = base
        for word in of_text:
            at = text.index(word, done)
            place += len(text[done:at].encode())
            start.append(place)
            chars.append(len(word))
            size.append(len(word.encode()))
            place += size[-1]
            done = at + len(word)
        rows.append(len(start))
    first = np.array(start, np.int64)
    last = first + np.array(size, np.int64)
    described = describe(data, first, last, character_tables()[0], PUNCTUATION, False, False)
    symbols = Tokens(np.array(rows, np.int64), first, np.array(chars, np.int32), *described)
    docs.table_of("tokens.symbols", lambda: symbols)


def our_decisions(
    texts: list[str], words: list[list[str]] | None = None
) -> tuple[dict[str, list[bool]], list[dict[str, object]]]:
    """({filter or filter.rule: [whether it drops the document, ...]}, measured values)."""
    from curate.documents.documents import documents
    from curate.steps.contracts import Step
    from curate.steps.registry import step_class

    dropped: dict[str, list[bool]] = {}
    docs = documents({"text": texts})
    if words is not None:
        with_words(docs, texts, words)
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
        words = last_json([peer_python(), str(peer), "words", file.name])
    same, _ = our_decisions(texts, words)
    print(f"{len(texts)} documents, {len(real)} as they are and {len(real)} worsened")
    print(f"{'rule':<46}{'ours':>7}{'theirs':>8}{'agree':>9}{'its words':>11}")
    examples = []
    none = [False] * len(texts)
    failed = False
    for name, their in theirs.items():
        our = ours.get(name, none)
        agree = sum(a == b for a, b in zip(our, their, strict=True))
        alike = sum(a == b for a, b in zip(same.get(name, none), their, strict=True))
        failed |= name in FILTERS and (agree < LEAST * len(texts) or alike < len(texts))
        print(
            f"{name:<46}{sum(our):>7}{sum(their):>8}{agree / len(texts):>9.2%}"
            f"{alike / len(texts):>11.2%}"
        )
        if "." in name:
            differing = [i for i in range(len(texts)) if our[i] != their[i]]
            examples += [(name, i, our[i]) for i in differing[:2]]
    for name, i, our_says in examples:
        measured = values[i].get(name, values[i].get(name.replace("few_words", "words")))
        print(f"\n{name}: we {'drop' if our_says else 'keep'} ({measured}): {texts[i][:160]!r}")
    sys.exit(1 if failed else 0)


if __name__ == "__main__":
    main()
