"""Products of a refresh: of the whole snapshot, as one run makes them, whole or gone on with."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from llmcurate.base.errors import UnexpectedError, UsageError
from tests.curate.refresh.growing import Home, inputs

FILTERS = [{"dedup_exact": {}}]
PRODUCTS = [{"tokenizer": {"vocab": 300}}, {"shards": {"shard_tokens": 4096}}]


def made(folder: Path) -> dict[str, bytes]:
    """What a trainer reads."""
    names = ("tokenizer.json", "manifest.json")
    paths = [*map(folder.joinpath, names), *folder.glob("tokens-*")]
    return {p.name: p.read_bytes() for p in paths}


@pytest.fixture
def parts(bench):
    return [bench.jsonl(f"{n}.jsonl", rows) for n, rows in zip("ab", inputs(20)[:2], strict=True)]


def test_products_of_two_refreshes_are_those_of_one_run_over_both(bench, parts):
    first = [{"dedup_exact": {"survivor": "first"}}, *PRODUCTS]
    bench.run(first, *parts)
    home = Home(bench, [*FILTERS, *PRODUCTS])
    home.refresh(parts[0])
    assert not (home.path / "products").exists(), "they were not asked for"
    done = home.refresh(parts[1], products=True)
    assert done.products == home.path / "products" / str(done.name)
    assert made(done.products) == made(bench.folder / "out")
    assert (home.path / "products/current").resolve() == done.products.resolve()
    again = home.refresh(parts[1], products=True)
    assert not again.new and again.products == done.products
    third = bench.jsonl("c.jsonl", [{"text": "A word more.", "id": "z"}])
    last = home.refresh(third, keep=1, products=True)
    names = {p.name for p in (home.path / "products").iterdir()}
    assert names == {"current", last.name}, "those of a snapshot that is gone went with it"


def test_stopped_products_are_resumed(bench, parts, monkeypatch):
    home = Home(bench, [*FILTERS, *PRODUCTS])
    whole = home.refresh(*parts, products=True)
    other = Home(bench, home.steps, "other")

    def stop(*values, **named):
        raise RuntimeError("stopped")

    with monkeypatch.context() as patch, pytest.raises(UnexpectedError):
        patch.setattr("tokenize_kit.shards.writer.encode_shards", stop)
        other.refresh(*parts, products=True)
    assert len(other.rows()) == len(home.rows()), "the snapshot stands"
    assert not (other.path / "products/current").exists()
    with monkeypatch.context() as patch:
        patch.setattr("tokenize_kit.learn.training.train_on_corpus", stop)
        done = other.refresh(*parts, products=True)
    assert done.new and done.built and done.inputs == 0
    assert made(done.products) == made(whole.products)


@pytest.mark.parametrize(
    ("steps", "message"),
    [
        (FILTERS, "does not end in a product"),
        ([*FILTERS, {"shards": {}}], "give a tokenizer"),
    ],
    ids=["none", "shards-without-tokenizer"],
)
def test_products_that_cannot_be_made_are_a_one_line_error(bench, parts, steps, message):
    with pytest.raises(UsageError, match=message):
        Home(bench, steps).refresh(parts[0], products=True)


def test_the_command_names_their_folder(bench, parts):
    recipe = bench.folder / "r.yaml"
    recipe.write_text(json.dumps({"steps": [*FILTERS, {"export": {}}]}))
    done = bench.command("refresh", recipe, parts[0], "-o", "home", "--products", "--json", "-q")
    assert done.returncode == 0, done.stderr
    folder = Path(json.loads(done.stdout.splitlines()[-1])["products"])
    assert (bench.folder / folder / ".run" / "run.json").is_file()
    assert bench.command("refresh", recipe, parts[0], "-o", "home", "--products").returncode == 3
