"""CCNet's form of a text and its perplexity; its cut-offs for its own models alone."""

from __future__ import annotations

import hashlib
import re
import unicodedata
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from curate.scoring.perplexity.model import CUTOFFS, KenlmModel
from curate.scoring.perplexity.model_file import KENLM_MAGIC, write_arpa
from curate.scoring.perplexity.perplexity import Perplexity
from curate.scoring.perplexity.sentences import ccnet_text, train_pieces
from llmcurate.base.errors import UsageError

PUNCTUATION = dict(
    zip(
        "，。、„”“«»１」「《》´∶：？！（）；–—．～’…━〈〉【】％►",
        (
            ",", ".", ",", '"', '"', '"', '"', '"', '"', '"', '"', '"', '"', "'", ":", ":", "?",
            "!", "(", ")", ";", "-", " - ", ". ", "~", "'", "...", "-", "<", ">", "[", "]", "%",
            "-",
        ),
        strict=True,
    )
)  # fmt: skip


def by_the_paper(text: str) -> str:
    """Character by character, in the order of the steps."""
    text = text.strip().lower()
    text = "".join(c for c in unicodedata.normalize("NFD", text) if unicodedata.category(c) != "Mn")
    text = "".join("0" if unicodedata.category(c) == "Nd" else c for c in text)
    text = "".join(PUNCTUATION.get(c, c) for c in text)
    return "".join(c for c in text if not (ord(c) < 32 or 127 <= ord(c) < 160))


@settings(max_examples=200, deadline=None)
@given(st.text() | st.text("aÉü1١１„—…\n\t\x85 「㍿İß", max_size=30))
def test_the_normal_form_is_that_of_the_steps_one_after_the_other(text: str) -> None:
    assert ccnet_text(text) == by_the_paper(text)


def test_lines_are_glued_without_a_space() -> None:
    assert ccnet_text(" Überall 1234.\nNext—“Déjà” … ") == 'uberall 0000.next - "deja" ...'


@pytest.fixture(scope="module")
def lines(draw_sentences: Any) -> list[str]:
    letters = str.maketrans("w0123456789", "Öabeiklmrst")  # digits would all be 0
    texts = (" ".join(s).translate(letters) for s in draw_sentences(300, 40))
    return [f"Él {text}, № {len(text)}.\nNext" for text in texts] + ["鐵 ended"]


@pytest.fixture(scope="module")
def pieces(lines: list[str]) -> bytes:
    return train_pieces(lambda: [pa.array(lines, pa.large_string())], "ccnet", 60)


@pytest.fixture(scope="module")
def model(
    tmp_path_factory: pytest.TempPathFactory, train_on: Any, lines: list[str], pieces: bytes
) -> Any:
    how = {"variant": "ccnet", "unit": "pieces", "pieces": pieces, "fallback": True, "order": 4}
    return train_on(tmp_path_factory.mktemp("ccnet"), lines, **how)


def test_perplexity_is_that_of_ccnets_own_steps(
    model: Any, lines: list[str], pieces: bytes, tmp_path: Path
) -> None:
    """KenLM and SentencePiece put together as CCNet does; then the same rounded numbers."""
    pytest.importorskip("kenlm")
    import kenlm
    import sentencepiece

    write_arpa(tmp_path / "xx.arpa.bin", model.data)
    config = kenlm.Config()
    config.show_progress, config.arpa_complain = False, kenlm.ARPALoadComplain.NONE
    other = kenlm.Model(str(tmp_path / "xx.arpa.bin"), config)
    processor = sentencepiece.SentencePieceProcessor(model_proto=pieces)
    # Letters that SentencePiece has no piece for are words by themselves, in CCNet as here.
    texts = [*lines, "鐵人 鐵", "Жо", "東京 Ω"]
    texts.append("Something else — entirely: ９９ «quotes»\r\nand\x00NUL")
    want = []
    for text in texts:
        joined = " ".join(processor.encode(ccnet_text(text), out_type=str))
        want.append(round(10.0 ** (-other.score(joined) / (len(joined.split()) + 1)), 1))
    measured = model.perplexity(pa.array([*texts, "", None], pa.large_string()))
    assert measured[:-2].tolist() == want
    assert all(value != value for value in measured[-2:])  # nothing to score
    (tmp_path / "xx.sp.model").write_bytes(pieces)
    through = KenlmModel(tmp_path / "xx.arpa.bin", tmp_path / "xx.sp.model")
    assert through.perplexity(pa.array(texts, pa.large_string())).tolist() == want


def test_words_of_another_script_are_not_one_repeated_unknown_word(
    model: Any, lines: list[str]
) -> None:
    measured = model.perplexity(pa.array([lines[0], "железо и люди " * 5], pa.large_string()))
    assert measured[1] > 10 * measured[0]
    assert "鐵".encode() in model.data.words.words()  # it was seen


def test_pieces_are_the_same_at_each_training(lines: list[str], pieces: bytes) -> None:
    assert train_pieces(lambda: [pa.array(lines, pa.large_string())], "ccnet", 60) == pieces


def refused(folder: Path, what: str, **settings: Any) -> None:
    step = Perplexity(model=f"{folder}/{{lang}}.arpa.bin", cutoffs="ccnet", **settings)
    with pytest.raises(UsageError, match=what):
        step.identity()


def test_published_cutoffs_hold_for_ccnets_own_models_alone(model: Any, tmp_path: Path) -> None:
    ours = tmp_path / "ours"
    ours.mkdir()
    (ours / "en.arpa.bin").write_bytes(Path(model.path).read_bytes())
    refused(ours, "use cutoffs: own")
    theirs = tmp_path / "theirs"
    theirs.mkdir()
    data = KENLM_MAGIC + b" format version 5\n\0"
    (theirs / "en.arpa.bin").write_bytes(data)
    refused(theirs, "give its sha256")
    refused(theirs, "differs from ccnet_sha256", ccnet_sha256={"en": "0" * 64})
    (theirs / "en.sp.model").write_bytes(b"")
    own = Perplexity(
        model=f"{theirs}/{{lang}}.arpa.bin",
        cutoffs="ccnet",
        ccnet_sha256={"en": hashlib.sha256(data).hexdigest().upper()},
    )
    assert own.identity().contents["languages"] == ["en"]
    assert CUTOFFS["en"] == (340, 520)


@pytest.mark.parametrize(
    ("vocab", "says"),
    [(9999, r"gives at most \d+ pieces; ask for"), (10, r"need at least \d+ pieces")],
)
def test_a_vocabulary_that_does_not_fit_the_text_is_a_one_line_error(bench, vocab, says):
    bench.jsonl("in.jsonl", [{"text": "Some words of a text, and others after them."}] * 3)
    done = bench.command(
        *("perplexity", "train", "in.jsonl", "-o", "out", "--variant", "ccnet", "--vocab", vocab)
    )
    assert done.returncode == 2, done.stderr
    line = done.stderr.splitlines()[-1]
    assert re.match(rf"llmcurate: vocab {vocab}: .*{says}", line), line
