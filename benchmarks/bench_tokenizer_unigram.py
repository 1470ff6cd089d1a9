"""Learning a Unigram: ours against SentencePiece's trainer, on the same documents.

    python benchmarks/bench_tokenizer_unigram.py [--mb N] [--of English|Thai|Chinese|code|all]

Each in a process of its own that makes the same documents first, without every 25th, which is held
out. Seconds are CPU time of all threads: for ours of reading and learning, for SentencePiece of
learning alone, from sentences in a file. Peak memory is what the process grew by. Exit status 1
where fewer than 99.5 % of the pieces are the same, a score of these differs by more than 0.01 for
more than one in 1,000, or ours takes more than a quarter of the time.

It also prints what other ways through the same pieces than the best score would give, by a plain
search: the fewest tokens, of equals the best score (Uzan et al. 2024), and the best mean score a
token, which is scores normalised by length.
"""

from __future__ import annotations

import argparse
import json
import re
import sys
import time
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
from benchmarks.shared_texts import last_json, peak_mib, reached, sized
from benchmarks.tokenizer_texts import KINDS, documents

TIME, SAME, CLOSE, MOST_FAR = 0.25, 0.995, 0.01, 0.001
HELD_OUT = 25
LONGEST = 16  # characters of a piece
SEGMENT = re.compile(r" *[^ \n\t]+| +|[\n\t]")  # no piece reaches over one
WAYS_BYTES = sized(300_000, 3000)  # of held-out text that is searched


def learn(who: str, texts: list[str], vocab: int) -> tuple[float, list[tuple[str, float]]]:
    """CPU seconds, and the pieces with their scores."""
    from tests.tokenize_kit.learn.peers import SentencePieceLearner
    from tokenize_kit.formats.forms import BYTE_PIECES
    from tokenize_kit.learn.bpe import choose_characters
    from tokenize_kit.learn.unigram import PRINTABLE_ASCII, UNKNOWN_PIECE
    from tokenize_kit.learn.unigram_pieces import PieceLearner

    weighed = ((text, 1) for text in texts)
    learner: PieceLearner | SentencePieceLearner
    begin = time.process_time()
    if who == "ours":
        learner = PieceLearner(weighed)
    else:
        learner = SentencePieceLearner(weighed)
        begin = time.process_time()
    room = vocab - len(BYTE_PIECES) - 4
    kept, _ = choose_characters(learner.characters, room - len(PRINTABLE_ASCII))
    symbols = [UNKNOWN_PIECE, "<|endoftext|>", *BYTE_PIECES]
    pieces = learner.learn(sorted(kept), PRINTABLE_ASCII, symbols, room)
    return time.process_time() - begin, pieces


def one(who: str, kind: str, mb: float, vocab: int) -> None:
    """Learns and prints seconds, MiB, held-out bytes a token, and the pieces."""
    from tokenize_kit.learn.unigram import UNKNOWN_PIECE, model_of, to_tokenizer_json

    learn(who, ["warm up, warm up ", "the dog, the cat, the hat " * 9], 400)
    passages = documents(kind, mb * 1e6)
    texts = [text for k, text in enumerate(passages) if k % HELD_OUT]
    held = passages[::HELD_OUT]
    before = peak_mib()
    seconds, pieces = learn(who, texts, vocab)
    grown = peak_mib() - before
    tokenizer = to_tokenizer_json(model_of(pieces, [UNKNOWN_PIECE, "<|endoftext|>"]))
    tokens = sum(len(encoding.ids) for encoding in tokenizer.encode_batch_fast(held))
    size = sum(len(text.encode()) for text in texts)
    share = sum(len(text.encode()) for text in held) / tokens
    ways = other_ways(dict(pieces), held) if who == "ours" else ""
    print(json.dumps([seconds, grown, size / 1e6, share, pieces, ways]))


def best_way(segment: str, scores: dict[str, float], few: int, shift: float) -> tuple[int, float]:
    """(tokens, score) of the best way: of most score less `shift` a token, with `few` of the fewest
    tokens first."""
    ways: list[tuple[int, float, int, float]] = [(0, 0.0, 0, 0.0)]
    for z in range(1, len(segment) + 1):
        options = []
        for a in range(max(0, z - LONGEST), z):
            piece = segment[a:z]
            if piece in scores or z - a == 1:
                parts = 1 if piece in scores else len(piece.encode())  # in bytes
                score = scores.get(piece, -100.0)
                tokens, total = ways[a][2] + parts, ways[a][3] + score
                options.append((-few * tokens, total - shift * tokens, tokens, total))
        ways.append(max(options))
    return ways[-1][2:]


def best_mean(segment: str, scores: dict[str, float]) -> tuple[int, float]:
    """(tokens, score) of the way whose score a token is best (Dinkelbach 1967)."""
    mean = 0.0
    while True:
        tokens, score = best_way(segment, scores, 0, mean)
        if abs(score / tokens - mean) < 1e-9:
            return tokens, score
        mean = score / tokens


def other_ways(scores: dict[str, float], texts: list[str]) -> str:
    """Bytes a token on some of the texts by three ways."""
    size, counts = 0, [0, 0, 0]
    memory: dict[str, list[int]] = {}
    for text in texts:
        if size > WAYS_BYTES:
            break
        size += len(text.encode())
        for segment in SEGMENT.findall(text):
            if segment not in memory:
                ways = [best_way(segment, scores, few, 0.0) for few in (0, 1)]
                memory[segment] = [way[0] for way in (*ways, best_mean(segment, scores))]
            counts = [sum(pair) for pair in zip(counts, memory[segment], strict=True)]
    best, few, mean = (size / count for count in counts)
    return f"  by best score {best:.3f}, fewest tokens {few:.3f}, best mean score {mean:.3f}"


def compare(kind: str, mb: float, vocab: int) -> bool:
    result: dict[str, Any] = {}
    for who in ("ours", "SentencePiece"):
        command = [sys.executable, __file__, "--one", who, "--of", kind]
        result[who] = last_json([*command, "--mb", str(mb), "--vocab", str(vocab)])
        seconds, grown, size, share, *_ = result[who]
        print(
            f"{kind}, {size:.1f} MB, {vocab:,} tokens, {who}: {seconds:.2f} CPU s, "
            f"{grown:.0f} MiB, {share:.4f} bytes a token held out"
        )
    ours, theirs = result["ours"], result["SentencePiece"]
    own, other = dict(ours[4]), dict(theirs[4])
    both = own.keys() & other.keys()
    gaps = [abs(own[name] - other[name]) for name in both]
    same, far = len(both) / len(other), sum(gap > CLOSE for gap in gaps) / len(gaps)
    ratio = theirs[0] / ours[0]
    print(
        f"  {ratio:.1f} times as fast, memory {ours[1] / max(theirs[1], 1):.2f}; {same:.2%} of "
        f"{len(other):,} pieces the same, scores of these differ by {sum(gaps) / len(gaps):.1e} in "
        f"the mean, {max(gaps):.1e} at most, {far:.3%} by more than {CLOSE}"
    )
    print(ours[5], flush=True)
    return same >= SAME and far <= MOST_FAR and ratio * TIME >= 1


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--mb", type=float, default=50)
    parser.add_argument("--of", choices=KINDS)
    parser.add_argument("--vocab", type=int, default=32_000)
    parser.add_argument("--one", choices=("ours", "SentencePiece"), help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.one:
        return one(options.one, options.of, options.mb, options.vocab)
    kinds = [options.of] if options.of else ["English", "Thai", "Chinese", "code", "all"]
    good = [compare(kind, options.mb, options.vocab) for kind in kinds]
    sys.exit(not reached(all(good)))


if __name__ == "__main__":
    main()
