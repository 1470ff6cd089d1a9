"""Our sentence counter beside NLTK's Punkt on English: how often they disagree.

    python benchmarks/sentence_counter.py

Per line, and on C4's decision that a page has at least three sentences, on pages of 3.4 kB cut
from novels and documentation. The Punkt model is NLTK's English one where nltk.data has it
(`punkt_tab`), else one trained here on the same texts, without labels, as Punkt is made.
"""

from __future__ import annotations

import sys
from collections import Counter
from pathlib import Path
from typing import Any

import numba
import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
from benchmarks.shared_texts import english, pieces
from curate.text.sentences import count_sentences

SHOWN = 6


def punkt() -> tuple[Any, str]:
    """(a sentence tokenizer, where it comes from)."""
    try:
        import nltk
        from nltk.tokenize.punkt import PunktSentenceTokenizer, PunktTokenizer, PunktTrainer
    except ImportError:
        sys.exit("nltk is not installed: pip install 'llmcurate[dev]'")
    try:
        nltk.data.find("tokenizers/punkt_tab/english/")
        return PunktTokenizer("english"), "NLTK's punkt_tab for English"
    except LookupError:
        trainer = PunktTrainer()
        # British novels also write Mr and Dr without a period; the penalty for that would teach
        # the model that neither is an abbreviation.
        trainer.IGNORE_ABBREV_PENALTY = True
        for text in english():
            trainer.train(text, finalize=False)
        trainer.finalize_training()
        return PunktSentenceTokenizer(trainer.get_params()), "Punkt trained on these texts"


count = numba.njit(lambda data: count_sentences(data, 0, len(data)))


def ours(line: str) -> int:
    data = np.frombuffer(line.encode(), np.uint8)
    return int(count(data))


def main() -> None:
    model, name = punkt()
    lines: Counter[str] = Counter()
    examples: list[tuple[str, int, int]] = []
    pages = few = 0
    differences: Counter[int] = Counter()
    for page in pieces():
        mine_page = their_page = 0
        for line in filter(None, map(str.strip, page.splitlines())):
            own, theirs = ours(line), len(model.tokenize(line))
            lines["all"] += 1
            if theirs > 1 or own > 1:
                lines["several"] += 1
            if own != theirs:
                lines["different"] += 1
                differences[own - theirs] += 1
                if len(line) < 120 and lines["different"] % 40 == 1:
                    examples.append((line, own, theirs))
            # C4 counts kept lines; the first two rules suffice to see which those are.
            if len(line.split()) >= 5 and line.endswith((".", "?", "!", '"')):
                mine_page += own
                their_page += theirs
        pages += 1
        few += (mine_page >= 3) != (their_page >= 3)
    share = lines["different"] / lines["all"]
    several = lines["different"] / max(1, lines["several"])
    print(f"reference: {name}")
    print(
        f"lines: {lines['different']} of {lines['all']} differ ({share:.2%});"
        f" of those with several sentences {several:.2%}"
    )
    print("  ours minus Punkt: " + ", ".join(f"{k:+d}: {v}" for k, v in differences.most_common(6)))
    print(f"pages: {few} of {pages} differ on 'at least three sentences' ({few / pages:.3%})")
    for line, own, theirs in examples[:SHOWN]:
        print(f"  ours {own}, Punkt {theirs}: {line}")


if __name__ == "__main__":
    main()
