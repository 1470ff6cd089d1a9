"""What a card says in words: what the tokenizer is, what of a text comes back, where figures come
from."""

from __future__ import annotations

from typing import Any

from tokenize_kit.card.markdown import code

_UNSPELLED = {
    "bpe": "what no longer token spells is spelled in bytes",
    "char-bpe": "a character without a token is spelled in bytes",
    "unigram": "a character without a token is spelled in bytes",
}
# key of `measured`, title, how it is written
_FIGURES = (
    ("bytes_a_token", "bytes a token", "{:.3f}"),
    ("characters_a_token", "characters a token", "{:.3f}"),
    ("fertility", "tokens a word (fertility)", "{:.3f}"),
    ("whole_share", "words kept whole", "{:.2%}"),
    ("tokens_a_letter", "tokens a letter, scripts without spaces", "{:.3f}"),
    ("unknown_share", "unknown tokens", "{:.2%}"),
    ("byte_share", "tokens of a single byte (byte fallback)", "{:.2%}"),
    ("parts_share", "tokens that are parts of characters", "{:.2%}"),
    ("used", "tokens that occur", "{:,}"),
    ("used_share", "vocabulary used", "{:.2%}"),
    ("unreachable", "tokens that no text gives", "{:,}"),
    ("lost", "texts that do not come back exactly", "{:,}"),
)


def about(card: dict[str, Any]) -> str:
    """What it is, in a sentence."""
    if "trainer" in card:
        said = f"Trained by {card['trainer']} on {card['documents']:,} documents"
        return f"{said} ({card['bytes']:,} bytes of text)."
    if "extended_from" in card:
        return (
            f"{card['new_tokens']:,} tokens were added to a tokenizer of {card['old_tokens']:,};"
            " the ids of the old ones are as they were."
        )
    if "pruned_from" in card:
        return (
            f"{card['dropped']:,} of {card['old_tokens']:,} tokens were taken away;"
            f" `{card['map']}` has the new id of every old one."
        )
    return f"Converted to {card['format']} from {card['converted_from']}, with the same ids."


def kept(card: dict[str, Any]) -> str:
    """Whether texts come back."""
    if "lossless" not in card:
        return "A text is prepared for it, and comes back, as by the tokenizer it was made from."
    if card["model"] == "wordpiece":
        said = "Texts do not come back exactly: white space is left out, and a word that the "
        said += "vocabulary cannot spell is an unknown token."
        changed = card["normalisation"]
        return said if changed == "none" else f"{said} Before that it is normalised ({changed})."
    unspelled = _UNSPELLED[card["model"]]
    if card["lossless"]:
        return f"Every text comes back exactly: nothing is normalised, and {unspelled}."
    changes = []
    if card["normalisation"] != "none":
        changes.append(f"it is normalised ({card['normalisation']}) before it is cut")
    if card["space_token"]:
        changes.append(f"a {code(card['space_token'])} in it comes back as a space")
    return f"A text comes back changed in this alone: {', and '.join(changes)}; {unspelled}."


def figures_of(card: dict[str, Any]) -> tuple[str, list[tuple[str, str]]]:
    """(on what they were measured, (title, value) of each)."""
    found = card.get("measured")
    rows = []
    if card.get("bytes_a_token_before"):
        for when in ("before", "after"):
            rows.append((f"bytes a token {when}", f"{card[f'bytes_a_token_{when}']:.3f}"))
    if not found:
        return "", rows
    said = f"Measured on {found['on']}, drawn by a hash with seed {found['seed']}:"
    said += f" {found['texts']:,} pieces of {found['bytes']:,} bytes in all."
    if "training" in found["on"] or "learned" in found["on"]:
        said += " On other text they are worse: `llmcurate tokenizer eval` measures there."
    for key, title, form in _FIGURES:
        if found[key] is not None:
            rows.append((title, form.format(found[key])))
    return said, rows


def made(card: dict[str, Any]) -> list[tuple[str, Any]]:
    """(title, value) of what it was made of and by."""
    names = {
        "trainer": "trainer",
        "documents": "documents",
        "bytes": "bytes of text",
        "texts_xxh3": "sum of the texts' xxh3-128",
        "extended_from": "extended from",
        "pruned_from": "pruned from",
        "source": "converted from",
        "source_sha256": "its sha256",
        "old_tokens": "tokens before",
        "new_tokens": "tokens new",
        "vocab": "tokens",
        "merges": "merges",
        "character_coverage": "share of the text whose characters are tokens",
        "verified_texts": "texts on which ids were compared",
        "round_trip_checked": "texts tried for coming back",
        "chat_template_sha256": "sha256 of the chat template",
        "tokenizer_sha256": "sha256 of the tokenizer's file",
    }
    if "pruned_from" in card:
        names["new_tokens"] = "tokens that stay"
    rows = [(title, card[key]) for key, title in names.items() if card.get(key)]
    if card.get("sample"):
        sample = card["sample"]
        said = f"{sample['bytes_asked']:,} bytes asked of {sample['bytes_of']:,}"
        rows.append(("sample", f"{said}, by {sample['by']}, seed {sample['seed']}"))
    if card.get("dictionary"):
        words = card["dictionary"]
        rows.append(("dictionary", f"{words['words']:,} words, sha256 {words['sha256']}"))
    return rows
