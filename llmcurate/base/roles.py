"""The roles of special tokens: which token begins a text, which ones end it, and so on.

What the owner of a tokenizer wrote decides. These files beside the tokenizer are read, and the
first one that states a role counts: token_roles.json (written by llmcurate),
generation_config.json, config.json, tokenizer_config.json, special_tokens_map.json, and the
post-processor in tokenizer.json. For a role that none of them states, published spellings such as
`<|endoftext|>` are looked up, and `Roles.origin` says so.
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
# Files beside a tokenizer that belong to it. They are copied wherever it goes.
BESIDE = (
    FILE,
    "generation_config.json",
    "tokenizer_config.json",
    "special_tokens_map.json",
    "chat_template.jinja",
)

# Published spellings of tokens by role, in order of preference.
SPELLINGS: dict[str, tuple[str, ...]] = {
    "begin": ("<|begin_of_text|>", "<|startoftext|>", "<s>", "<bos>", "[CLS]"),
    "ends": ("<|endoftext|>", "<|end_of_text|>", "</s>", "<eos>", "<|eot_id|>", "[SEP]"),
    "pad": ("<pad>", "<|pad|>", "[PAD]"),
    "unknown": ("<unk>", "[UNK]"),
    "mask": ("[MASK]", "<mask>", "<|mask|>"),
    "cls": ("[CLS]", "<cls>"),
    "sep": ("[SEP]", "<sep>"),
}
SPELLING = "spelling"  # the origin of a role that is known by its spelling only

# The names that transformers gives to the roles.
TOKEN_NAMES = {
    "begin": "bos_token",
    "ends": "eos_token",
    "pad": "pad_token",
    "unknown": "unk_token",
    "mask": "mask_token",
    "cls": "cls_token",
    "sep": "sep_token",
}


@dataclass(frozen=True, kw_only=True)
class Roles:
    """The ids of special tokens by role; None or empty where a tokenizer has no such token.

    ``begin`` is the beginning-of-text token. ``ends`` are all tokens that end a text; the first is
    put behind documents, and any of them ends a generated text. ``before`` and ``behind`` are the
    ids that the tokenizer puts around a text when transformers encodes it. ``origin`` has the name
    of the file, or ``spelling``, that each role comes from."""

    begin: int | None = None
    ends: tuple[int, ...] = ()
    pad: int | None = None
    unknown: int | None = None
    mask: int | None = None
    cls: int | None = None
    sep: int | None = None
    before: tuple[int, ...] = ()
    behind: tuple[int, ...] = ()
    origin: Mapping[str, str] = field(default_factory=dict, compare=False)

    @property
    def end(self) -> int | None:
        """The id that ends a document."""
        return self.ends[0] if self.ends else None

    def renumbered(self, new: Callable[[int], int | None]) -> Roles:
        """Return the roles after the ids changed. new: the new id of an old one, None if the token
        is gone."""

        def of(value: Any) -> Any:
            if isinstance(value, tuple):
                return tuple(n for n in map(new, value) if n is not None)
            return None if value is None else new(value)

        return replace(self, **{name: of(getattr(self, name)) for name in _NAMES})

    def write(self, folder: Path) -> None:
        """Write token_roles.json."""
        write_atomic(folder / FILE, encode_json(asdict(self)))


_NAMES = tuple(each.name for each in fields(Roles) if each.name != "origin")


def read_roles(
    tokenizer: Path, ids: Mapping[str, int], special: Mapping[str, int] | None = None
) -> Roles:
    """Return the roles of the tokens of ``tokenizer``, a tokenizer file of any format; only a
    tokenizer.json is read, for its post-processor. ids: the id of each token; special: those of
    special tokens, which alone are found by their spelling (default: ids). Statements about tokens
    that the tokenizer does not have are ignored. Raises UsageError for files that are not JSON."""
    folder = tokenizer.parent
    values: dict[str, Any] = {}
    origin: dict[str, str] = {}
    known = set(ids.values())

    def state(role: str, value: Any, source: str) -> None:
        several = role in ("ends", "before", "behind")
        named = [_number(each, ids) for each in (value if isinstance(value, list) else [value])]
        numbers = [number for number in named if number in known]
        if role not in values and (numbers or (several and value == [])):
            values[role] = tuple(dict.fromkeys(numbers)) if several else numbers[0]
            origin[role] = source

    if (folder / FILE).is_file():
        record = read_json(folder / FILE)
        sources = record.get("origin")
        for role in _NAMES:
            if record.get(role) is not None:
                state(role, record[role], FILE)
        if isinstance(sources, dict):
            origin |= {role: str(sources[role]) for role in origin if role in sources}
    for name in ("generation_config.json", "config.json"):
        if (folder / name).is_file():
            stated = read_json(folder / name)
            for role, token in TOKEN_NAMES.items():
                state(role, stated.get(f"{token}_id"), name)
    config: dict[str, Any] = {}
    for name in ("tokenizer_config.json", "special_tokens_map.json"):
        if (folder / name).is_file():
            stated = read_json(folder / name)
            config = config or stated
            for role, token in TOKEN_NAMES.items():
                state(role, stated.get(token), name)
    if tokenizer.name.endswith(".json") and tokenizer.is_file():
        around = _around(read_json(tokenizer, limit=256 << 20).get("post_processor"))
        for role, value in zip(("before", "behind"), around, strict=True):
            state(role, value or None, tokenizer.name)
    for role, flag, token in (
        ("before", "add_bos_token", values.get("begin")),
        ("behind", "add_eos_token", values.get("ends", (None,))[0]),
    ):
        if config.get(flag) is True and role not in values:
            state(role, [token], "tokenizer_config.json")
    if values.get("before"):
        state("begin", values["before"][0], origin["before"])
    if values.get("behind"):
        state("ends", values["behind"][-1], origin["behind"])
    spelled = ids if special is None else special
    for role, names in SPELLINGS.items():
        state(role, next((spelled[name] for name in names if name in spelled), None), SPELLING)
    return Roles(**values, origin=origin)


def with_tokens(
    roles: Roles,
    ids: Mapping[str, int],
    *,
    begin: str | None = None,
    end: str | None = None,
) -> Roles:
    """Return the roles with tokens that the user names: --bos-token and --eos-token. Raises
    UsageError if the tokenizer does not have them."""
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


def copy_beside(tokenizer: Path, folder: Path) -> None:
    """Copy the files that belong to a tokenizer (BESIDE) from its folder to another one."""
    for name in BESIDE:
        source = tokenizer.parent / name
        if source.is_file():
            write_atomic(folder / name, source.read_bytes())


def _number(value: Any, ids: Mapping[str, int]) -> int | None:
    """Return the id that a configuration names by number, spelling or AddedToken."""
    if isinstance(value, dict):
        value = value.get("content")
    if isinstance(value, str):
        return ids.get(value)
    return value if isinstance(value, int) and not isinstance(value, bool) else None


def _around(step: Any) -> tuple[list[int | str], list[int | str]]:
    """Return the tokens that a post-processor of `tokenizers` puts before and behind one text."""
    before: list[int | str] = []
    behind: list[int | str] = []
    for part in _parts(step):
        kind = part.get("type")
        if kind in ("BertProcessing", "RobertaProcessing"):
            before.append(_second(part.get("cls")))
            behind.append(_second(part.get("sep")))
        elif kind == "TemplateProcessing" and isinstance(part.get("single"), list):
            side = before
            tokens = part.get("special_tokens")
            for piece in part["single"]:
                if isinstance(piece, dict) and "Sequence" in piece:
                    side = behind
                elif isinstance(piece, dict) and isinstance(piece.get("SpecialToken"), dict):
                    name = piece["SpecialToken"].get("id")
                    entry = tokens.get(name, {}) if isinstance(tokens, dict) else {}
                    side += entry.get("ids", []) if isinstance(entry, dict) else []
    return before, behind


def _parts(step: Any) -> Iterator[dict[str, Any]]:
    if isinstance(step, dict):
        if step.get("type") == "Sequence" and isinstance(step.get("processors"), list):
            for part in step["processors"]:
                yield from _parts(part)
        else:
            yield step


def _second(pair: Any) -> Any:
    return pair[1] if isinstance(pair, list) and len(pair) == 2 else None
