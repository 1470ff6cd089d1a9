"""The chunked loss beside the plain one: peak memory and time of a forward and backward pass.

Each runs in a process of its own, in turn, on the same features; memory is what the process's peak
grows by. Target: an eighth of the tokens at a time takes under a third of the memory, at most 1.6
times the time, and gives the same loss within 1e-5 of it.
"""

from __future__ import annotations

import argparse
import json
import resource
import statistics
import subprocess
import sys
import time

TOKENS, HIDDEN, VOCAB = 8192, 128, 32_000
MOST_MEMORY, MOST_TIME, MOST_DIFFERENCE = 1 / 3, 1.6, 1e-5


def measure(chunk: int) -> dict[str, float]:
    """A pass over the same numbers, with logits of ``chunk`` tokens at a time."""
    import torch
    from torch import nn

    from train.losses import loss_sums

    torch.set_num_threads(1)
    generator = torch.Generator().manual_seed(0)
    features = torch.randn(TOKENS, HIDDEN, generator=generator).requires_grad_()
    head = nn.Linear(HIDDEN, VOCAB, bias=False)
    head.weight.data = torch.randn(VOCAB, HIDDEN, generator=generator) * HIDDEN**-0.5
    targets = torch.randint(VOCAB, (TOKENS,), generator=generator)
    few = slice(0, 8)  # what the first call loads is not the loss's memory
    loss_sums(features[few], targets[few], head, chunk=8, squares=False)[0].backward()
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    began = time.perf_counter()
    nats, _ = loss_sums(features, targets, head, chunk=chunk, squares=False)
    nats.backward()
    seconds = time.perf_counter() - began
    after = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    mib = (after - before) / (1 << 20 if sys.platform == "darwin" else 1 << 10)
    return {"loss": float(nats) / TOKENS, "seconds": seconds, "mib": mib}


def run(chunk: int) -> dict[str, float]:
    command = [sys.executable, __file__, "--chunk", str(chunk)]
    done = subprocess.run(command, check=True, capture_output=True, text=True)
    found: dict[str, float] = json.loads(done.stdout)
    return found


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--chunk", type=int, help="measure one and print it")
    parser.add_argument("--rounds", type=int, default=3)
    asked = parser.parse_args()
    if asked.chunk:
        print(json.dumps(measure(asked.chunk)))
        return 0
    found: dict[int, list[dict[str, float]]] = {TOKENS: [], TOKENS // 8: []}
    for _ in range(asked.rounds):
        for chunk, rounds in found.items():
            rounds.append(run(chunk))
    medians = {
        chunk: {key: statistics.median(one[key] for one in rounds) for key in rounds[0]}
        for chunk, rounds in found.items()
    }
    print(f"{TOKENS} tokens, hidden {HIDDEN}, vocabulary {VOCAB}, medians of {asked.rounds}")
    for chunk, one in medians.items():
        print(f"{chunk:6} tokens at a time: {one['mib']:7.0f} MiB, {one['seconds']:6.2f} s")
    plain, chunked = medians[TOKENS], medians[TOKENS // 8]
    memory, slower = chunked["mib"] / plain["mib"], chunked["seconds"] / plain["seconds"]
    difference = abs(chunked["loss"] / plain["loss"] - 1)
    print(f"memory x {memory:.2f}, time x {slower:.2f}, loss differs by {difference:.1e}")
    kept = memory < MOST_MEMORY and slower <= MOST_TIME and difference <= MOST_DIFFERENCE
    return 0 if kept else 1


if __name__ == "__main__":
    sys.exit(main())
