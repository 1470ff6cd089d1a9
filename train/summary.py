"""What a finished run says of itself: a sample of its text, and ``train.json``."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import Any

from train.accounting import flops_per_token, parameters
from train.data.feed import Feed
from train.evaluate import HeldOut
from train.files import encode_json, write_atomic
from train.generate import continue_text, load_tokenizer
from train.metrics import read_lines
from train.model.decoder import Decoder
from train.plan import Plan


def summarise(
    plan: Plan,
    out: Path,
    feed: Feed,
    model: Decoder,
    *,
    scores: HeldOut,
    tokens: int,
) -> dict[str, Any]:
    """Sample a text, write ``sample.txt`` and ``train.json``."""
    settings, device = plan.train, model.embedding.weight.device
    lines = read_lines(out / "metrics.jsonl")
    sample = None
    if feed.tokenizer is not None:  # without one, ids are all there is
        sample = continue_text(
            model.eval(),
            load_tokenizer(out / "tokenizer.json"),
            "",
            max_tokens=min(200, plan.model.context),
            temperature=0.8,
            top_k=50,
            seed=settings.seed,
        )
        write_atomic(out / "sample.txt", (sample + "\n").encode("utf-8"))
    seconds = sum(line["timing"]["seconds"] for line in lines)
    data = feed.summary()
    sources = data["sources"].values()
    lengths = [(stage.steps * stage.rows * stage.context, stage.context) for stage in feed.stages]
    flops = sum(n * flops_per_token(plan.model, context) for n, context in lengths)
    summary = {
        "parameters": parameters(plan.model),
        "flops_per_token": flops / sum(n for n, _ in lengths),
        "steps": settings.steps,
        "tokens": tokens,
        "epochs": sum(source["tokens"] for source in sources)
        / max(1, sum(source["unique_tokens"] for source in sources)),
        "first_loss": lines[0]["loss"] if lines else None,
        "last_loss": lines[-1]["loss"] if lines else None,
        "held_out_loss": scores.loss,
        "bits_per_byte": scores.bits_per_byte,
        "held_out_documents": sum(source["held_out_documents"] for source in sources),
        "held_out_sources": {name: asdict(score) for name, score in scores.sources.items()},
        "scored_documents": scores.documents,
        "scored_tokens": scores.tokens,
        "train_documents": sum(source["documents"] for source in sources),
        "train_tokens": sum(source["unique_tokens"] for source in sources),
        "data": data,
        "device": device.type,
        "checkpoint": f"checkpoints/step-{settings.steps:07d}",
        "sample": sample,
        "plan": plan.to_json(),
        "timing": {"seconds": seconds, "tokens_per_second": tokens / max(seconds, 1e-9)},
    }
    write_atomic(out / "train.json", encode_json(summary))
    return summary
