"""Algorithms of byte-level BPE at one size of the vocabulary, on held-out text.

    python benchmarks/bench_tokenizer_algorithms.py [--mb N] [--vocab N]

First plain BPE against SuperBPE, whose tokens span words from a share of the vocabulary on, and
BoundlessBPE, whose words that are one token merge as often as they come: bytes a token by kind of
text, CPU seconds and memory of training (each in a process of its own); and what BoundlessBPE's
tokenizer.json gives otherwise than the paper's rule, by which only whole words are joined. Then
plain against whole words without merges, and how many of their tokens are hardly used. Then plain
against parity-aware BPE, on the languages of which there are parallel texts (NTREX-128): tokens a
sentence by language, on sentences that no one learned from, and the Gini coefficient of them. Exit
status 1 where SuperBPE, BoundlessBPE or whole words give fewer bytes a token than plain BPE, or
parity-aware BPE a Gini coefficient that is not smaller.
"""

from __future__ import annotations

import argparse
import gzip
import json
import multiprocessing
import sys
import time
from collections import Counter
from concurrent.futures import ProcessPoolExecutor
from itertools import accumulate, pairwise
from pathlib import Path
from typing import Any

import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
from benchmarks.bench_tokenizer_compression import held_out, split_texts, tokens
from benchmarks.shared_texts import need, peak_mib, reached
from benchmarks.tokenizer_texts import PIECE

# Languages of longtext and their names in NTREX-128.
LANGUAGES = {
    "en": "eng", "de": "deu", "fr": "fra", "ru": "rus", "th": "tha", "zh": "zho-CN", "ja": "jpn",
    "hi": "hin", "mr": "mar", "ta": "tam", "te": "tel", "kn": "kan", "gu": "guj", "bn": "ben",
}  # fmt: skip
Documents = list[tuple[str, int]]  # text, and weight or number of its group


def train(
    documents: Documents, vocab: int, settings: dict[str, Any], groups: Any, parallel: Any
) -> tuple[str, float, float, int]:
    """(tokenizer.json, CPU seconds, MiB that the process grew by, BoundlessBPE's tokens over
    words); runs in a new process."""
    from tokenize_kit.learn.boundless import train_boundless
    from tokenize_kit.learn.bpe import train_sizes
    from tokenize_kit.learn.options import TrainingOptions
    from tokenize_kit.learn.parity import Parity

    def learn(some: Documents, size: int, **more: Any) -> tuple[Any, int]:
        options = TrainingOptions(sizes=(size,), **{**settings, **more})
        parity = Parity(groups, parallel) if groups else None
        if options.superwords == "auto":
            tokenizer, details = train_boundless(iter(some), options)[0]
            return tokenizer, details["superwords"]
        return train_sizes(iter(some), options, parity=parity)[0], 0

    small = {"superwords": 300} if isinstance(settings.get("superwords"), int) else {}
    firsts = list({number: (text[:999], number) for text, number in documents}.values())
    learn(firsts, 320, **small)  # what compiles or loads
    before, begin = peak_mib(), time.process_time()
    tokenizer, over = learn(documents, vocab)
    return str(tokenizer.to_str()), time.process_time() - begin, peak_mib() - before, over


def trained(
    documents: Documents,
    vocab: int,
    settings: dict[str, Any],
    groups: dict[str, int] | None = None,
    parallel: dict[str, list[str]] | None = None,
) -> tuple[Any, float, float, int]:
    from tokenizers import Tokenizer

    spawn = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(1, mp_context=spawn) as pool:
        arguments = (documents, vocab, settings, groups, parallel)
        written, *costs = pool.submit(train, *arguments).result()
    return Tokenizer.from_str(written), *costs


def rows(head: str, names: list[str], values: dict[str, list[float]], form: str) -> None:
    print(f"{head:16}" + "".join(f"{name:>18}" for name in names))
    for label, row in values.items():
        print(f"{label:16}" + "".join(f"{value:18{form}}" for value in row), flush=True)


def compare_superwords(mb: float, vocab: int) -> bool:
    """Whether SuperBPE and BoundlessBPE give more bytes a token than plain BPE."""
    learned, kept = split_texts(mb)
    every = [text for texts in kept.values() for text in texts]
    settings: dict[str, dict[str, Any]] = {"plain": {}} | {
        f"SuperBPE {share:.0%}": {"superwords": int(vocab * share)} for share in (0.9, 0.6)
    }
    settings["BoundlessBPE"] = {"superwords": "auto"}
    results = {
        name: trained([(text, 1) for text in learned], vocab, chosen)
        for name, chosen in settings.items()
    }
    table = {
        kind: [sum(len(t.encode()) for t in texts) / tokens(r[0], texts) for r in results.values()]
        for kind, texts in [*kept.items(), ("all", every)]
    }
    print(f"learned from {sum(len(t.encode()) for t in learned) / 1e6:.1f} MB; {vocab} tokens")
    rows("bytes a token", list(results), table, ".3f")
    costs = {"CPU seconds": [r[1] for r in results.values()]}
    rows("training", list(results), costs | {"MiB": [r[2] for r in results.values()]}, ".1f")
    compare_rules(results["BoundlessBPE"][0], results["BoundlessBPE"][3], kept)
    return min(table["all"][1:]) > table["all"][0]


def compare_rules(boundless: Any, over: int, kept: dict[str, list[str]]) -> None:
    """Prints bytes a token by the paper's rule for the last `over` merges, and the share of the
    tokens by the file that the rule does not give."""
    from tokenizers import Regex, Tokenizer, pre_tokenizers

    from tokenize_kit.learn.options import TrainingOptions

    options = TrainingOptions(superwords="auto")
    parts, cut = options.cutting.parts, options.counted_parts
    splits = [pre_tokenizers.Split(Regex(part), behavior="isolated") for part in cut]
    lines = pre_tokenizers.Sequence(splits[: len(parts)])
    form = json.loads(boundless.to_str())
    merges = form["model"]["merges"]
    form["model"]["merges"], across = merges[:-over], [tuple(pair) for pair in merges[-over:]]
    words = Tokenizer.from_str(json.dumps(form))
    byte_level = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    words.pre_tokenizer = pre_tokenizers.Sequence([*splits[len(parts) :], byte_level])
    ranks = {pair: rank for rank, pair in enumerate(across)}

    def by_rule(text: str) -> list[str]:
        result = []
        for line, _ in lines.pre_tokenize_str(text):
            encoding = words.encode(line)
            sizes = Counter(encoding.word_ids)
            row = [
                (t, sizes[w] == 1) for t, w in zip(encoding.tokens, encoding.word_ids, strict=True)
            ]
            while True:
                pairs = [(a, b) for (a, one), (b, other) in pairwise(row) if one and other]
                if not (waiting := [ranks[pair] for pair in pairs if pair in ranks]):
                    break
                left, right = across[min(waiting)]
                joined: list[tuple[str, bool]] = []
                for token in row:
                    if joined and (joined[-1], token) == ((left, True), (right, True)):
                        joined[-1] = left + right, True
                    else:
                        joined.append(token)
                row = joined
            result += [token for token, _ in row]
        return result

    def spans(encoded: list[str]) -> set[tuple[int, int]]:
        return set(pairwise(accumulate(map(len, encoded), initial=0)))

    table, sums = {}, np.zeros(3)
    for kind, texts in kept.items():
        pairs = [(by_rule(text), boundless.encode(text).tokens) for text in texts]
        counts = [
            sum(len(text.encode()) for text in texts),
            sum(len(rule) for rule, _ in pairs),
            sum(len(spans(file) - spans(rule)) for rule, file in pairs),
        ]
        sums += counts
        table[kind] = [counts[0] / counts[1], 100 * counts[2] / sum(len(f) for _, f in pairs)]
    table["all"] = [
        sums[0] / sums[1],
        100 * sums[2] / sum(tokens(boundless, t) for t in kept.values()),
    ]
    print(f"BoundlessBPE chose {over} tokens over words")
    rows("", ["by the rule", "otherwise, %"], table, ".3f")


def compare_whole_words(mb: float, vocab: int) -> bool:
    """Whether whole words without merges give more bytes a token than plain BPE."""
    learned, kept = split_texts(mb)
    every = [text for texts in kept.values() for text in texts]
    documents = [(text, 1) for text in learned]
    results = {
        name: trained(documents, vocab, chosen)
        for name, chosen in (("plain", {}), ("whole words", {"whole_words": True}))
    }
    table = {
        kind: [sum(len(t.encode()) for t in texts) / tokens(r[0], texts) for r in results.values()]
        for kind, texts in [*kept.items(), ("all", every)]
    }
    print(f"\n{vocab} tokens")
    rows("bytes a token", list(results), table, ".3f")
    used = [uses(result[0], learned) for result in results.values()]
    few = int(used[0][-1]) // 4  # of the uses of the last token that plain BPE makes
    rare = [100 * float((counts[257:] < few).mean()) for counts in used]
    merges = [
        float(len(json.loads(result[0].to_str())["model"]["merges"])) for result in results.values()
    ]
    rows("tokens", list(results), {f"under {few} uses, %": rare, "merges": merges}, ".1f")
    costs = {"CPU seconds": [r[1] for r in results.values()]}
    rows("training", list(results), costs | {"MiB": [r[2] for r in results.values()]}, ".1f")
    return table["all"][1] > table["all"][0]


def uses(tokenizer: Any, texts: list[str]) -> np.ndarray:
    """How often each token comes up: int64[tokens]."""
    counts = np.zeros(tokenizer.get_vocab_size(), np.int64)
    for k in range(0, len(texts), 100):
        for encoding in tokenizer.encode_batch_fast(texts[k : k + 100], add_special_tokens=False):
            counts += np.bincount(encoding.ids, minlength=len(counts))
    return counts


def parallel_texts() -> dict[str, list[str]]:
    """The same sentences in every language."""
    (path,) = need("langid/langid-dev.jsonl.gz")
    sentences: dict[str, dict[int, str]] = {name: {} for name in LANGUAGES.values()}
    with gzip.open(path, "rt", encoding="utf-8") as file:
        for row in map(json.loads, file):
            if row["source"] == "NTREX-128" and row["lang_raw"] in sentences:
                sentences[row["lang_raw"]][row["line"]] = row["text"]
    lines = sorted(set.intersection(*(set(by_line) for by_line in sentences.values())))
    return {code: [sentences[name][k] for k in lines] for code, name in LANGUAGES.items()}


def texts_by_language(mb: float) -> dict[str, list[str]]:
    """Texts to learn from, as many as there are, up to so many megabytes of one."""
    import zstandard

    texts: dict[str, list[str]] = {code: [] for code in LANGUAGES}
    sizes = dict.fromkeys(LANGUAGES, 0)
    for path in need("longtext/*.jsonl.zst"):
        with path.open("rb") as file:
            lines = zstandard.ZstdDecompressor().stream_reader(file).read().splitlines()
        for row in map(json.loads, lines):
            code, whole = row["lang"], row["text"]
            for text in (whole[k : k + PIECE] for k in range(0, len(whole), PIECE)):
                if code in texts and sizes[code] < mb * 1e6 and not held_out(text):
                    texts[code].append(text)
                    sizes[code] += len(text.encode())
    return texts


def gini(values: list[float]) -> float:
    """The mean difference of two values, over twice the mean (Gini 1912)."""
    array = np.array(values)
    differences = np.abs(array[:, None] - array[None, :]).mean()
    return float(differences / (2 * array.mean()))


def compare_parity(mb: float, vocab: int) -> bool:
    """Whether parity-aware BPE gives smaller Gini coefficients than plain BPE."""
    texts, sentences = texts_by_language(mb), parallel_texts()
    dev = {code: some[::2] for code, some in sentences.items()}
    held = {code: some[1::2] for code, some in sentences.items()}
    groups = {code: number for number, code in enumerate(LANGUAGES)}
    plain = [(text, 1) for some in texts.values() for text in some]
    grouped = [(text, groups[code]) for code, some in texts.items() for text in some]
    results = {
        "plain": trained(plain, vocab, {}),
        "parity, bz2": trained(grouped, vocab, {"parity_by": "lang"}, groups),
        "parity, parallel": trained(grouped, vocab, {"parity_by": "lang"}, groups, dev),
    }
    table = {
        code: [tokens(result[0], some) / len(some) for result in results.values()]
        for code, some in held.items()
    }
    ginis = [gini([row[k] for row in table.values()]) for k in range(len(results))]
    size = sum(len(text.encode()) for some in held.values() for text in some)
    all_tokens = [sum(tokens(r[0], some) for some in held.values()) for r in results.values()]
    print(f"\nlearned from {sum(len(t.encode()) for t, _ in plain) / 1e6:.1f} MB; {vocab} tokens")
    rows("tokens a sentence", list(results), table, ".1f")
    rows("of all", list(results), {"Gini": ginis}, ".3f")
    rows("of all", list(results), {"bytes a token": [size / n for n in all_tokens]}, ".3f")
    costs = {"CPU seconds": [r[1] for r in results.values()]}
    rows("training", list(results), costs | {"MiB": [r[2] for r in results.values()]}, ".1f")
    return max(ginis[1:]) < ginis[0]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--mb", type=float, default=24, help="megabytes of text, all kinds")
    parser.add_argument("--vocab", type=int, default=32_000)
    options = parser.parse_args()
    more = compare_superwords(options.mb, options.vocab)
    more &= compare_whole_words(options.mb, options.vocab)
    fairer = compare_parity(options.mb / 8, options.vocab)
    sys.exit(not reached(more and fairer))


if __name__ == "__main__":
    main()
