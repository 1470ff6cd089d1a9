"""Continuing 32 prompts on one core, beside transformers on our export of the same model.

    python benchmarks/bench_generate.py     # --rounds N

A decoder of the preset `30m` with spread weights and a vocabulary of 32,000, float32. The prompts
are beginnings of English documents, of 5 to 78 tokens; each gets 64 new tokens, the likeliest ones
or drawn (temperature 0.8, top-k 50). Ours is `train.generate.complete` as `llmcurate generate`
calls it, transformers' is `generate` on one batch padded in front; both read and write text. The
two in turn, in processes of their own, one thread each; medians of the processes' CPU seconds,
after a first pass that is not counted. Exit status 1 where ours is slower, or the likeliest texts
differ in any token.
"""

from __future__ import annotations

import argparse
import json
import operator
import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
from benchmarks.shared_texts import last_json, novels, peak_mib, reached, sized

PRESET, VOCAB, PROMPTS, NEW = sized(("30m", 32_000, 32, 64), ("tiny", 1000, 8, 16))
TEMPERATURE, TOP_K = 0.8, 50
WAYS = ("greedy", "sampled")
TARGET = 1.0


def make(folder: Path) -> None:
    """A run's folder, its export and the prompts."""
    from tests.train.loop.small_runs import build, trained
    from tokenize_kit.learn.training import train_tokenizer
    from train.hf.export import export
    from train.model.presets import preset

    texts = list(novels())
    train_tokenizer(texts, folder / "tokenizer", vocab=VOCAB)
    model = build(preset(PRESET, vocab=VOCAB))
    (folder / "run").mkdir()
    trained(folder / "run", model, folder / "tokenizer" / "tokenizer.json")
    export(folder / "run", folder / "hf")
    words = [texts[n % len(texts)].split()[n:] for n in range(PROMPTS)]
    prompts = [" ".join(text[: 3 + 2 * n]) for n, text in enumerate(words)]
    (folder / "prompts.json").write_text(json.dumps(prompts), encoding="utf-8")


def ours(folder: Path) -> dict[str, Any]:
    from train.generate import GREEDY, Sampling, complete, load

    prompts = json.loads((folder / "prompts.json").read_bytes())
    model, tokenizer = load(folder / "run")
    model.special = replace(model.special, ends=())  # every text gets all its tokens
    drawn = Sampling(temperature=TEMPERATURE, top_k=TOP_K)

    def texts(how: str, count: int) -> list[str]:
        sampling = GREEDY if how == "greedy" else drawn
        done = complete(model, tokenizer, prompts, max_tokens=count, sampling=sampling, seed=0)
        return [completion.text for completion in done]

    return timed(texts)


def transformers(folder: Path) -> dict[str, Any]:
    import torch
    from transformers import AutoModelForCausalLM, AutoTokenizer

    prompts = json.loads((folder / "prompts.json").read_bytes())
    model = AutoModelForCausalLM.from_pretrained(folder / "hf").eval()
    tokenizer = AutoTokenizer.from_pretrained(folder / "hf", padding_side="left")
    if tokenizer.pad_token is None:
        tokenizer.pad_token = tokenizer.eos_token
    drawn = {"do_sample": True, "temperature": TEMPERATURE, "top_k": TOP_K}
    always = {"eos_token_id": None, "pad_token_id": tokenizer.pad_token_id}

    def texts(how: str, count: int) -> list[str]:
        batch = tokenizer(prompts, return_tensors="pt", padding=True)
        length = batch.input_ids.shape[1]
        sampling = {"do_sample": False} if how == "greedy" else drawn
        with torch.inference_mode():
            ids = model.generate(**batch, max_new_tokens=count, **always, **sampling)
        return tokenizer.batch_decode(ids[:, length:], skip_special_tokens=True)

    return timed(texts)


def timed(texts: Callable[[str, int], list[str]]) -> dict[str, Any]:
    """CPU seconds and texts for each way to choose tokens."""
    figures: dict[str, Any] = {}
    for how in WAYS:
        texts(how, 2)
        began = time.process_time()
        written = texts(how, NEW)
        figures[how] = {"seconds": time.process_time() - began, "texts": written}
    return {**figures, "peak_mib": peak_mib()}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--one", nargs=2, help="measure one and print it")
    parser.add_argument("--rounds", type=int, default=sized(5, 1))
    asked = parser.parse_args()
    if asked.one:
        import torch

        torch.set_num_threads(1)
        who, folder = asked.one
        print(json.dumps((ours if who == "ours" else transformers)(Path(folder))))
        return 0
    results: dict[str, list[dict[str, Any]]] = {"ours": [], "transformers": []}
    with tempfile.TemporaryDirectory() as folder:
        make(Path(folder))
        for _ in range(asked.rounds):
            for who, figures in results.items():
                figures.append(last_json([sys.executable, __file__, "--one", who, folder]))
    ratios = []
    for how in WAYS:
        own, theirs = (
            PROMPTS * NEW / statistics.median(each[how]["seconds"] for each in figures)
            for figures in results.values()
        )
        ratios.append(own / theirs)
        speeds = f"ours {own:,.0f} tokens/s of CPU, transformers {theirs:,.0f}"
        print(f"{how}: {speeds}, ratio {ratios[-1]:.2f}")
    own, theirs = (figures[0]["peak_mib"] for figures in results.values())
    print(f"peak memory: ours {own:,.0f} MiB, transformers {theirs:,.0f}")
    first, second = (figures[0]["greedy"]["texts"] for figures in results.values())
    same = sum(map(operator.eq, first, second))
    print(f"likeliest texts: {same} of {PROMPTS} equal")
    print(f"least ratio {min(ratios):.2f}, wanted {TARGET:.2f}")
    return int(same < PROMPTS or not reached(min(ratios) >= TARGET))


if __name__ == "__main__":
    sys.exit(main())
