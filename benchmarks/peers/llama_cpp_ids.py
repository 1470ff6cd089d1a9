"""Ids that llama.cpp gives, from a GGUF file's vocabulary alone: documents as JSON lines of
{"text": ...} on stdin, a JSON list of ids a line on stdout.

    .bench/llama_cpp/bin/python benchmarks/peers/llama_cpp_ids.py FILE.gguf

The library is the one inside of xllamacpp, which offers no tokenizer of its own; it is called by
its C interface (include/llama.h of that version). Special tokens stay text.
"""

from __future__ import annotations

import ctypes
import json
import sys
from pathlib import Path

import xllamacpp

_VOCAB_ONLY = 72  # place of that flag in llama_model_params, xllamacpp 2026.10.11549

_LOG = ctypes.CFUNCTYPE(None, ctypes.c_int, ctypes.c_char_p, ctypes.c_void_p)


class _Params(ctypes.Structure):
    """llama_model_params and room behind: only its flag for the vocabulary is set here."""

    _fields_ = (("raw", ctypes.c_ubyte * 256),)


def main() -> None:
    lib = ctypes.CDLL(str(Path(xllamacpp.__file__).parent / "xllamacpp.abi3.so"))
    quiet = _LOG(lambda level, text, data: None)  # kept: C holds no reference to it
    lib.llama_log_set(quiet, None)
    lib.llama_model_default_params.restype = _Params
    lib.llama_model_load_from_file.argtypes = [ctypes.c_char_p, _Params]
    lib.llama_model_load_from_file.restype = ctypes.c_void_p
    lib.llama_model_get_vocab.argtypes = [ctypes.c_void_p]
    lib.llama_model_get_vocab.restype = ctypes.c_void_p
    lib.llama_tokenize.argtypes = [
        ctypes.c_void_p, ctypes.c_char_p, ctypes.c_int32,
        ctypes.POINTER(ctypes.c_int32), ctypes.c_int32, ctypes.c_bool, ctypes.c_bool,
    ]  # fmt: skip
    lib.llama_backend_init()
    params = lib.llama_model_default_params()
    params.raw[_VOCAB_ONLY] = 1
    model = lib.llama_model_load_from_file(sys.argv[1].encode(), params)
    if not model:
        sys.exit(f"{sys.argv[1]}: llama.cpp does not load it")
    vocab = lib.llama_model_get_vocab(model)
    for line in sys.stdin:
        raw = json.loads(line)["text"].encode()
        room = (ctypes.c_int32 * (len(raw) + 16))()
        count = lib.llama_tokenize(vocab, raw, len(raw), room, len(room), False, False)
        if count < 0:
            sys.exit("llama.cpp gives more tokens than bytes")
        print(json.dumps(room[:count]))


if __name__ == "__main__":
    main()
