from __future__ import annotations

import random
from pathlib import Path

import pyarrow as pa
import pytest

torch = pytest.importorskip("torch")

from tokenize_kit.learn.training import train_tokenizer  # noqa: E402
from tokenize_kit.shards.writer import Layout, encode_shards  # noqa: E402

WORDS = "the a cat dog bird sat ran flew on over under mat tree house and then it was red".split()


def sentences(seed: int, count: int) -> str:
    draw = random.Random(seed)
    return " ".join(" ".join(draw.choices(WORDS, k=6)) + "." for _ in range(count))


@pytest.fixture(scope="session")
def shard_folder(tmp_path_factory) -> Path:
    """40 documents of 1 to 12 made-up sentences in three shards, a vocabulary of 300."""
    torch.set_num_threads(1)
    texts = [sentences(seed, 1 + seed % 12) for seed in range(40)]
    out = tmp_path_factory.mktemp("shards")
    train_tokenizer(texts, out / "tokenizer", vocab=300)
    batch = pa.RecordBatch.from_pylist(
        [{"id": f"doc-{index}", "text": text} for index, text in enumerate(texts)]
    )
    layout = Layout(shard_tokens=1500)
    encode_shards([batch], out / "tokenizer" / "tokenizer.json", out / "shards", layout)
    return out / "shards"


@pytest.fixture(scope="module", autouse=True)
def short_samples():
    """The text that each run writes at its end, in the time of ten steps, has four tokens."""
    from train.loop import pretrain

    def sample(model, tokenizer, prompts, **how):
        return complete(model, tokenizer, prompts, **how | {"max_tokens": 4})

    complete = pretrain.complete
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(pretrain, "complete", sample)
        yield


@pytest.fixture(scope="session")
def small_tokenizer(tmp_path_factory) -> Path:
    """A tokenizer.json of at most 270 tokens."""
    out = tmp_path_factory.mktemp("tokenizer")
    train_tokenizer(["the cat sat on the mat " * 40], out, vocab=270)
    return out / "tokenizer.json"
