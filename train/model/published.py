"""The training of published models, as their sources state it. Values that no source states are
left out; training then keeps its defaults. train/lab/presets has the values of encoders and of
encoder-decoders.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

AMOUNTS = ("rows", "context", "steps")
SIZED = frozenset({*AMOUNTS, "stages"})  # who gives one of these has decided the size of the run
OF_OPTIMIZER = ("lr", "beta1", "beta2", "eps", "weight_decay")  # belong to one optimizer
SHORTEST = 10  # steps for each step of warm-up, if the source states no number of steps


@dataclass(frozen=True, kw_only=True)
class Published:
    """The training settings of a model, as a source states them; None for settings it does not
    state. ``rows``: sequences per step. ``steps``: the steps of the whole run. ``note``: how the
    source's training differs from these settings."""

    source: str
    note: str = ""
    optimizer: str | None = None
    lr: float | None = None
    schedule: str | None = None
    lr_floor: float | None = None
    warmup: int | None = None
    rows: int | None = None
    context: int | None = None
    steps: int | None = None
    beta1: float | None = None
    beta2: float | None = None
    eps: float | None = None
    weight_decay: float | None = None
    clip: float | None = None

    @property
    def values(self) -> dict[str, Any]:
        """The stated settings by name."""
        own = {name: getattr(self, name) for name in SETTINGS}
        return {name: value for name, value in own.items() if value is not None}

    @property
    def tokens(self) -> int | None:
        """The tokens that the whole run reads, rows x context x steps; None if one is unknown."""
        if self.rows is None or self.context is None or self.steps is None:
            return None
        return self.rows * self.context * self.steps

    def fill(self, given: Mapping[str, Any], *, usual_steps: int, changed: bool) -> dict[str, Any]:
        """Return the published settings to add to the ``given`` settings. If an optimizer is given,
        the published settings in ``OF_OPTIMIZER`` are left out. If the model is ``changed`` or a
        setting in ``SIZED`` is given, rows, context and steps are left out. If the result has no
        steps, the run takes the given steps or ``usual_steps``; the result's warm-up is then at
        most the share of the run that it is in the paper."""
        values = {name: value for name, value in self.values.items() if name not in given}
        if "optimizer" in given:
            values = {name: value for name, value in values.items() if name not in OF_OPTIMIZER}
        if changed or not SIZED.isdisjoint(given):
            values = {name: value for name, value in values.items() if name not in AMOUNTS}
        steps = values.get("steps") or given.get("steps", usual_steps)
        if "warmup" in values and "steps" not in values and isinstance(steps, int):
            share = values["warmup"] / self.steps if self.steps else 1 / SHORTEST
            values["warmup"] = min(values["warmup"], max(1, round(share * steps)))
        return values

    def line(self, name: str, used: Mapping[str, Any]) -> str:
        """Return a line that says which settings ``used`` by a run are the published ones."""
        same, other = [], []
        for key, value in self.values.items():
            if used[key] == value:
                same.append(f"{key} {_short(value)}")
            else:
                other.append(f"{key} {_short(used[key])} ({_short(value)})")
        parts = {
            "as published": ", ".join(same) or "nothing",
            "other than published": ", ".join(other),
            "not stated there": self.unstated,
            "note": self.note,
            "for a trial with small batches": "give steps" if used["rows"] == self.rows else "",
        }
        said = "; ".join(f"{key}: {text}" for key, text in parts.items() if text)
        return f"{name} ({self.source}), {said}"

    @property
    def unstated(self) -> str:
        return ", ".join(name for name in SETTINGS if name not in self.values)

    def table(self) -> list[tuple[str, str]]:
        """Return the source, the stated settings, and what is not stated, as (name, text)."""
        ends = [("not stated there", self.unstated), ("note", self.note)]
        stated = [(name, _short(value)) for name, value in self.values.items()]
        return [("source", self.source), *stated, *(row for row in ends if row[1])]


SETTINGS = [field.name for field in dataclasses.fields(Published)][2:]


def _short(value: Any) -> str:
    if isinstance(value, float):
        return f"{value:.4g}"
    return f"{value:,}" if isinstance(value, int) else str(value)


ROW = 2048  # tokens, of the models that follow GPT-3
_375M = 375_000_000 // ROW  # rows of a warm-up over 375 million tokens
GPT3 = Published(
    source="Brown et al. 2020, table 2.1 and appendix B",
    note="there the rate fell within 260 of the 300 billion tokens, and the batch grew",
    optimizer="adamw",
    schedule="cosine",
    lr_floor=0.1,
    context=ROW,
    beta1=0.9,
    beta2=0.95,
    weight_decay=0.1,
    clip=1.0,
)


def gpt3(lr: float, rows: int) -> Published:
    """Return GPT-3's training. The paper has 0.5, 1, 2 and 3.2 million tokens in a step, here 256,
    512, 1,024 and 1,568 rows."""
    steps, warmup = 300_000_000_000 // (rows * ROW), _375M // rows
    return replace(GPT3, lr=lr, rows=rows, steps=steps, warmup=warmup, eps=1e-8)


def opt(lr: float, rows: int, warmup: int | None = None) -> Published:
    return replace(
        GPT3,
        source="Zhang et al. 2022, table 1 and section 2.2",
        note="",
        lr=lr,
        schedule="linear",
        rows=rows,
        steps=300_000_000_000 // (rows * ROW),
        warmup=warmup or _375M // rows,
    )


def bloom(lr: float, rows: int, tokens: int = 341, least: float = 1e-5) -> Published:
    """Return BLOOM's training on ``tokens`` billion tokens. ``least``: lowest learning rate."""
    return replace(
        GPT3,
        source="Le Scao et al. 2022, table 3; bigscience, train/tr11-176B-ml",
        note="there the rate fell over 410 billion tokens, and the batch grew",
        lr=lr,
        lr_floor=least / lr,
        rows=rows,
        steps=tokens * 1_000_000_000 // (rows * ROW),
        warmup=_375M // rows,
        eps=1e-8,
    )


def llama(source: str, lr: float, trillions: float, rows: int = 2048, **more: Any) -> Published:
    """Return a published training in the style of LLaMA, Qwen and OLMo, on ``trillions`` x 10^12
    tokens. By default, the ``rows`` of a step have 4 million tokens."""
    own = replace(GPT3, source=source, note="", lr=lr, rows=rows, warmup=2000)
    own = replace(own, **more)
    return replace(own, steps=round(trillions * 1e12) // (rows * (own.context or ROW)))


_LLAMA1 = partial(llama, "Touvron et al. 2023a, table 2 and section 2.3")
_LLAMA2 = partial(
    llama, "Touvron et al. 2023b, section 2.2", trillions=2.0, rows=1024, context=4096, eps=1e-5
)
_LLAMA3 = Published(
    source="Grattafiori et al. 2024, table 3; its decay is that of section 3.2.1",
    optimizer="adamw",
    weight_decay=0.1,
)
_QWEN = partial(
    llama,
    "Bai et al. 2023, table 1 and section 2.4",
    eps=1e-8,
    warmup=None,
    note="decay and clip are those of fine-tuning (section 3.1.2), which had dropout 0.1; the"
    " released config.json has dropout 0",
)
_OLMO = partial(llama, "Groeneveld et al. 2024; allenai/OLMo, configs/official", eps=1e-5)
_DEEPSEEK = replace(
    GPT3,
    source="Bi et al. 2024, section 2.3",
    note="its rate fell in two steps, which is no schedule here",
    schedule=None,
    lr_floor=None,
    context=4096,
    warmup=2000,
)
_PALM = Published(
    source="Chowdhery et al. 2022, section 5",
    note="its decay was the square of the learning rate, which is no setting here",
)
_GPT2 = Published(
    source="Radford et al. 2019, section 2.3",
    note="the rate was tuned by hand",
    rows=512,
    context=1024,
)

TRAININGS: dict[str, Published] = {
    "gpt1": Published(
        source="Radford et al. 2018, section 4.1",
        note="100 epochs",
        optimizer="adamw",
        lr=2.5e-4,
        schedule="cosine",
        lr_floor=0.0,
        warmup=2000,
        rows=64,
        context=512,
        weight_decay=0.01,
    ),
    **dict.fromkeys(("gpt2", "gpt2-medium", "gpt2-large", "gpt2-xl"), _GPT2),
    "gpt3-125m": gpt3(6e-4, 256),
    "gpt3-350m": gpt3(3e-4, 256),
    "gpt3-760m": gpt3(2.5e-4, 256),
    "gpt3-1.3b": gpt3(2e-4, 512),
    "gpt3-2.7b": gpt3(1.6e-4, 512),
    "gpt3-6.7b": gpt3(1.2e-4, 1024),
    "gpt3-13b": gpt3(1e-4, 1024),
    "gpt3-175b": gpt3(6e-5, 1568),
    "opt-125m": opt(6e-4, 256),
    "opt-350m": opt(3e-4, 256),
    "opt-1.3b": opt(2e-4, 512),
    "opt-2.7b": opt(1.6e-4, 512),
    "opt-6.7b": opt(1.2e-4, 1024),
    "opt-13b": opt(1e-4, 2048),
    "opt-30b": opt(1e-4, 2048),
    "opt-66b": opt(8e-5, 1024),
    "opt-175b": opt(1.2e-4, 1024, warmup=2000),
    "bloom-560m": bloom(3e-4, 256),
    "bloom-1b1": bloom(2.5e-4, 256),
    "bloom-1b7": bloom(2e-4, 512),
    "bloom-3b": bloom(1.6e-4, 512),
    "bloom-7b1": bloom(1.2e-4, 512),
    "bloom-176b": bloom(6e-5, 2048, tokens=366, least=6e-6),
    "llama-7b": _LLAMA1(3e-4, 1.0),
    "llama-13b": _LLAMA1(3e-4, 1.0),
    "llama-33b": _LLAMA1(1.5e-4, 1.4),
    "llama-65b": _LLAMA1(1.5e-4, 1.4),
    "llama2-7b": _LLAMA2(3e-4),
    "llama2-13b": _LLAMA2(3e-4),
    "llama2-70b": _LLAMA2(1.5e-4),
    **dict.fromkeys(("llama3-8b", "llama3.1-8b"), replace(_LLAMA3, lr=3e-4)),
    **dict.fromkeys(("llama3-70b", "llama3.1-70b"), replace(_LLAMA3, lr=1.5e-4)),
    "llama3.1-405b": replace(
        _LLAMA3,
        note="at first rows had 4,096 tokens, and a step had 4, then 8 million",
        lr=8e-5,
        schedule="cosine",
        lr_floor=0.01,
        warmup=8000,
        rows=2048,
        context=8192,
        steps=1_200_000,
    ),
    "qwen-7b": _QWEN(3e-4, 2.4),
    "qwen-14b": _QWEN(3e-4, 3.0),
    "olmo-1b": _OLMO(4e-4, 3.101),
    "olmo-7b": _OLMO(3e-4, 2.0, warmup=5000, schedule="linear"),
    "gpt-neox-20b": replace(
        GPT3,
        source="Black et al. 2022, section 3 and appendix",
        note="",
        lr=9.7e-5,
        rows=1538,
        steps=150_000,
        warmup=1500,
        eps=1e-8,
        weight_decay=0.01,
    ),
    "gptj-6b": Published(source="mesh-transformer-jax, configs/6B_roto_256.json", weight_decay=0.1),
    "deepseek-7b": replace(_DEEPSEEK, lr=4.2e-4, rows=2304),
    "deepseek-67b": replace(_DEEPSEEK, lr=3.2e-4, rows=4608),
    **dict.fromkeys(("palm-8b", "palm-62b", "palm-540b"), _PALM),
}
