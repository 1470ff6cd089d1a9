"""What a finished run says of itself: a sample of its text, and ``train.json``."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from train.accounting import flops_per_token, parameters
from train.data.sampler import Sampler
from train.evaluate import HeldOut
from train.files import encode_json, write_atomic
from train.generate import continue_text, load_tokenizer
from train.metrics import read_lines
from train.model.decoder import Decoder
from train.plan import Plan


def summarise(
    plan: Plan,
    out: Path,
    sampler: Sampler,
    model: Decoder,
    *,
    scores: HeldOut,
    held_out: int,
    tokens: int,
) -> dict[str, Any]:
    """Sample a text, write ``sample.txt`` and ``train.json``; ``held_out`` counts documents."""
    settings, device = plan.train, model.embedding.weight.device
    lines = read_lines(out / "metrics.jsonl")
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
    attended = (settings.context + 1) / 2
    summary = {
        "parameters": parameters(plan.model),
        "flops_per_token": flops_per_token(plan.model, attended),
        "steps": settings.steps,
        "tokens": tokens,
        "epochs": settings.steps * settings.rows / sampler.rows.count,
        "first_loss": lines[0]["loss"] if lines else None,
        "last_loss": lines[-1]["loss"] if lines else None,
        "held_out_loss": scores.loss,
        "bits_per_byte": scores.bits_per_byte,
        "held_out_documents": held_out,
        "scored_documents": scores.documents,
        "scored_tokens": scores.tokens,
        "train_documents": sum(len(rows.documents) for rows in sampler.rows.sources),
        "train_tokens": sampler.rows.tokens,
        "device": device.type,
        "checkpoint": f"checkpoints/step-{settings.steps:07d}",
        "sample": sample,
        "plan": plan.to_json(),
        "timing": {"seconds": seconds, "tokens_per_second": tokens / max(seconds, 1e-9)},
    }
    write_atomic(out / "train.json", encode_json(summary))
    return summary
