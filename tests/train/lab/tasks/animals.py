"""A small labelled data set, and trainings on it."""

from __future__ import annotations

import json
import random
from pathlib import Path

from tests.train.conftest import WORDS
from train.config import TrainConfig
from train.objective_settings import Task

ANIMALS = ("cat", "dog", "bird")


def write(path: Path, lines: list[dict]) -> Path:
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))
    return path


def animals(folder: Path, count: int) -> dict[str, Path]:
    """Tasks decided by one word: is there a cat, which words are animals, which word is before
    red, which of three texts has a cat.
    """
    draw = random.Random(0)
    lists = [draw.choices(WORDS, k=draw.randint(3, 12)) for _ in range(count)]
    found: dict[str, list[dict]] = {"classify": [], "token": [], "span": [], "choice": []}
    for words in lists:
        label = "some" if "cat" in words else "none"
        found["classify"].append({"text": " ".join(words), "label": label})
        marks = ["B-ANIMAL" if word in ANIMALS else "O" for word in words]
        found["token"].append({"tokens": words, "labels": marks})
        rest = [word for word in words if word not in (words[0], "red")]
        text = " ".join([*rest, words[0], "red"])
        start = len(text) - len(f"{words[0]} red")
        span = {"question": "before red", "text": text, "answer": words[0], "start": start}
        found["span"].append(span)
        right, others = draw.randint(0, 2), [word for word in WORDS if word != "cat"]
        choices = [" ".join(draw.choices(others, k=3)) for _ in range(3)]
        choices[right] += " cat"
        found["choice"].append({"context": " ".join(words[:5]), "choices": choices, "label": right})
    return {kind: write(folder / f"{kind}.jsonl", lines) for kind, lines in found.items()}


def settings(kind: str, shard_folder: Path, **changes) -> TrainConfig:
    given = {"steps": 60, "rows": 4, "context": 33, "warmup": 3, "held_out": 0.2, "device": "cpu"}
    given |= {"tokenizer": str(shard_folder / "tokenizer.json"), "checkpoint_every": 25}
    return TrainConfig(**given | changes, objective=Task(kind=kind))
