"""fastText's features in plain Python, from its source's text, for small models."""

from __future__ import annotations

import re

from curate.scoring.fasttext.classifier import Classifier


def fnv(data: bytes) -> int:
    state = 2166136261
    for byte in data:
        signed = byte if byte < 128 else byte - 256
        state = ((state ^ (signed & 0xFFFFFFFF)) * 16777619) & 0xFFFFFFFF
    return state


def tokens(line: bytes) -> list[bytes]:
    first, newline, _ = line.partition(b"\n")
    words = [word for word in re.split(rb"[ \r\t\v\f\0]", first) if word]
    if b"</s>" in words:
        return words[: words.index(b"</s>") + 1]
    return words + [b"</s>"] * bool(newline)


def entries(classifier: Classifier) -> list[bytes]:
    words = classifier._model.words
    return [bytes(words.data[a:b]) for a, b in zip(words.starts, words.ends, strict=True)]


def features(classifier: Classifier, line: bytes) -> list[tuple[int, str, str]]:
    """(row, kind, text) of a line's features; the model has no pruned n-grams."""
    header, vocabulary = classifier.header, {w: i for i, w in enumerate(entries(classifier))}
    rows: list[tuple[int, str, str]] = []
    hashes: list[tuple[int, bytes]] = []
    for word in tokens(line):
        entry = vocabulary.get(word, -1)
        if entry >= header.words or (entry < 0 and word.startswith(b"__label__")):
            continue
        hashes.append((fnv(word), word))
        if entry >= 0:
            rows.append((entry, "word", word.decode("utf-8", "replace")))
        if word == b"</s>":
            continue
        chars = re.findall(rb"[^\x80-\xbf][\x80-\xbf]*", b"<" + word + b">")
        for i in range(len(chars)):
            for n in range(max(1, header.minn), header.maxn + 1):
                gram = b"".join(chars[i : i + n])
                if i + n > len(chars) or (n == 1 and i in (0, len(chars) - 1)):
                    continue
                row = header.words + fnv(gram) % header.buckets
                rows.append((row, "n-gram", gram.decode("utf-8", "replace")))
    for i in range(len(hashes)):
        signed = [h - (h >> 31 << 32) for h, _ in hashes[i : i + header.word_ngrams]]
        state = signed[0] % 2**64
        for n in range(1, len(signed)):
            state = (state * 116049371 + signed[n]) % 2**64
            words = b" ".join(word for _, word in hashes[i : i + n + 1])
            row = header.words + state % header.buckets
            rows.append((row, "words", words.decode("utf-8", "replace")))
    return rows
