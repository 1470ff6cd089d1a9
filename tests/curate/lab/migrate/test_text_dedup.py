"""text-dedup's TOML and command lines have the same constants here, and keep the same documents."""

from __future__ import annotations

import random
import re
from pathlib import Path
from typing import Any

import pytest

from curate.lab.migrate import text_dedup
from curate.lab.migrate.migration import Migration
from llmcurate.base.errors import UsageError
from tests.curate.lab.migrate.peer_texts import settings

tomllib = pytest.importorskip("tomllib", reason="reading TOML needs Python 3.11")
TOML = """[input]
input_type = "local_files"
[input.read_arguments]
path = "data"
[algorithm]
algorithm_name = "minhash"
text_column = "body"
num_perm = 240
threshold = 0.7
ngram_size = 5
"""


def of_toml(text: str) -> Migration:
    return text_dedup.migrate(text, Path("config.toml"), tomllib.loads(text))


def of_script(text: str) -> Migration:
    return text_dedup.migrate(text, Path("run.sh"), None)


def test_minhash_of_today() -> None:
    done = of_toml(TOML)
    length, minhash = done.steps
    assert settings(length) == {"unit": "words", "words": "unicode", "min": 5}
    assert settings(minhash) == {
        **{"shingle": "word", "ngram": 5, "threshold": 0.7, "permutations": 240},
        "survivor": "first",
    }
    assert minhash.settings[1].origin == "line 10: minhash.ngram_size"
    assert done.input is not None and done.input.value == "data"
    assert done.read[0].value == {"text": "body"} and done.total == 1


def test_bands_and_rows_come_before_the_threshold_and_pairs_may_be_verified() -> None:
    (_, minhash) = of_toml(TOML + "bands = 50\nrows = 4\ncheck_false_positive = true\n").steps
    assert settings(minhash).keys() & {"threshold", "permutations"} == set()
    assert settings(minhash)["bands"] == 50 and settings(minhash)["verify"] == 0.7


@pytest.mark.parametrize(
    ("command", "step", "expected"),
    [
        (
            "minhash --threshold 0.8 --ngram=7",
            "dedup_minhash",
            {"threshold": 0.8, "ngram": 7, "permutations": 250, "shingle": "word"},
        ),
        (
            "simhash --bit_diff 5",
            "dedup_simhash",
            {"max_distance": 5, "shingle": "char", "ngram": 3},
        ),
        (
            "suffix_array --k 50",
            "dedup_suffix_array",
            {"unit": "bytes", "threshold": 50, "keep": "none"},
        ),
        (
            "bloom_filter --error_rate 1e-5",
            "dedup_bloom",
            {"mode": "dolma-document", "false_positives": 1e-5},
        ),
        ("exact_hash", "dedup_exact", {"key": "text", "normalize": False}),
        ("ccnet", "dedup_passages", {"unit": "paragraph"}),
    ],
)
def test_command_lines_of_earlier_versions(
    command: str, step: str, expected: dict[str, Any]
) -> None:
    done = of_script(f"# notes\npython -m text_dedup.{command} \\\n  --path data --column text\n")
    assert done.steps[0].step == step
    assert expected.items() <= settings(done.steps[0]).items()
    assert done.input is not None and done.input.value == "data"
    assert done.input.origin == "line 3: path"


def test_a_data_set_of_the_hub_has_its_split_and_config() -> None:
    command = "python -m text_dedup.minhash --path oscar-corpus/OSCAR-2201 --name gl --split train"
    done = of_script(command)
    assert done.input is not None and done.input.value == "hf://datasets/oscar-corpus/OSCAR-2201"
    assert {s.name: s.value for s in done.read} == {"config": "gl", "split": "train"}
    files = of_script(f"{command} --data_files 'a/*.gz'").input
    assert files is not None and files.value == [f"{done.input.value}/a/*.gz"]
    of_hub = TOML.replace("local_files", "hub").replace('"data"', '"a/b"\nsplit = "test"')
    assert [s.value for s in of_toml(of_hub).read] == ["test", {"text": "body"}]


@pytest.mark.parametrize(
    "path", ["./data/a", "data", "/data/a", "data/a.jsonl", "data/a --local", "tests/curate"]
)
def test_a_path_of_this_machine_stays_a_path(path: str) -> None:
    done = of_script(f"python -m text_dedup.minhash --path {path} --name de --split train")
    assert done.input is not None and done.input.value == path.partition(" ")[0]
    assert not done.read and "name is read only for a data set" in done.remarks[0].message


def test_a_script_is_read_and_never_run(tmp_path: Path) -> None:
    target = tmp_path / "made"
    text = f"touch {target}\npython -m text_dedup.minhash --path $(touch {target}) ; touch {target}"
    of_script(text)
    assert not target.exists()


def tokens(text: str) -> list[str]:
    return [token for token in re.split(r"\W", text.lower()) if token]


def shingles(text: str) -> set[tuple[str, ...]]:
    words = tokens(text)
    return {tuple(words[i : i + 5]) for i in range(max(len(words) - 4, 1))}


def jaccard(one: str, other: str) -> float:
    return len(shingles(one) & shingles(other)) / len(shingles(one) | shingles(other))


def test_minhash_keeps_the_documents_of_their_rule(bench) -> None:
    """200 documents: near copies with 95 % of the shingles, others that share nothing, and short
    ones, of which theirs keeps none."""
    draw = random.Random(3)
    texts: list[str] = []
    for i in range(200):
        if i % 20 == 19:
            texts.append("Only four words, here.")
        elif i % 3 == 2:
            words = texts[i - draw.randint(1, 2)].split(" ")
            texts.append(" ".join([*words[:-1], f"changed{i}"]).upper())
        else:
            texts.append(" ".join(f"w{draw.randrange(10**6)}" for _ in range(200)))
    kept: list[int] = []
    for i, text in enumerate(texts):
        near = (
            len(shingles(text) & shingles(texts[k]))
            >= 0.7 * len(shingles(text) | shingles(texts[k]))
            for k in kept
        )
        if len(tokens(text)) >= 5 and not any(near):
            kept.append(i)
    rows = [{"id": str(i), "text": text} for i, text in enumerate(texts)]
    done = of_toml(TOML.replace('"body"', '"text"'))
    bench.run([{step.step: settings(step)} for step in done.steps], bench.jsonl("in.jsonl", rows))
    assert sorted(map(int, bench.ids())) == kept and 100 < len(kept) < 180


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (TOML.replace("0.7", '"much"'), "config.toml:9: minhash.threshold must be a number"),
        (TOML.replace("path =", "path = 3\nx ="), ""),
        ('algorithm = "algorithm_name"', "config.toml: algorithm must be a mapping"),
    ],
)
def test_a_mistake_is_one_line_with_its_place(text: str, message: str) -> None:
    if message:
        with pytest.raises(UsageError, match=message):
            of_toml(text)
    else:
        assert of_toml(text).total == 1


def test_a_script_with_a_quotation_mark_that_is_open() -> None:
    with pytest.raises(UsageError, match=r"run\.sh:2: No closing quotation"):
        of_script("\npython -m text_dedup.minhash --path 'a")


def test_an_unknown_algorithm_is_not_mapped() -> None:
    done = of_toml(TOML.replace('"minhash"', '"new_one"'))
    assert not done.steps and done.remarks[0].unmapped
