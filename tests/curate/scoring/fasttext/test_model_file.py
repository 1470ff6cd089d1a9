"""A model file is whole, or is refused before the library sees it."""

from __future__ import annotations

import random
import struct
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from curate.scoring.fasttext.model_file import read_header
from curate.scoring.language.model import Model
from llmcurate.base.errors import UsageError


def test_the_header_says_what_the_model_is(model: Path) -> None:
    header = read_header(model)
    assert sorted(header.labels) == ["ar", "de", "en", "es", "fr", "hi", "ja", "ru", "th", "zh"]
    assert (header.dim, header.minn, header.maxn, header.loss) == (16, 1, 3, "softmax")
    assert not header.quantized


def test_a_model_of_format_11_has_no_character_n_grams(model: Path, tmp_path: Path) -> None:
    data = bytearray(model.read_bytes())
    struct.pack_into("<i", data, 4, 11)
    (tmp_path / "old.bin").write_bytes(data)
    assert (read_header(model).maxn, read_header(tmp_path / "old.bin").maxn) == (3, 0)


def test_the_labels_of_lid_176(ftz: Path) -> None:
    header = read_header(ftz)
    assert len(header.labels) == 176
    assert {"en", "de", "als", "ceb"} <= set(header.labels)
    assert header.quantized
    assert (header.dim, header.minn, header.maxn, header.buckets) == (16, 2, 4, 2_000_000)


def refused(path: Path, data: bytes) -> str:
    path.write_bytes(data)
    with pytest.raises(UsageError) as caught:
        read_header(path)
    assert "\n" not in str(caught.value)
    return str(caught.value)


@pytest.mark.parametrize("data", [b"", b"x", b"PK\x03\x04" + b"0" * 100, b"\0" * 1000])
def test_a_file_of_another_kind_is_named(tmp_path: Path, data: bytes) -> None:
    assert "is not a fastText model" in refused(tmp_path / "a", data)


def test_a_model_cut_anywhere_is_refused(model: Path, tmp_path: Path) -> None:
    data = model.read_bytes()
    draw = random.Random(0)
    sizes = [8, 9, 40, 70, 100, 200, len(data) - 1, *(draw.randrange(8, len(data)) for _ in "123")]
    for size in sizes:
        assert "is truncated" in refused(tmp_path / f"cut{size}", data[:size]), size


def test_a_quantized_model_cut_anywhere_is_refused(ftz: Path, tmp_path: Path) -> None:
    data = ftz.read_bytes()
    for size in (100, 50_000, 200_000, 600_000, len(data) - 10, len(data) - 1):
        assert "truncated" in refused(tmp_path / f"cut{size}", data[:size]), size


def test_bytes_after_the_end_of_a_model_are_refused(model: Path, tmp_path: Path) -> None:
    assert "extra bytes at its end" in refused(tmp_path / "long", model.read_bytes() + b"\0")


@pytest.mark.parametrize(
    ("at", "value", "what"),
    [
        (4, 13, "format version 13"),
        (8, 17, "shape does not match"),  # dim
        (8, -1, "invalid settings"),
        (8 + 4 * 6, 9, "invalid settings"),  # loss
        (8 + 4 * 7, 1, "word vectors"),  # model
        (8 + 4 * 8, 0, "invalid settings"),  # bucket
        (8 + 4 * 8, 1, "shape does not match"),
        (8 + 4 * 8, 1 << 30, "shape does not match"),
        (64, 1 << 30, "invalid dictionary"),  # entries
        (68, 5, "invalid dictionary"),  # words
    ],
)
def test_sizes_that_do_not_fit_the_file_are_refused(
    model: Path, tmp_path: Path, at: int, value: int, what: str
) -> None:
    data = bytearray(model.read_bytes())
    struct.pack_into("<i", data, at, value)
    assert what in refused(tmp_path / "bad", bytes(data))


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"nowhere\.bin: No such file"):
        read_header(tmp_path / "nowhere.bin")


def test_a_damaged_model_is_refused_or_works(
    model: Path, trained: Callable[..., Path], tmp_path: Path
) -> None:
    """Whatever the bytes of a file are, the process that asks it lives."""
    code = """
import sys
import numpy as np
from llmcurate.base.errors import UsageError
from curate.scoring.language.model import Model
line = np.frombuffer(bytearray("The river runs 这条河 ßéя\\n".encode()), np.uint8)
for path in sys.argv[1:]:
    try:
        loaded = Model(path)
        loaded.best(line, np.array([0, len(line)]), np.ones(1, np.bool_))
        loaded.classifier.explain(line.tobytes(), 0)
    except UsageError as error:
        assert "\\n" not in str(error)
"""
    draw = random.Random(0)
    paths = []
    kinds = [model, trained("hs", 2, 2, 4, "packed", 300), trained("ova", 2, 2, 4, "pruned")]
    for number in range(90):
        data = bytearray(kinds[number % 3].read_bytes())
        for _ in range(draw.choice([1, 2, 4])):
            at = draw.randrange(8, draw.choice([100, 400, len(data)]))
            data[at] = draw.choice([0, 1, 127, 255, draw.randrange(256)])
        paths.append(tmp_path / f"{number}.bin")
        paths[-1].write_bytes(data)
    done = subprocess.run([sys.executable, "-c", code, *map(str, paths)], capture_output=True)
    assert done.returncode == 0, done.stderr.decode()


def test_labels_of_another_prefix_keep_it(model: Path, tmp_path: Path) -> None:
    other = tmp_path / "other.bin"
    other.write_bytes(model.read_bytes().replace(b"__label__", b"__class__"))
    assert "__class__en" in read_header(other).labels
    line = np.frombuffer(bytearray(b"The river runs past the old mill.\n"), np.uint8)
    codes, _ = Model(other).best(line, np.array([0, len(line)]), np.ones(1, np.bool_))
    assert read_header(other).labels[codes[0]] == "__class__en"
