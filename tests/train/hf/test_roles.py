"""Special tokens have the roles that their owner wrote: in a folder, a run and its export."""

from __future__ import annotations

import json
import shutil
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
import torch

from llmcurate.base.disk.sealed_json import encode_json, seal, unseal
from llmcurate.base.roles import FILE, Roles, read_roles
from llmcurate.base.tokenizer_file import load_tokenizer, roles_of
from tests.train.conftest import sentences
from tests.train.loop.small_runs import build, trained
from tokenize_kit.shards.writer import Layout, encode_shards
from train.config import TrainConfig
from train.data.rows import Rows
from train.data.shards import read_shards
from train.data.vocabulary import Vocabulary
from train.evaluate.judge import judge, open_model
from train.generate import GREEDY, Chooser, Sampling, complete, load
from train.hf.export import export
from train.hf.load import import_model, transplant
from train.loop.pretrain import pretrain
from train.model.presets import preset

transformers = pytest.importorskip("transformers")

# Spelled special tokens are left out: transformers reads them as the token, llmcurate as text.
PROMPTS = (
    "The", "the cat", "", " ", "\n", "a", "dog sat", "under the tree.", "é", "日本語", "🙂 🙂", "0",
    "then it was red. the", "  two spaces", "tab\there", "UPPER", "<s>", "mat mat mat",
    "\u200b", "house and then it was red",
)  # fmt: skip
TEMPLATE = "{% for m in messages %}<|im_start|>{{ m.content }}<|im_end|>{% endfor %}"


def ids_of(folder: Path, text: str) -> list[int]:
    return transformers.AutoTokenizer.from_pretrained(folder)(text).input_ids


def continued(folder: Path, prompts: Sequence[str]) -> list[list[int]]:
    """The tokens that plain transformers writes greedily, from the folder alone."""
    tokenizer = transformers.AutoTokenizer.from_pretrained(folder)
    model = transformers.AutoModelForCausalLM.from_pretrained(folder).eval()
    texts = []
    for prompt in prompts:
        ids = tokenizer(prompt, return_tensors="pt")
        out = model.generate(**ids, max_new_tokens=8, do_sample=False)[0]
        texts.append(out[ids.input_ids.shape[1] :].tolist())
    return texts


def written(
    folder: Path, prompts: Sequence[str], sampling: Sampling = GREEDY, tokens: int = 8
) -> list[list[int]]:
    """The tokens that llmcurate writes, with the one that ends the text."""
    chosen: list[int] = []
    plain, model, texts = Chooser.choose, load(folder), []

    def choose(*given):
        chosen.extend(plain(*given))
        return chosen[-1:]

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Chooser, "choose", choose)
        for prompt in prompts:
            complete(*model, [prompt], max_tokens=tokens, sampling=sampling, seed=0)
            texts.append(chosen[:])
            chosen.clear()
    return texts


@pytest.fixture(scope="module")
def run(shard_folder, tmp_path_factory):
    """A run of a few steps. Its vocabulary is padded: 20 ids have no token."""
    out = tmp_path_factory.mktemp("roles") / "run"
    settings = TrainConfig(steps=30, rows=4, context=64, lr=0.01)
    changes = {"vocab": 320, "layers": 2, "hidden": 32}
    pretrain(shard_folder, out, changes=changes, train=settings)
    return out


def test_transformers_continues_a_text_as_generate_does(run, tmp_path):
    export(run, tmp_path / "hf")
    ours = written(run, PROMPTS)
    assert len(PROMPTS) == 20 and ours == continued(tmp_path / "hf", PROMPTS)
    assert len({tuple(tokens) for tokens in ours}) > 5


def test_an_exported_tokenizer_begins_a_text_once(run, tmp_path):
    copy, hf = tmp_path / "run", tmp_path / "hf"
    shutil.copytree(run, copy)
    own = {"padding_side": "left", "model_max_length": 10**30, "tokenizer_class": "GPT2Tokenizer"}
    flags = {"add_bos_token": False, "bos_token": "<|endoftext|>"}
    (copy / "tokenizer_config.json").write_text(json.dumps(own | flags))
    (copy / "chat_template.jinja").write_text(TEMPLATE)
    export(copy, hf)
    end = read_roles(run / "tokenizer.json", {"<|endoftext|>": 0}).end
    for kind in (transformers.AutoTokenizer, transformers.PreTrainedTokenizerFast):
        theirs = kind.from_pretrained(hf)
        assert theirs("the cat").input_ids == [
            end,
            *theirs("the cat", add_special_tokens=False).input_ids,
        ]
        pair = theirs("the", " cat")
        assert pair.input_ids.count(end) == 1 and pair.input_ids[0] == end
        talk = [{"role": "user", "content": "the cat"}]
        assert end not in theirs.apply_chat_template(talk, return_dict=False)
        assert (theirs.padding_side, theirs.model_max_length) == ("left", 64)
        assert (theirs.bos_token_id, theirs.eos_token_id) == (end, end)


def llama(folder: Path, tokenizer: Path, *, before: str | None = "<s>") -> Path:
    """A random Llama of transformers whose texts begin with `before` and have two ends."""
    own = load_tokenizer(tokenizer)
    own.add_special_tokens(["<s>", "</s>", "<|im_end|>", "<pad>"])
    if before is not None:
        from tokenizers.processors import TemplateProcessing

        number = own.token_to_id(before)
        own.post_processor = TemplateProcessing(f"{before} $A", None, [(before, number)])
    names = {"begin": "<s>", "one": "</s>", "two": "<|im_end|>", "pad": "<pad>"}
    ids = {role: own.token_to_id(name) for role, name in names.items()}
    torch.manual_seed(5)
    config = transformers.LlamaConfig(
        vocab_size=own.get_vocab_size(), hidden_size=32, intermediate_size=64,
        num_hidden_layers=2, num_attention_heads=2, max_position_embeddings=64,
        initializer_range=0.5, tie_word_embeddings=False,
        bos_token_id=ids["begin"], eos_token_id=ids["one"], pad_token_id=ids["pad"],
    )  # fmt: skip
    model = transformers.LlamaForCausalLM(config)
    model.generation_config.eos_token_id = [ids["two"], ids["one"]]
    model.save_pretrained(folder)
    theirs = transformers.PreTrainedTokenizerFast(
        tokenizer_object=own, bos_token="<s>", eos_token="</s>", pad_token="<pad>",
        padding_side="left", chat_template=TEMPLATE,
    )  # fmt: skip
    theirs.save_pretrained(folder)
    return folder


@pytest.mark.parametrize("before", ["<s>", None])
def test_an_imported_model_keeps_its_roles_and_gives_them_back(before, small_tokenizer, tmp_path):
    folder = llama(tmp_path / "theirs", small_tokenizer, before=before)
    import_model(folder, tmp_path / "run")
    export(tmp_path / "run", tmp_path / "hf")
    import_model(tmp_path / "hf", tmp_path / "again")
    export(tmp_path / "again", tmp_path / "back")
    own = load_tokenizer(folder / "tokenizer.json")
    begin, one, two, pad = map(own.token_to_id, ("<s>", "</s>", "<|im_end|>", "<pad>"))
    roles = roles_of(tmp_path / "run" / "tokenizer.json", own)
    assert (roles.begin, roles.ends, roles.pad) == (begin, (two, one), pad)
    assert roles.before == ((begin,) if before else ())
    assert roles_of(tmp_path / "again" / "tokenizer.json", own) == roles
    for name in ("config.json", "generation_config.json", "tokenizer_config.json"):
        first, second = (json.loads((tmp_path / f / name).read_bytes()) for f in ("hf", "back"))
        assert first == second
        if name == "generation_config.json":
            named = (first["bos_token_id"], first["eos_token_id"], first["pad_token_id"])
            assert named == (begin, [two, one], pad)
    for name in ("tokenizer.json", "chat_template.jinja"):
        assert (tmp_path / "hf" / name).read_bytes() == (folder / name).read_bytes()
    prompts = ("the cat", "sat on", "🙂")
    ours = written(tmp_path / "run", prompts)
    assert ours == continued(folder, prompts) == continued(tmp_path / "hf", prompts)
    assert ids_of(folder, "the cat") == ids_of(tmp_path / "hf", "the cat")
    texts = encoded(folder / "tokenizer.json", tmp_path / "shards")
    figures = [
        judge(open_model(place, device="cpu"), texts={"x": texts}, questions={}).texts["x"]
        for place in (folder, tmp_path / "run", tmp_path / "hf")
    ]
    assert figures[0] == figures[1] == figures[2]


def encoded(tokenizer: Path, out: Path, *, begin: bool = False) -> Path:
    """Twelve documents in shards; ``begin``: each begins with a token that the manifest names."""
    rows = [{"id": str(n), "text": sentences(n, 3)} for n in range(12)]
    batch = pa.RecordBatch.from_pylist(rows)
    encode_shards([batch], tokenizer, out, Layout(prepend_bos=begin))
    if begin:
        manifest = unseal(json.loads((out / "manifest.json").read_bytes()))
        manifest["bos_token_id"] = manifest["special_ids"]["<s>"]
        (out / "manifest.json").write_bytes(encode_json(seal(manifest)))
    return out


def test_documents_that_begin_with_a_token_are_read_behind_it(small_tokenizer, tmp_path):
    folder = llama(tmp_path / "theirs", small_tokenizer)
    shards = encoded(folder / "tokenizer.json", tmp_path / "shards", begin=True)
    whole = read_shards(shards)
    begin, end = whole.special_ids["<s>"], whole.special_ids["<|endoftext|>"]
    assert (whole.before, whole.document(0)[0]) == (begin, begin)
    rows = Rows(whole.texts(), np.arange(12), 64)
    first = [piece for n in range(rows.count) for piece in rows.pieces(n) if piece.first == 0]
    assert len(first) == 12 and {piece.before for piece in first} == {begin}
    assert begin not in np.concatenate([piece.tokens for piece in first])
    train = TrainConfig(steps=2, rows=2, context=64)
    pretrain(shards, tmp_path / "run", model=str(folder), train=train)
    roles = Roles(**json.loads((tmp_path / "run" / FILE).read_bytes()))
    assert (roles.begin, roles.before, roles.ends[0]) == (begin, [begin], whole.end)
    export(tmp_path / "run", tmp_path / "hf")
    assert ids_of(tmp_path / "hf", "the")[:1] == [begin]
    assert (tmp_path / "hf" / "chat_template.jinja").read_text() == TEMPLATE
    bare = encoded(folder / "tokenizer.json", tmp_path / "bare")
    pretrain(bare, tmp_path / "other", model=str(tmp_path / "run"), train=train)
    export(tmp_path / "other", tmp_path / "hf2")
    last = read_shards(bare).end
    assert ids_of(tmp_path / "hf2", "the")[:1] == [last] != [begin] and end is not None


def test_a_text_in_shards_with_a_beginning_has_the_score_of_one_without(small_tokenizer, tmp_path):
    folder = llama(tmp_path / "theirs", small_tokenizer)
    places = [encoded(folder / "tokenizer.json", tmp_path / str(b), begin=b) for b in (True, False)]
    judged = open_model(folder, device="cpu")
    assert judged.begin == judged.model.special.begin
    figures = judge(judged, texts=dict(zip("ab", places, strict=True)), questions={}).texts
    assert figures["a"] == figures["b"]


def test_ids_without_a_token_are_never_written(run, tmp_path):
    sampling = Sampling(temperature=50.0, top_k=0)  # every id is nearly as likely as another
    (tokens,) = written(run, ["the"], sampling, tokens=300)
    model, tokenizer = load(run)
    named = set(tokenizer.get_vocab().values())
    assert model.config.vocab == 320 > len(named) and set(tokens) <= named
    export(run, tmp_path / "hf")
    stated = json.loads((tmp_path / "hf" / "generation_config.json").read_bytes())
    assert set(stated["suppress_tokens"]) == set(range(320)) - named


def test_random_ids_are_those_of_tokens(small_tokenizer, tmp_path):
    values = json.loads(small_tokenizer.read_bytes())
    values["added_tokens"] = [
        *values["added_tokens"],
        {**values["added_tokens"][0], "id": 400, "content": "<|far|>"},
    ]
    path = tmp_path / "tokenizer.json"
    path.write_text(json.dumps(values))
    tokenizer = load_tokenizer(path)
    tokens = Vocabulary(size=401, reserved=frozenset({400, 0}), tokenizer=path)
    named = set(tokenizer.get_vocab().values())
    assert set(tokens.plain.tolist()) == named - {400, 0}


def test_a_run_of_an_older_version_reads_texts_behind_the_end_of_text(run, tmp_path):
    old = tmp_path / "old"
    shutil.copytree(run, old)
    (old / FILE).unlink()
    assert open_model(old, device="cpu").begin == open_model(run, device="cpu").begin
    for folder in (run, old):
        export(folder, tmp_path / f"hf-{folder.name}")
    for name in ("config.json", "generation_config.json", "tokenizer.json"):
        assert len({(tmp_path / f"hf-{f.name}" / name).read_bytes() for f in (run, old)}) == 1


def test_a_transplanted_tokenizer_begins_texts_in_the_role_of_the_old_one(
    small_tokenizer, shard_folder, tmp_path
):
    model = build(preset("tiny", vocab=270, context=64))
    run = trained(tmp_path / "run", model, small_tokenizer)
    new = shard_folder / "tokenizer.json"
    size = max(load_tokenizer(new).get_vocab().values()) + 1
    transplant(run, tmp_path / "out", new, lambda table: np.resize(table, (size, table.shape[1])))
    end = load_tokenizer(new).token_to_id("<|endoftext|>")
    assert load(tmp_path / "out")[0].special.before == (end,)
