"""Interpolated modified Kneser-Ney in plain Python, straight from Chen and Goodman's equations."""

from __future__ import annotations

import math
from collections import Counter

from curate.lab.perplexity.train import discounts

Gram = tuple[str, ...]


class Reference:
    """Probabilities of the n-grams of some sentences, and of any word after any context."""

    def __init__(self, sentences: list[list[str]], order: int, prune: list[int] | None = None):
        self.order = order
        prune = prune or [0] * order
        self.raw: list[Counter[Gram]] = [Counter() for _ in range(order + 1)]
        for words in sentences:
            line = ["<s>", *words, "</s>"]
            for end in range(1, len(line)):
                for n in range(1, order + 1):
                    if end - n + 1 >= 0:
                        self.raw[n][tuple(line[end - n + 1 : end + 1])] += 1
        self.adjusted: list[dict[Gram, int]] = [{}]
        for n in range(1, order + 1):
            before: Counter[Gram] = Counter()
            if n < order:
                before.update(g[1:] for g in self.raw[n + 1])
            self.adjusted.append(
                {g: c if n == order or g[0] == "<s>" else before[g] for g, c in self.raw[n].items()}
            )
        self.vocab = {"<unk>", "<s>", "</s>", *(g[0] for g in self.raw[1])}
        self.pruned = [
            {g for g, c in self.raw[n].items() if n and c <= prune[n - 1]} for n in range(order + 1)
        ]
        self.discounts = [(0.0, 0.0, 0.0)]
        for n in range(1, order + 1):
            have = Counter(self.adjusted[n].values())
            self.discounts.append(discounts([have[k] for k in (1, 2, 3, 4)], n, True))

    def _discount(self, n: int, count: int) -> float:
        return 0.0 if count == 0 else self.discounts[n][min(count, 3) - 1]

    def parts(self, context: Gram) -> tuple[dict[str, float], float]:
        """(shares by word, back-off weight) after a context that was seen."""
        n = len(context) + 1
        follow = {g[-1]: (g, a) for g, a in self.adjusted[n].items() if g[:-1] == context}
        total = sum(a for _, a in follow.values())
        shares, taken = {}, 0.0
        for word, (gram, a) in follow.items():
            if gram in self.pruned[n]:
                taken += a
            else:
                taken += self._discount(n, a)
                shares[word] = (a - self._discount(n, a)) / total
        return shares, taken / total

    def prob(self, context: Gram, word: str) -> float:
        """p(word | context), the context cut to what was seen."""
        context = context[-(self.order - 1) :] if self.order > 1 else ()
        while context and not any(g[:-1] == context for g in self.raw[len(context) + 1]):
            context = context[1:]
        shares, weight = self.parts(context)
        lower = self.prob(context[1:], word) if context else 1 / (len(self.vocab) - 1)
        return shares.get(word, 0.0) + weight * lower

    def log10(self, words: list[str]) -> float:
        """The log10 probability of a sentence."""
        line = ["<s>", *(w if w in self.vocab else "<unk>" for w in words), "</s>"]
        return sum(math.log10(self.prob(tuple(line[:i]), line[i])) for i in range(1, len(line)))
