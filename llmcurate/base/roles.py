"""The roles of special tokens: which token begins a text, which ones end it, and so on.

A role comes from the first file that states it, in this order. Beside the tokenizer:
token_roles.json (written by llmcurate), generation_config.json, config.json, tokenizer_config.json,
special_tokens_map.json. Then the tokenizer's own file: the post-processor of a tokenizer.json, the
keys of a GGUF file, the ids of a SentencePiece model. If no file states a role, published spellings
such as `<|endoftext|>` are looked up, and `Roles.origin` is then `spelling`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import asdict, dataclass, field, fields, replace
from pathlib import Path
from typing import Any

from llmcurate.base.disk.files import write_atomic
from llmcurate.base.disk.sealed_json import encode_json, read_json
from llmcurate.base.errors import UsageError

FILE = "token_roles.json"
# Files beside a tokenizer that belong to it, and are copied with it.
BESIDE = (
    FILE,
    "generation_config.json",
    "tokenizer_config.json",
    "special_tokens_map.json",
    "chat_template.jinja",
)

# Published spellings of tokens by role, in order of preference.
SPELLINGS: dict[str, tuple[str, ...]] = {
    "begin": (
        *("<|begin_of_text|>", "<|startoftext|>", "<s>", "<bos>", "[CLS]"),
        "<｜begin▁of▁sentence｜>",
    ),
    "ends": (
        *("<|endoftext|>", "<|end_of_text|>", "</s>", "<eos>", "<|eot_id|>", "[SEP]"),
        "<｜end▁of▁sentence｜>",
    ),
    "pad": ("<pad>", "<|pad|>", "[PAD]", "<｜▁pad▁｜>"),
    "unknown": ("<unk>", "[UNK]"),
    "mask": ("[MASK]", "<mask>", "<|mask|>"),
    "cls": ("[CLS]", "<cls>"),
    "sep": ("[SEP]", "<sep>"),
}
SPELLING = "spelling"  # the origin of a role that is known by its spelling only

# The names that transformers gives to the roles.
TOKEN_NAMES = {
    "ends": "eos_token",
    "begin": "bos_token",
    "pad": "pad_token",
    "unknown": "unk_token",
    "cls": "cls_token",
    "sep": "sep_token",
    "mask": "mask_token",
}


@dataclass(frozen=True, kw_only=True)
class Roles:
    """The ids of a tokenizer's special tokens, by role. A role without a token is None or ().
    ``origin`` gives the source of each role: the name of a file, an option of the user, or
    ``spelling`` if only the token's spelling shows the role."""

    begin: int | None = None  # begins a text
    ends: tuple[int, ...] = ()  # each ends a generated text; the first one ends documents
    pad: int | None = None
    unknown: int | None = None
    mask: int | None = None
    cls: int | None = None
    sep: int | None = None
    before: tuple[int, ...] = ()  # put before a text by transformers, when it encodes the text
    behind: tuple[int, ...] = ()  # put after a text by transformers
    origin: Mapping[str, str] = field(default_factory=dict, compare=False)

    @property
    def end(self) -> int | None:
        """The id that ends a document."""
        return self.ends[0] if self.ends else None

    def renumbered(self, new: Callable[[int], int | None]) -> Roles:
        """Return the roles with new ids. new: the function that returns the new id for an old id,
        or None if the token was removed."""

        def of(value: Any) -> Any:
            if isinstance(value, tuple):
                return tuple(n for n in map(new, value) if n is not None)
            return None if value is None else new(value)

        return replace(self, **{name: of(getattr(self, name)) for name in _NAMES})

    def write(self, folder: Path) -> None:
        """Write the roles to the file token_roles.json in a folder."""
        write_atomic(folder / FILE, encode_json(asdict(self)))


_NAMES = tuple(each.name for each in fields(Roles) if each.name != "origin")
_SEVERAL = ("ends", "before", "behind")
_NAMING = ("tokenizer_config.json", "special_tokens_map.json")  # files with spellings, not ids


def read_roles(
    tokenizer: Path,
    ids: Mapping[str, int],
    special: Mapping[str, int] | None = None,
    own: Roles | None = None,
) -> Roles:
    """Return the roles of a tokenizer's special tokens, as stated by its file and the files beside
    it. ``tokenizer``: the file, of any format. Only a tokenizer.json is opened, for its
    post-processor; for other formats, ``own`` has the roles that the file states. ids: the id of
    each token. special: the id of each special token (default: ids). If no file states a role, a
    usual spelling, such as ``</s>``, is looked up in ``special``. Roles of tokens that the
    tokenizer lacks are ignored. Raises UsageError for files that are not JSON."""
    folder = tokenizer.parent
    values: dict[str, Any] = {}
    origin: dict[str, str] = {}
    known = set(ids.values())

    def state(role: str, value: Any, source: str) -> None:
        several = role in _SEVERAL
        listed = value if isinstance(value, list | tuple) else [value]
        named = [_number(each, ids) for each in listed]
        numbers = [number for number in named if number in known]
        if role not in values and (numbers or (several and value == [])):
            kept = dict.fromkeys(numbers) if role == "ends" else numbers
            values[role] = tuple(kept) if several else numbers[0]
            origin[role] = source

    config: dict[str, Any] = {}
    for name in (FILE, "generation_config.json", "config.json", *_NAMING):
        stated = read_json(folder / name) if (folder / name).is_file() else {}
        config = config or (stated if name in _NAMING else {})
        for role in _NAMES:
            key = TOKEN_NAMES.get(role, role) + ("" if name in _NAMING else "_id")
            state(role, stated.get(role if name == FILE else key), name)
        if name == FILE and isinstance(sources := stated.get("origin"), dict):
            origin |= {role: str(sources[role]) for role in origin if role in sources}
    if own is None and tokenizer.suffix == ".json" and tokenizer.is_file():
        # In transformers, the post-processor decides, whatever add_bos_token says.
        try:
            around = _around(read_json(tokenizer, limit=256 << 20).get("post_processor"))
        except (LookupError, TypeError, AttributeError):
            raise UsageError(f"{tokenizer}: its post_processor is damaged") from None
        own = Roles(before=around[0], behind=around[1])
    for role in _NAMES:
        state(role, getattr(own, role, None), tokenizer.name)
    if tokenizer.suffix != ".json":
        for role, of, flag in (("before", "begin", "bos"), ("behind", "ends", "eos")):
            put = values.get(of)
            if config.get(f"add_{flag}_token") is True:
                state(role, put[0] if isinstance(put, tuple) else put, "tokenizer_config.json")
    if values.get("before"):
        state("begin", values["before"][0], origin["before"])
    if values.get("behind"):
        state("ends", values["behind"][-1], origin["behind"])
    spelled = spelled_roles(ids if special is None else special)
    for role in _NAMES:
        state(role, getattr(spelled, role), SPELLING)
    return Roles(**values, origin=origin)


def spelled_roles(ids: Mapping[str, int]) -> Roles:
    """Return the roles that tokens have by their spelling. ids: the id of each token."""
    tokens = (
        (role, next(filter(ids.__contains__, names), "")) for role, names in SPELLINGS.items()
    )
    values: dict[str, Any] = {role: ids[name] for role, name in tokens if name}
    origin = dict.fromkeys(values, SPELLING)
    ends = (values.pop("ends"),) if "ends" in values else ()
    return Roles(**values, ends=ends, origin=origin)


def with_tokens(
    roles: Roles,
    ids: Mapping[str, int],
    *,
    begin: str | None = None,
    end: str | None = None,
) -> Roles:
    """Return the roles with the tokens of the user's --bos-token and --eos-token. Raises UsageError
    if the tokenizer does not have them."""
    for option, token in (("--bos-token", begin), ("--eos-token", end)):
        if token is not None and token not in ids:
            raise UsageError(f"{option} {token}: the tokenizer has no such token")
    origin = dict(roles.origin)
    if begin is not None:
        roles = replace(roles, begin=ids[begin])
        origin["begin"] = "--bos-token"
    if end is not None:
        others = tuple(number for number in roles.ends if number != ids[end])
        roles = replace(roles, ends=(ids[end], *others))
        origin["ends"] = "--eos-token"
    return replace(roles, origin=origin)


def copy_beside(tokenizer: Path, folder: Path, roles: Roles | None = None) -> list[str]:
    """Copy the files that belong to a tokenizer (BESIDE) from its folder into ``folder``. Return
    the names of the files. roles: the roles of the special tokens. token_roles.json is also written
    if a role comes from elsewhere (an option, config.json), because the new folder would not show
    it."""
    names = [name for name in BESIDE if (tokenizer.parent / name).is_file()]
    for name in names:
        write_atomic(folder / name, (tokenizer.parent / name).read_bytes())
    if roles and set(roles.origin.values()) - {*BESIDE, tokenizer.name, SPELLING}:
        roles.write(folder)
        names = [FILE, *(name for name in names if name != FILE)]
    return names


def _number(value: Any, ids: Mapping[str, int]) -> int | None:
    """Return the id that a configuration names by number, spelling or AddedToken."""
    named = value.get("content") if isinstance(value, dict) else value
    if isinstance(named, str):
        return ids.get(named)
    return value if isinstance(value, int) and not isinstance(value, bool) else None


def _around(step: Any) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """Return the ids that a post-processor of `tokenizers` puts before and after a single text."""
    before: list[int] = []
    behind: list[int] = []
    for part in _parts(step):
        kind = part.get("type")
        if kind in ("BertProcessing", "RobertaProcessing"):
            before.append(part["cls"][1])
            behind.append(part["sep"][1])
        elif kind == "TemplateProcessing":
            side = before
            for piece in part["single"]:
                if "Sequence" in piece:
                    side = behind
                else:
                    side += part["special_tokens"][piece["SpecialToken"]["id"]]["ids"]
    return tuple(before), tuple(behind)


def _parts(step: Any) -> Iterator[dict[str, Any]]:
    if isinstance(step, dict) and step.get("type") == "Sequence":
        for part in step["processors"]:
            yield from _parts(part)
    elif isinstance(step, dict):
        yield step
