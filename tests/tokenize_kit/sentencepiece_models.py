"""Small models of SentencePiece, texts they trip over, and ids of an encoder as lists."""

from __future__ import annotations

import io

import numpy as np
import pytest
from hypothesis import strategies as st

from tokenize_kit.change.verify import pack_texts

LINES = [
    "the cat sat on the mat, then that cat sat on that mat",
    "กินข้าวที่บ้าน กินที่บ้านน้ำตา",
    "a1b22 can't  stop Éé the ﬁne café",
    "我们在这里我们在那里这里那里",
    "for i in range(10):    print(i)",
]
# What normalisers, spaces, bytes and pieces trip over.
ODD = (
    "ab the  \t\n\r\u00a0\u2581\u3000éÅe\u0301\u0301ｱﾞがか\u3099ำกี่①½ﬁﷺ\u200b\u200d"
    "\ufeff😀👨‍👩‍👧🏽\x00\x01"
    "我们1２\u1100\u1161\u11a8각\U0010ffff\ufffd\u0600\u0915\u094d\u0937\u1680\u2028"
)
PARTS = ["<0x41>", "</s>", "<unk>", "<x>", "the ", " the", "\r\n", " " * 9]
HARD = st.one_of(
    st.text(st.sampled_from(ODD), max_size=40),
    st.lists(st.sampled_from([*ODD, *PARTS]), max_size=20).map("".join),
    st.text(st.characters(exclude_categories=["Cs"]), max_size=30),
)


def trained(kind, **options):
    """A model file of LINES, of 420 pieces or fewer."""
    sentencepiece = pytest.importorskip("sentencepiece")
    model = io.BytesIO()
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter(LINES * 9),
        model_writer=model,
        model_type=kind,
        hard_vocab_limit=False,
        num_threads=1,
        minloglevel=2,
        **({"vocab_size": 420} | options),
    )
    return model.getvalue()


def encoded(encoder, texts):
    ids, sizes = encoder.encode(*pack_texts(texts))
    return [part.tolist() for part in np.split(ids, np.cumsum(sizes)[:-1])]
