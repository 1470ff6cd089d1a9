"""The score `spans`: the nats that models give blanked words, against their logits read by hand."""

from __future__ import annotations

import json
import random
from itertools import pairwise

import numpy as np
import pytest
import torch

from llmcurate.base.errors import LlmcurateError, UsageError
from llmcurate.base.settings import from_dict
from train.config import TrainConfig
from train.evaluate.judge import load_judged
from train.evaluate.scores import score_of
from train.lab.scores.spans import Filling, cut, span_nats, windows
from train.loop.distributed import Ranks
from train.loop.evaluate import Scoring
from train.loop.pretrain import pretrain
from train.loop.start import model_for
from train.model.presets import preset
from train.runs.checkpoint import load_plan, newest

pytestmark = pytest.mark.lab
WORDS = "the a cat dog bird sat ran flew on over under mat tree house and then it was red".split()


def sentences(seed, count):
    draw = random.Random(seed)
    return " ".join(" ".join(draw.choices(WORDS, k=6)) + "." for _ in range(count))


SMALL = {"layers": 1, "hidden": 32, "attention.heads": 2, "attention.kv_heads": 2}
SMALL |= {"attention.head_dim": 16, "feed_forward.width": 32}
T5 = {"kind": "spans"}
SCORING = Scoring(Ranks(device=torch.device("cpu")), 2, "fp32")
TEXTS = [sentences(900, 2), sentences(901, 3)]
MODELS = {
    "causal": ("tiny", "auto"),
    "encoder": ("bert-tiny", "masked"),
    "pairs": ("bert-tiny", "auto"),
    "spans": ("t5-tiny", T5),
    "prefix": ("tiny", T5),
    "in one row": ("tiny", T5 | {"form": "causal"}),
    "bert-style": ("t5-tiny", {"kind": "bert-style"}),
    "dropped": ("t5-tiny", {"kind": "dropped-tokens"}),
    "bart": ("bart-tiny", {"kind": "bart"}),
    "ul2": ("t5-tiny", {"kind": "ul2"}),
}


@pytest.fixture(scope="module")
def model(shard_folder, tmp_path_factory):
    """A function of a key of MODELS to (judged, settings of its training), trained for a step."""
    torch.set_num_threads(1)
    made = {}

    def get(name):
        if name not in made:
            out = tmp_path_factory.mktemp("spans") / "run"
            base, objective = MODELS[name]
            settings = {"steps": 1, "rows": 1, "context": 256, "device": "cpu", "warmup": 0}
            kind = {"kind": objective} if isinstance(objective, str) else objective
            train = from_dict(TrainConfig, {**settings, "objective": kind}, "pretrain")
            changes = SMALL | {"context": 256}
            if preset(base).encoder is not None:
                changes["encoder.layers"] = 1
            pretrain(shard_folder, out, model=base, changes=changes, train=train)
            learned = load_plan(newest(out / "checkpoints")).train
            made[name] = load_judged(out, device="cpu"), learned
        return made[name]

    return get


def encoded(judged, text):
    """[(ids, blank)] of the parts of a text."""
    return [
        (judged.tokenizer.encode(part, add_special_tokens=False).ids, blank)
        for part, blank in cut(text)
    ]


@torch.no_grad()
def by_hand(judged, inputs, targets, **read):
    """The nats of the targets that are not None, given the ids that the model reads."""
    row = torch.tensor([inputs])
    read = {name: torch.tensor([value]) for name, value in read.items()}
    if "source" in read:
        read["source_documents"] = torch.zeros_like(read["source"])
    features = judged.model.features(row, documents=torch.zeros_like(row), **read)
    chances = judged.model.logits(features)[0].double().log_softmax(-1)
    asked = [(place, token) for place, token in enumerate(targets) if token is not None]
    return -sum(float(chances[place, token]) for place, token in asked)


def test_spans_are_words_of_the_text_and_the_same_each_time():
    text = sentences(7, 20) + " " + "x" * 50 + "\n" + "漢字" * 30
    parts = cut(text)
    assert "".join(part for part, _ in parts) == text and cut.__wrapped__(text) == parts
    assert not parts[0][1] and all(a[1] != b[1] for a, b in pairwise(parts))
    plain = sentences(8, 400)
    hidden = [part.split() for part, blank in cut(plain) if blank]
    words = sum(map(len, hidden))
    assert words / len(plain.split()) == pytest.approx(0.15, abs=0.001)
    assert words / len(hidden) == pytest.approx(3, abs=0.05)
    assert cut("one") == (("one", False),) and cut("") == ()


def test_a_causal_decoder_reads_what_stands_left(model):
    judged, learned = model("causal")
    for text, found in zip(TEXTS, span_nats(judged, learned, TEXTS, 256, SCORING), strict=True):
        parts = encoded(judged, text)
        ids = [token for own, _ in parts for token in own]
        targets = [token if blank else None for own, blank in parts for token in own]
        assert found == pytest.approx(by_hand(judged, [judged.begin, *ids[:-1]], targets), rel=1e-5)


@pytest.mark.parametrize("name", ["encoder", "pairs"])
def test_an_encoder_reads_a_mask_for_each_token(model, name):
    judged, learned = model(name)
    mask = judged.model.special.mask
    for text, found in zip(TEXTS, span_nats(judged, learned, TEXTS, 256, SCORING), strict=True):
        shown, targets = [judged.begin], [None]
        for own, blank in encoded(judged, text):
            shown += [mask] * len(own) if blank else own
            targets += own if blank else [None] * len(own)
        assert found == pytest.approx(by_hand(judged, shown, targets), rel=1e-5)


def test_an_encoder_decoder_reads_sentinels_and_is_scored_on_its_target(model):
    judged, learned = model("spans")
    ids, end = judged.tokenizer.get_vocab(), judged.model.special.end
    for text, found in zip(TEXTS, span_nats(judged, learned, TEXTS, 256, SCORING), strict=True):
        source, target, number = [], [], 0
        for own, blank in encoded(judged, text):
            if blank:
                source.append(ids[f"<extra_id_{number}>"])
                target += [ids[f"<extra_id_{number}>"], *own]
                number += 1
            else:
                source += own
        source, target = [*source, end], [*target, end]
        nats = by_hand(judged, [end, *target[:-1]], target, source=source)
        assert found == pytest.approx(nats, rel=1e-5)


@pytest.mark.parametrize("name", ["prefix", "in one row"])
def test_a_decoder_with_a_span_objective_reads_the_source_first(model, name):
    judged, learned = model(name)
    ids, end = judged.tokenizer.get_vocab(), judged.model.special.end
    found, *_ = span_nats(judged, learned, TEXTS, 256, SCORING)
    source, target, number = [], [], 0
    for own, blank in encoded(judged, TEXTS[0]):
        if blank:
            source.append(ids[f"<extra_id_{number}>"])
            target += [ids[f"<extra_id_{number}>"], *own]
            number += 1
        else:
            source += own
    row = [judged.begin, *source, end, *target]
    prefix = {"prefix": [n <= len(source) + 1 for n in range(len(row))]}
    targets = [*[None] * (len(source) + 1), *target, end]
    nats = by_hand(judged, row, targets, **prefix if name == "prefix" else {})
    assert found == pytest.approx(nats, rel=1e-5)


@pytest.mark.parametrize("name", ["bert-style", "bart"])
def test_a_model_that_restores_whole_texts_is_scored_on_the_spans(model, name):
    judged, learned = model(name)
    mask, end = judged.model.special.mask, judged.model.special.end
    found, *_ = span_nats(judged, learned, TEXTS, 256, SCORING)
    source, target, targets = [], [], []
    for own, blank in encoded(judged, TEXTS[0]):
        marks = [mask] * (1 if name == "bart" else len(own))
        source += marks if blank else own
        target += own
        targets += own if blank else [None] * len(own)
    nats = by_hand(judged, [end, *target], [*targets, None], source=[*source, end])
    assert found == pytest.approx(nats, rel=1e-5)


@pytest.mark.parametrize("name", ["dropped", "ul2"])
def test_what_marks_a_span_follows_the_objective(model, name):
    judged, learned = model(name)
    ids, end = judged.tokenizer.get_vocab(), judged.model.special.end
    found, *_ = span_nats(judged, learned, TEXTS, 256, SCORING)
    source, target, number = [], [], 0
    for own, blank in encoded(judged, TEXTS[0]):
        mark = [ids[f"<extra_id_{number}>"]] if name == "ul2" and blank else []
        number += blank
        source += mark if blank else own
        target += [*mark, *own] if blank else []
    source = [*([ids["[R]"]] if name == "ul2" else []), *source, end]
    nats = by_hand(judged, [end, *target], [*target, end], source=source)
    assert found == pytest.approx(nats, rel=1e-5)


@pytest.mark.parametrize("name", list(MODELS))
def test_long_texts_are_read_in_windows_that_have_each_token_once(model, name):
    judged, learned = model(name)
    text = sentences(5, 30)
    hidden = np.array([blank for own, blank in encoded(judged, text) for _ in own])
    objective = Filling(judged, learned, 64)
    parts = list(windows(hidden, objective.fits))
    assert len(parts) > 1 and sum(hidden[part].sum() for part in parts) == hidden.sum()
    covered = np.concatenate([np.arange(len(hidden))[part][hidden[part]] for part in parts])
    assert np.array_equal(covered, np.flatnonzero(hidden))
    (nats,) = span_nats(judged, learned, [text], 64, SCORING)
    assert 0 < nats < 20 * (hidden.sum() + 3 * len(parts) + hidden.sum())


def test_a_span_that_no_row_can_hold_is_an_error():
    with pytest.raises(LlmcurateError, match="raise --context"):
        list(windows(np.array([False, True, True]), lambda hidden: len(hidden) < 2))


def test_values_are_kept_with_the_run_and_sizes_are_bytes_of_blanked_text(
    model, tmp_path, monkeypatch
):
    judged, _ = model("encoder")
    path = tmp_path / "news.jsonl"
    path.write_text("".join(json.dumps({"text": text, "source": "x"}) + "\n" for text in TEXTS))
    score, train = score_of("spans"), {"rows": 2, "context": 64, "device": "cpu"}
    items = score.items(path)
    sizes = [sum(len(p.encode()) for p, blank in cut(text) if blank) for text in TEXTS]
    assert items.sizes.tolist() == sizes and items.sources == ["x", "x"]
    first = score.values(judged.folder, {"news": path}, train)["news"]
    monkeypatch.setattr("train.lab.scores.spans.load_judged", None)  # nothing is computed
    assert np.array_equal(score.values(judged.folder, {"news": path}, train)["news"], first)


@pytest.mark.parametrize(
    ("base", "objective", "message"),
    [
        ("electra-tiny", "auto", "m: a model that learns replaced fills no spans: give --score"),
        ("t5-tiny", "deshuffling", "learns deshuffling fills no spans: set pretrain.objective"),
        ("t5-tiny", "continuation", "learns continuation fills no spans"),
    ],
)
def test_models_that_fill_no_spans_are_refused(base, objective, message):
    train = from_dict(TrainConfig, {"context": 64, "objective": {"kind": objective}}, "pretrain")
    model, settings, _ = model_for(base, train)
    with pytest.raises(UsageError, match=message):
        score_of("spans").check("m", model, settings)
