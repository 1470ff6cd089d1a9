"""Published tokenizers through every format of `llmcurate tokenizer convert`, and back.

    python benchmarks/published_tokenizers.py FOLDER [NAME ...]

FOLDER has a subfolder for each tokenizer, with one file in it: a tokenizer.json, .model, .gguf or
.tiktoken (then named after its pattern: qwen2.tiktoken). Printed are, for each file and each
format, `same` (the same ids and text, and again after the way back to the first format), what
--allow-loss would lose, or the reason for which the format is refused.
"""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))


def main() -> None:
    from llmcurate.base.errors import LlmcurateError
    from tokenize_kit.change.convert import convert
    from tokenize_kit.change.original import FILES, file_of, kind_of

    folder, names = Path(sys.argv[1]), sys.argv[2:]
    for own in sorted(path for path in folder.iterdir() if path.is_dir()):
        if names and own.name not in names:
            continue
        files = [path for path in own.iterdir() if path.suffix in (".model", ".gguf", ".tiktoken")]
        source = files[0] if files else file_of(own)
        kind = kind_of(source)
        pattern = source.stem if kind == "tiktoken" else None
        for to in FILES:
            if to == kind:
                continue
            print(f"{own.name:<24}{kind:<16}{to:<16}", end="", flush=True)
            with tempfile.TemporaryDirectory() as name:
                out, back = Path(name) / "out", Path(name) / "back"
                try:
                    card = convert(source, out, to, pattern=pattern, allow_loss=True)
                    lost = f"loses {'; '.join(card.lost)}" if card.lost else "same"
                    tried = card.compared
                    print(
                        f"{lost}, {card.verified_texts:,} texts, {tried['added_texts']:,} with"
                        f" {tried['added_tokens']} added tokens",
                        end=", ",
                        flush=True,
                    )
                    returns = kind in FILES and (to != "tiktoken" or card.pattern is not None)
                    if returns:
                        convert(out / FILES[to], back, kind, pattern=card.pattern)
                    print("and back" if returns else "no way back")
                except LlmcurateError as error:
                    print(str(error).split(": ", 1)[1])


if __name__ == "__main__":
    main()
