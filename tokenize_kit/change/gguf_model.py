"""Put a tokenizer into the GGUF file of a model."""

from __future__ import annotations

from pathlib import Path
from tempfile import TemporaryDirectory

import gguf

from llmcurate.base.disk.units import counted
from llmcurate.base.errors import UsageError
from llmcurate.base.roles import FILE, read_roles
from tokenize_kit.change.convert import convert
from tokenize_kit.formats.forms import CONTROL, UNUSED

_KEY = "tokenizer.ggml."


def add_tokenizer(writer: gguf.GGUFWriter, path: Path, size: int) -> None:
    """Add a tokenizer.json's keys to a GGUF file. Unused tokens fill the vocabulary up to `size`,
    that of the model. Each text is set to begin with the token that began texts in training: the
    one in token_roles.json or, without this file, the end-of-text token. Raises CannotHold naming a
    feature that llama.cpp lacks, and UsageError if there are more tokens than `size`."""
    with TemporaryDirectory() as folder:
        file = Path(folder) / "tokenizer.gguf"
        convert(path, file, "gguf")
        fields = gguf.GGUFReader(file).fields
        values = {n: fields[n].contents() for n in fields if n.startswith(_KEY)}
    names, types = values[f"{_KEY}tokens"], values[f"{_KEY}token_type"]
    if len(names) > size:
        tokens = counted(len(names), "token")
        raise UsageError(f"{path}: it has {tokens} and the model only {size:,}")
    ids = {name: number for number, name in enumerate(names) if types[number] == CONTROL}
    roles = read_roles(path, ids)
    begin = roles.before if (path.parent / FILE).is_file() else roles.ends[:1]
    if len(begin) == 1:
        values |= {f"{_KEY}bos_token_id": begin[0], f"{_KEY}add_bos_token": True}
    scores = values.get(f"{_KEY}scores", [])
    for number in range(len(names), size):
        names.append(f"[PAD{number}]")
        types.append(UNUSED)
        scores.append(0.0)
    for name, value in values.items():
        kinds = fields[name].types if name in fields else [gguf.GGUFValueType.UINT32]
        writer.add_key_value(name, value, kinds[0], kinds[-1])
