"""BPE without tokens that stand in longer ones alone, after PickyBPE (Chizhov et al. 2024) and
ScaffoldBPE (Lian et al. 2024).

More tokens are learned than there is room for, and those go that save least. A word whose parts
have gone stays all the same: with `ignore_merges` in tokenizer.json a piece that is a token needs
no merges. So a token is a part, which merges make, or a whole word, or both.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from kernel_cache import read_only
from tokenize_kit.encode.byte_bpe import Bpe, encode_pieces
from tokenize_kit.encode.greedy import make_greedy, no_greedy
from tokenize_kit.encode.merges import pair_table
from tokenize_kit.encode.trie import build_trie
from tokenize_kit.encode.words import new_cache
from tokenize_kit.errors import usage_error
from tokenize_kit.learn.byte_words import byte_ids, count_words

# Tokens learned for each that stays, and rounds in which the others go. Tried on prose in ten
# languages and code: more of either gives more in training, and hardly more on other texts.
EXTRA, ROUNDS = 1.5, 4
_BYTES = 256
WordTable = tuple[np.ndarray, np.ndarray, np.ndarray]  # of WordCounts.words
Learned = tuple[list[bytes], list[tuple[int, int]]]  # of learn_merges


def more_tokens(tokens: int) -> int:
    """How many are learned for so many that stay."""
    return int(EXTRA * tokens)


def check_special(tokens: Sequence[str], parts: Sequence[str]) -> None:
    """Raises TokenizerError for a special token that is one piece, which text would give."""
    for token in tokens:
        _, ends, _ = count_words([(token, 1)], parts).words()
        if ends.tolist() == [0, len(token)]:
            raise usage_error(
                f"special token {token!r}: the pattern leaves it whole, so text would give it; "
                "spell it otherwise, or leave out whole-words"
            )


def _encoded(bpe: Bpe, letters: np.ndarray, ends: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """(ids: uint32[], how many of each piece: int64[])"""
    ones = np.ones(len(ends) - 1, np.int64)
    return encode_pieces(read_only(letters), ends, ends[1:].copy(), ones, bpe, new_cache())


class Pruning:
    """The tokens that are parts (merges make them) and whole words, fewer in each round.

    part, word: bool[tokens]; pairs: what each token is first merged from, none for bytes; total:
    tokens in all words before anything is dropped.
    """

    def __init__(self, learned: Learned, words: WordTable) -> None:
        self.names, self.merges = learned
        self.words = words
        number = {name: k for k, name in enumerate(self.names)}
        self.made = [number[self.names[a] + self.names[b]] for a, b in self.merges]
        self.pairs: list[tuple[int, ...]] = [()] * len(self.names)
        for pair, token in zip(reversed(self.merges), reversed(self.made), strict=True):
            self.pairs[token] = pair
        self.part, self.word = np.ones((2, len(self.names)), np.bool_)
        _, used, self.total = self.count_uses(self.tables())
        self.word = used > 0

    @property
    def kept(self) -> np.ndarray:
        """bool[tokens]"""
        return self.part | self.word

    def kept_merges(self) -> np.ndarray:
        """int64[n, 3]: left, right and merged token, in order of rank."""
        rows = np.array([(*pair, t) for pair, t in zip(self.merges, self.made, strict=True)])
        rows = rows.reshape(-1, 3).astype(np.int64)
        return rows[self.part[rows].all(1)]

    def tables(self) -> Bpe:
        """What encodes: a piece that is kept is that token, all others are merged."""
        tokens = {k: self.names[k] for k in np.flatnonzero(self.kept).tolist()}
        pairs, of_bytes = pair_table(self.kept_merges()), byte_ids().astype(np.int64)
        greedy = make_greedy(tokens, of_bytes, pairs)
        trie = build_trie(list(tokens.values()), np.array(list(tokens)))
        return Bpe(of_bytes, pairs, greedy or no_greedy(), greedy is not None, *trie, True)

    def count_uses(self, bpe: Bpe) -> tuple[np.ndarray, np.ndarray, int]:
        """(uses within words that are no token, words that are that token: int64[tokens], tokens
        of all words)."""
        letters, ends, counts = self.words
        ids, sizes = _encoded(bpe, letters, ends)
        weights = np.repeat(counts, sizes)
        alone = np.repeat(sizes == 1, sizes)
        uses, words = (
            np.bincount(ids[chosen], weights[chosen], len(self.names)).astype(np.int64)
            for chosen in (~alone, alone)
        )
        return uses, words, int(np.dot(sizes, counts))

    def merged_sizes(self, bpe: Bpe) -> np.ndarray:
        """Tokens that merges alone make of each token's bytes: int64[tokens]."""
        letters = np.frombuffer(bytearray().join(self.names), np.uint8)
        ends = np.cumsum([0, *map(len, self.names)])
        return _encoded(bpe._replace(whole=False), letters, ends)[1]

    def drop(self, tokens: int) -> None:
        """One round, in which so many tokens go at most: those that save least for each that goes.

        Losing a part costs a token each time that merges make it, or what is made of it; losing a
        word costs its pieces but one. Of equals the one learned last goes first.
        """
        bpe = self.tables()
        uses, words, _ = self.count_uses(bpe)
        sizes = np.where(self.part, 2, self.merged_sizes(bpe))
        made, parts = uses.tolist(), np.flatnonzero(self.part)[: _BYTES - 1 : -1].tolist()
        longer: dict[int, list[int]] = {}
        cost, freed = [0] * len(made), (~self.word).tolist()
        for token in parts:
            cost[token] += made[token]
            for part in self.pairs[token]:
                made[part] += made[token]
            for part in dict.fromkeys(self.pairs[token]):
                longer.setdefault(part, []).append(token)
                cost[part] += cost[token]
                freed[part] += freed[token]
        candidates = [(cost[t] / freed[t], -t, False) for t in parts if freed[t]]
        for token in set(np.flatnonzero(self.word).tolist()) - longer.keys() - set(range(_BYTES)):
            merged = made[token] if self.part[token] else 0
            lost = int(words[token]) * (int(sizes[token]) - 1)
            candidates.append((merged + lost, -token, True))
        before = self.part.copy()
        for _, minus, is_word in sorted(candidates):
            token = -minus
            if self.part[token] != before[token]:
                continue  # it went with another one
            subtree = [token] if is_word else self._subtree(token, longer)
            gone = 1 if is_word else sum(not self.word[k] for k in subtree)
            if 0 < gone <= tokens:
                self.part[subtree] = False
                self.word[token] &= not is_word
                tokens -= gone

    def _subtree(self, token: int, children: dict[int, list[int]]) -> list[int]:
        """The token and all that are made of it, of the parts."""
        subtree: dict[int, None] = {}
        waiting = [token]
        while waiting:
            token = waiting.pop()
            if self.part[token] and token not in subtree:
                subtree[token] = None
                waiting += children.get(token, ())
        return list(subtree)

    def result(self) -> Learned:
        """What is kept, as learned tokens and merges are."""
        kept = np.flatnonzero(self.kept)
        position = np.cumsum(self.kept) - 1
        merges = position[self.kept_merges()[:, :2]].tolist()
        return [self.names[k] for k in kept], [(left, right) for left, right in merges]


def prune_parts(learned: Learned, plain: Learned, words: WordTable) -> Learned:
    """As many tokens as plain BPE has, with no more tokens in the words than it gives.

    learned: more tokens of the same; words: those that they were learned from. Some tokens have no
    merges: they are whole words.
    """
    pruning = Pruning(learned, words)
    rounds = ROUNDS
    while (excess := int(pruning.kept.sum()) - len(plain[0])) > 0:
        rounds -= 1
        pruning.drop(-(-excess // 2) if rounds > 0 else excess)
    fewer = pruning.count_uses(pruning.tables())[2] <= Pruning(plain, words).total
    return pruning.result() if fewer else plain
