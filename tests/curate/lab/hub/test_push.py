"""Pushes: one commit of what differs, with a card that loads."""

from __future__ import annotations

import json
import sys
from typing import Any

import pytest
import yaml

from curate.lab.hub.push import CARD, _product, push
from llmcurate.base.errors import RunFailed, UsageError
from tests.curate.conftest import Bench, pages
from tests.curate.lab.hub.hub_server import TOKEN, Hub

STEPS = [{"c4": {"min_sentences": 2}}, "dedup_exact"]


def made(bench: Bench) -> Bench:
    """With a finished run of two partitions in `out`."""
    rows = [{**row, "license": "cc-by-4.0" if i % 3 else None} for i, row in enumerate(pages(60))]
    source = bench.jsonl("in.jsonl", rows)
    bench.run(STEPS, source, read={"partition_bytes": 8192})
    return bench


@pytest.fixture
def corpus(bench: Bench) -> Bench:
    """A run of one test."""
    return made(bench)


@pytest.fixture(scope="module")
def shared(shared_bench: Bench) -> Bench:
    """The run of all tests that only push it."""
    return made(shared_bench)


def metadata(hub: Hub, name: str, kind: str = "dataset") -> dict[str, Any]:
    """Of the card."""
    text = hub.files(name, kind)["README.md"].decode()
    content: dict[str, Any] = yaml.safe_load(text.split("---\n")[1])
    return content


def test_a_corpus_goes_up_in_one_commit_and_comes_down_as_it_was(hub, shared):
    out = shared.folder / "out"
    done = push(out, "me/crawl", license="cc-by-4.0", quiet=True)
    repository = hub.repositories["dataset", "me/crawl"]
    assert repository.messages == ["initial commit", "Push by llmcurate"]
    assert repository.private and done.commit == repository.head
    files = hub.files("me/crawl")
    for name in ("corpus", "rejected"):
        for path in (out / name).iterdir():
            assert files[f"{name}/{path.name}"] == path.read_bytes()
    assert not {"ledger.db", "stages"} & {path.split("/")[0] for path in files}
    assert done.files == len(files) - 1  # but for .gitattributes
    assert metadata(hub, "me/crawl")["configs"][0]["default"] is True


def test_a_second_push_sends_what_changed_and_takes_away_what_went(hub, corpus):
    out = corpus.folder / "out"
    first = push(out, "me/crawl", quiet=True)
    asked = len(hub.asked)
    assert push(out, "me/crawl", quiet=True) == first
    assert not [p for verb, p in hub.asked[asked:] if "/commit/" in p or verb == "PUT"]
    source = corpus.folder / "in.jsonl"
    corpus.run(STEPS, source)  # one partition now
    push(out, "me/crawl", quiet=True)
    parts = {path for path in hub.files("me/crawl") if path.startswith("corpus/")}
    assert parts == {f"corpus/{path.name}" for path in (out / "corpus").iterdir()}


def test_a_push_that_breaks_off_leaves_what_was_there(hub, corpus):
    out = corpus.folder / "out"
    push(out, "me/crawl", quiet=True)
    before = hub.files("me/crawl")
    corpus.run(STEPS, corpus.folder / "in.jsonl")
    hub.fail, hub.code = "/commit/", 403
    with pytest.raises(RunFailed, match=r"the hub refuses access \(403\)"):
        push(out, "me/crawl", quiet=True)
    assert hub.files("me/crawl") == before
    hub.fail = ""
    assert push(out, "me/crawl", quiet=True).commit and hub.files("me/crawl") != before


def test_a_pushed_corpus_can_be_an_input(hub, shared):
    push(shared.folder / "out", "me/crawl", quiet=True)
    shared.run(["dedup_exact"], "hf://datasets/me/crawl", out="again")
    assert shared.ids("again") == shared.ids("out") != []


def test_the_card_says_what_the_run_did(hub, shared):
    push(shared.folder / "out", "me/crawl", license="odc-by", quiet=True)
    about = metadata(hub, "me/crawl")
    assert about["license"] == "odc-by" and about["task_categories"] == ["text-generation"]
    text = hub.files("me/crawl")["README.md"].decode()
    record = json.loads((shared.folder / "out/run.json").read_text())
    totals = record["totals"]
    assert f"{totals['kept']} documents" in text and f"of {totals['read']} documents" in text
    assert "| `c4` | 60 |" in text and "(recipe.yaml)" in text
    assert "| `cc-by-4.0` |" in text and "| `not stated` |" in text
    assert record["plan"] in text and "- `in.jsonl`" in text
    assert str(shared.folder) not in text, "a card names no folder of this machine"


def test_a_card_is_the_same_for_the_same_run_and_no_text_breaks_it(hub, bench):
    recipe = "steps:\n- c4: {}\ndescription: 'a ` | b ```` [x](y) <b>'\n"
    bench.run(recipe, bench.jsonl("a|b`.jsonl", pages(9)))
    push(bench.folder / "out", "me/odd", quiet=True)
    text = hub.files("me/odd")["README.md"].decode()
    assert "- ``a|b`.jsonl``" in text and "`````a ` | b ```` [x](y) <b>`````" in text
    head = hub.repositories["dataset", "me/odd"].head
    assert push(bench.folder / "out", "me/odd", quiet=True).commit == head


def test_datasets_loads_what_the_card_names(hub, shared, tmp_path, monkeypatch):
    datasets = pytest.importorskip("datasets", reason="datasets is not installed")
    monkeypatch.setattr(datasets.config, "HF_DATASETS_CACHE", str(tmp_path / "cache"))
    push(shared.folder / "out", "me/crawl", quiet=True)
    for path, data in hub.files("me/crawl").items():
        target = tmp_path / "down" / path
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_bytes(data)
    folder, cache = str(tmp_path / "down"), str(tmp_path / "cache")
    kept = datasets.load_dataset(folder, split="train", cache_dir=cache)
    gone = datasets.load_dataset(folder, "rejected", split="train", cache_dir=cache)
    assert kept["id"][:] == shared.ids("out")
    assert len(gone) == len(shared.rows("out", "rejected")) > 0 and "reasons" in gone.column_names


def test_a_corpus_that_grows_goes_up_with_what_all_of_its_runs_rejected(hub, bench):
    (bench.folder / "r.yaml").write_text(json.dumps({"steps": STEPS}))
    for day in (1, 2):
        bench.jsonl(f"in/{day}.jsonl", pages(20, seed=day))
        line = ("refresh", "r.yaml", "in", "-o", "home", "-q")
        assert bench.command(*line).returncode == 0
    push(bench.folder / "home", "me/weekly", quiet=True)
    files = hub.files("me/weekly")
    assert len([path for path in files if path.startswith("rejected/")]) == 2
    current = (bench.folder / "home/current").glob("part-*.parquet")
    assert {p.name for p in current} == {
        path.removeprefix("corpus/") for path in files if path.startswith("corpus/")
    }


def test_a_tokenizer_of_a_run_is_a_model_repository(hub, bench):
    source = bench.jsonl("in.jsonl", pages(40))
    bench.run([{"tokenizer": {"vocab": 300}}], source)
    done = push(bench.folder / "out", "me/words", public=True, quiet=True)
    assert not hub.repositories["model", "me/words"].private
    files = hub.files("me/words", "model")
    assert files["tokenizer.json"] == (bench.folder / "out/tokenizer.json").read_bytes()
    assert "ledger.db" not in files and done.url == f"{hub.url}/me/words"
    assert "# Tokenizer: byte-level BPE, 300 tokens" in files["README.md"].decode()
    assert metadata(hub, "me/words", "model")["library_name"] == "transformers"


def test_an_exported_model_keeps_its_card(hub, tmp_path):
    folder = tmp_path / "model"
    folder.mkdir()
    (folder / "config.json").write_text("{}")
    (folder / "model.safetensors").write_bytes(b"\0" * 9000)
    (folder / "README.md").write_text("---\npipeline_tag: text-generation\n---\nA decoder.\n")
    push(folder, "me/model", license="mit", quiet=True)
    about = metadata(hub, "me/model", "model")
    assert about["pipeline_tag"] == "text-generation" and about["license"] == "mit"
    assert hub.files("me/model", "model")["README.md"].endswith(b"\nA decoder.\n")
    assert hub.repositories["model", "me/model"].lfs == {"model.safetensors"}


def test_metadata_that_cannot_be_read_is_a_one_line_error(hub, tmp_path):
    for name, text in (("config.json", "{}"), ("x.safetensors", ""), (CARD, "---\na: [\n---\n")):
        (tmp_path / name).write_text(text)
    with pytest.raises(UsageError, match=r"push to me/model: while parsing"):
        push(tmp_path, "me/model", quiet=True)


def test_a_link_that_leads_out_of_the_folder_is_not_pushed(hub, corpus, tmp_path):
    secret = tmp_path / "secret"
    secret.write_text("mine")
    (corpus.folder / "out/report.html").unlink()
    (corpus.folder / "out/report.html").symlink_to(secret)
    folder = corpus.folder / "out"
    (tmp_path / "elsewhere").mkdir()
    with pytest.raises(RunFailed, match="leads out of"):
        push(folder.rename(tmp_path / "elsewhere/out"), "me/crawl", quiet=True)
    assert not hub.asked


@pytest.mark.parametrize("token", ["", "hf_wrong"])
def test_without_a_login_one_line_says_how(hub, shared, monkeypatch, token):
    monkeypatch.setenv("HF_TOKEN", token)
    done = shared.command("push", "out", "me/crawl")
    assert (done.returncode, done.stderr.count("\n")) in ((1, 1), (2, 1))
    assert "`hf auth login` or the variable HF_TOKEN" in done.stderr
    assert "hf_wrong" not in done.stderr


def test_the_command_says_what_it_did_and_never_the_token(hub, shared):
    done = shared.command("push", "out", "me/crawl")
    assert done.returncode == 0, done.stderr
    head = hub.repositories["dataset", "me/crawl"].head
    assert done.stdout.startswith(f"{hub.url}/datasets/me/crawl: ")
    assert done.stdout.endswith(f"as commit {head}\n") and TOKEN not in done.stdout + done.stderr
    assert not any(TOKEN.encode() in data for data in hub.files("me/crawl").values())
    again = shared.command("push", "out", "me/crawl", "--json")
    assert json.loads(again.stdout)["commit"] == head


def test_without_a_network_one_line_says_so(hub, shared, monkeypatch):
    import huggingface_hub.constants

    monkeypatch.setattr(huggingface_hub.constants, "ENDPOINT", "http://127.0.0.1:1")
    done = shared.command("push", "out", "me/crawl")
    assert (done.returncode, done.stderr.count("\n")) == (1, 1)
    assert "push to me/crawl: no connection to http://127.0.0.1:1" in done.stderr


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("out", "crawl"), "REPO crawl: write ORG/NAME"),
        (("nothing", "me/crawl"), "nothing holds none of corpus, model, tokenizer, shards"),
        (
            ("out", "me/crawl", "--kind", "shards"),
            "out holds no shards: give the folder",
        ),
    ],
)
def test_wrong_use_is_a_one_line_error(hub, shared, arguments, message):
    done = shared.command("push", *arguments)
    assert (done.returncode, done.stderr.count("\n")) == (2, 1) and message in done.stderr
    assert not hub.asked


def test_without_the_package_one_line_says_how_to_get_it(shared, monkeypatch):
    monkeypatch.delenv("LLMCURATE_OFFLINE", raising=False)
    monkeypatch.setitem(sys.modules, "huggingface_hub", None)
    with pytest.raises(UsageError, match=r"push to me/crawl: pip install 'llmcurate\[hf\]'"):
        push(shared.folder / "out", "me/crawl")


def test_of_two_products_of_a_kind_the_last_one_is_pushed(bench):
    products = [
        {"makes": m, "files": [f]} for m, f in (("shards", "a"), ("shards", "b"), ("x", "c"))
    ]
    record = {"stages": [], "totals": {}, "products": products}
    (bench.folder / "run.json").write_text(json.dumps(record))
    assert _product(bench.folder, "shards")[0] == products[1]
    assert _product(bench.folder, "model") == ({}, {})
