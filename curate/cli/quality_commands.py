"""What `llmcurate quality train`, `evaluate` and `threshold` do and print."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from curate.errors import UsageError
from curate.terminal.progress import say

NARROW = 0.2  # of the middle 80 % of the scores: a model that has seen too little


def train(
    positive: list[str],
    negative: list[str],
    out: Path,
    preset: str,
    changed: dict[str, Any],
    samples: int,
    balance: bool,
    as_json: bool,
) -> None:
    """changed: fields of the preset's `Training` with another value."""
    from dataclasses import replace

    from curate.engines.local import call_apart
    from curate.scoring.language.native import need_library
    from curate.scoring.quality.inputs import Texts
    from curate.scoring.quality.train import PRESETS
    from curate.scoring.quality.train import train as run

    need_library()
    if preset not in PRESETS:
        raise UsageError(f"no preset {preset!r}; there are {', '.join(PRESETS)}")
    if out.exists() and not out.is_dir():
        raise UsageError(f"OUT {out} is a file; name a folder")
    good, rest = Texts(positive, as_json), Texts(negative, as_json)
    training = replace(PRESETS[preset], **changed)
    card = run(good, rest, out, training, call_apart, samples, balance, preset)
    if as_json:
        print(json.dumps(card, ensure_ascii=False))
        return
    trained = card["trained"]
    print(f"trained on {trained['hq']} good documents and {trained['cc']} others")
    held = card["held_out"]
    print(_figures(held) if held else "held out: nothing of one of the sets, so no figures")
    if held and held["deciles"][0]["least"] - held["deciles"][-1]["most"] < NARROW:
        print(
            "its scores lie close together and are no probabilities: for a threshold by number,"
            " train on more documents, with more --epochs or a higher --lr"
        )
    print(f"wrote {out / card['file']} ({card['bytes']:,} bytes) and {out / 'card.json'}")


def evaluate(
    model: Path,
    positive: list[str],
    negative: list[str],
    out: Path | None,
    label: str | None,
    as_json: bool,
) -> None:
    """Prints the figures; with OUT also evaluate.json and evaluate.html."""
    from curate.inspect.evaluate.quality import evaluate as run
    from curate.inspect.evaluate.quality import write

    found = run(model, positive, negative, label, as_json)
    if out is not None:
        for path in write(found, out):
            say(f"wrote {path}", as_json)
    print(json.dumps(found, ensure_ascii=False) if as_json else text(found))


def threshold(
    model: Path, inputs: list[str], keep: list[float], label: str | None, as_json: bool
) -> None:
    """Prints the thresholds that keep the given fractions of a corpus."""
    from curate.scoring.quality.inputs import Texts, score_all
    from curate.scoring.quality.measures import threshold_of
    from curate.scoring.quality.model import Classifier

    for fraction in keep:
        if not 0 < fraction <= 1:
            raise UsageError(f"--keep {fraction:g}: a fraction lies above 0 and is at most 1")
    texts = Texts(inputs, as_json)
    scores = score_all(Classifier(model, label), texts)
    rows = []
    for fraction in keep:
        limit = threshold_of(scores, fraction)
        kept = int((scores >= limit).sum())
        rows.append({"keep": fraction, "threshold": limit, "kept": kept})
    if as_json:
        print(json.dumps({**texts.tally, "documents": len(scores), "thresholds": rows}))
        return
    for row in rows:
        share = row["kept"] / len(scores)
        print(
            f"--threshold {row['threshold']!r} keeps {row['kept']} of {len(scores)} documents"
            f" ({share:.2%})"
        )


def text(found: dict[str, Any]) -> str:
    """An evaluation for a terminal."""
    lines = [_figures(found), "  decile of scores           documents  positive"]
    for row in found["deciles"]:
        span = f"{row['least']:.6f} to {row['most']:.6f}"
        share = row["good"] / row["documents"]
        lines.append(f"  {span:<26}{row['documents']:>10}{share:>10.1%}")
    lines.append("  kept of the negatives       threshold  of the positives")
    for row in found["thresholds"]:
        lines.append(f"  {row['kept']:<26.2%}{row['threshold']:>11.6f}{row['good_kept']:>18.2%}")
    return "\n".join(lines)


def _figures(found: dict[str, Any]) -> str:
    n = found["documents"]
    return (
        f"{n['positive']} positive, {n['negative']} negative: ROC AUC {found['roc_auc']:.4f},"
        f" average precision {found['average_precision']:.4f}, calibration error"
        f" {found['calibration']['error']:.4f}"
    )
