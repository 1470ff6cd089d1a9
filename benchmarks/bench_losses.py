"""The loss beside PyTorch's: peak memory and CPU time of a forward and backward pass.

Each runs in a process of its own, in turn, on the same features; memory is what the process's peak
grows by. PyTorch's is a linear layer and `cross_entropy` over all logits at once. Target: under a
quarter of the memory, at most 0.9 times the time, and the same loss within 1e-5 of it.
"""

from __future__ import annotations

import argparse
import json
import resource
import statistics
import subprocess
import sys
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
from benchmarks.shared_texts import reached, sized

TOKENS, HIDDEN, VOCAB = sized(8192, 512), 128, sized(32_000, 1000)
MOST_MEMORY, MOST_TIME, MOST_DIFFERENCE = 1 / 4, 0.9, 1e-5


def measure(ours: bool) -> dict[str, float]:
    """A pass over the same numbers."""
    import torch
    import torch.nn.functional as F

    from train.objectives.losses import chunk_of, loss_sums

    def loss(features: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
        if ours:
            return loss_sums(features, targets, weight, None, chunk=chunk_of(VOCAB))[0]
        return F.cross_entropy(F.linear(features, weight), targets, reduction="sum")

    torch.set_num_threads(1)
    generator = torch.Generator().manual_seed(0)
    features = torch.randn(TOKENS, HIDDEN, generator=generator).requires_grad_()
    weight = torch.randn(VOCAB, HIDDEN, generator=generator).mul_(HIDDEN**-0.5).requires_grad_()
    targets = torch.randint(VOCAB, (TOKENS,), generator=generator)
    loss(features[:8], targets[:8]).backward()  # what it loads is not the loss's memory
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    began = time.process_time()
    nats = loss(features, targets)
    nats.backward()
    seconds = time.process_time() - began
    after = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    mib = (after - before) / (1 << 20 if sys.platform == "darwin" else 1 << 10)
    return {"loss": float(nats) / TOKENS, "seconds": seconds, "mib": mib}


def run(who: str) -> dict[str, float]:
    command = [sys.executable, __file__, "--one", who]
    done = subprocess.run(command, check=True, capture_output=True, text=True)
    figures: dict[str, float] = json.loads(done.stdout)
    return figures


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--one", choices=["ours", "torch"], help="measure one and print it")
    parser.add_argument("--rounds", type=int, default=3)
    asked = parser.parse_args()
    if asked.one:
        print(json.dumps(measure(asked.one == "ours")))
        return 0
    results: dict[str, list[dict[str, float]]] = {"torch": [], "ours": []}
    for _ in range(asked.rounds):
        for who, rounds in results.items():
            rounds.append(run(who))
    medians = {
        who: {key: statistics.median(figures[key] for figures in rounds) for key in rounds[0]}
        for who, rounds in results.items()
    }
    print(f"{TOKENS} tokens, hidden {HIDDEN}, vocabulary {VOCAB}, medians of {asked.rounds}")
    for who, figures in medians.items():
        print(f"{who:6} {figures['mib']:7.0f} MiB, {figures['seconds']:6.2f} s of CPU")
    theirs, own = medians["torch"], medians["ours"]
    memory, slower = own["mib"] / theirs["mib"], own["seconds"] / theirs["seconds"]
    difference = abs(own["loss"] / theirs["loss"] - 1)
    print(f"memory x {memory:.2f}, time x {slower:.2f}, loss differs by {difference:.1e}")
    kept = reached(memory < MOST_MEMORY and slower <= MOST_TIME) and difference <= MOST_DIFFERENCE
    return 0 if kept else 1


if __name__ == "__main__":
    sys.exit(main())
