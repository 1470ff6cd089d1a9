"""The tokens that are looked for in a text before its pieces: special ones, and one for spaces."""

from __future__ import annotations

from collections.abc import Sequence

from tokenizers import AddedToken, Tokenizer, decoders, normalizers


def add_tokens(tokenizer: Tokenizer, special: Sequence[str], space: str | None = None) -> None:
    """Tokens that the vocabulary has, made special; space: the one that every space becomes.

    WangchanBERTa's `<_>`: a space is written as the token before the text is cut, so that it is
    never part of another one, and read back from it. A text that spells the token gets a space.
    """
    tokenizer.add_special_tokens(
        [AddedToken(token, special=True, normalized=False) for token in special]
    )
    if space is None:
        return
    tokenizer.normalizer = normalizers.Replace(" ", space)
    tokenizer.decoder = decoders.Sequence([tokenizer.decoder, decoders.Replace(space, " ")])
    tokenizer.add_tokens([AddedToken(space, special=False, normalized=True)])
