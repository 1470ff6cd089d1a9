"""A server that speaks the Hugging Face hub's HTTP API, as far as reading needs it.

Files come down whole or by ranges. Each commit keeps its tree, so a revision means the same files
for ever.
"""

from __future__ import annotations

import hashlib
import json
import re
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import unquote, urlsplit

TOKEN = "hf_secretOfTests"

_API = re.compile(r"/api/(dataset|model)s/([^/]+/[^/]+)(?:/(\w[\w-]*)/([^/]+)(?:/(.*))?)?")
_RESOLVE = re.compile(r"/(datasets/)?([^/]+/[^/]+)/resolve/([^/]+)/(.+)")


@dataclass
class Repository:
    """Commits in order, each a tree: path -> content."""

    private: bool
    commits: dict[str, dict[str, bytes]] = field(default_factory=dict)
    lfs: set[str] = field(default_factory=set)  # paths that went up by LFS
    messages: list[str] = field(default_factory=list)

    def commit(self, tree: dict[str, bytes], message: str) -> str:
        """A new commit; its id."""
        content = [(path, hashlib.sha1(data).hexdigest()) for path, data in sorted(tree.items())]
        text = json.dumps([len(self.commits), content])
        sha = hashlib.sha1(text.encode()).hexdigest()
        self.commits[sha] = tree
        self.messages.append(message)
        return sha

    @property
    def head(self) -> str:
        return list(self.commits)[-1]

    def tree(self, revision: str) -> dict[str, bytes] | None:
        return self.commits.get(self.head if revision == "main" else revision)


@dataclass
class Hub:
    """What the server holds, and what it was asked: (method, path)."""

    url: str
    repositories: dict[tuple[str, str], Repository] = field(default_factory=dict)
    asked: list[tuple[str, str]] = field(default_factory=list)
    fail: str = ""  # requests whose "METHOD path" this pattern finds are answered with an error
    code: int = 500

    def put(self, name: str, files: dict[str, bytes], kind: str = "dataset") -> str:
        """Commits files to a repository, which is made where it is not there; the commit."""
        repository = self.repositories.setdefault((kind, name), Repository(private=False))
        before = dict(repository.tree("main") or {}) if repository.commits else {}
        return repository.commit(before | files, "put")

    def files(self, name: str, kind: str = "dataset") -> dict[str, bytes]:
        """What a repository holds now."""
        return dict(self.repositories[kind, name].tree("main") or {})


def git_id(data: bytes, lfs: bool) -> str:
    """A file's id in git: of itself, or of the pointer that LFS keeps in its place."""
    if lfs:
        digest = hashlib.sha256(data).hexdigest()
        data = (
            f"version https://git-lfs.github.com/spec/v1\noid sha256:{digest}\nsize {len(data)}\n"
        ).encode()
    return hashlib.sha1(b"blob %d\0" % len(data) + data).hexdigest()


@contextmanager
def serving() -> Iterator[Hub]:
    """A server on a port of its own, in threads of this process."""

    class Handler(_Handler):
        @property
        def hub(self) -> Hub:
            return hub

    class Server(ThreadingHTTPServer):
        daemon_threads = True

        def handle_error(self, *_: object) -> None:
            pass  # a client that went away

    server = Server(("127.0.0.1", 0), Handler)
    hub = Hub(f"http://127.0.0.1:{server.server_port}")
    threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True).start()
    try:
        yield hub
    finally:
        server.shutdown()
        server.server_close()


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    hub: Hub

    def log_message(self, *_: object) -> None:
        pass

    def _begin(self) -> tuple[str, bytes]:
        """(path, body) of the request."""
        path = urlsplit(self.path).path
        self.hub.asked.append((self.command, path))
        return path, self.rfile.read(int(self.headers.get("Content-Length") or 0))

    def _send(self, code: int, body: bytes = b"", **headers: str) -> None:
        self.send_response(code)
        for name, value in {"Content-Length": str(len(body)), **headers}.items():
            self.send_header(name.replace("_", "-"), value)
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)

    def _json(self, data: Any, code: int = 200) -> None:
        self._send(code, json.dumps(data).encode(), Content_Type="application/json")

    def _missing(self, what: str) -> None:
        self._send(404, b"{}", X_Error_Code=what, X_Error_Message=what)

    def _fails(self, path: str) -> bool:
        if not self.hub.fail or not re.search(self.hub.fail, f"{self.command} {path}"):
            return False
        self._send(self.hub.code, b"{}", X_Error_Message="as the test asked")
        return True

    def do_GET(self) -> None:
        path, _ = self._begin()
        if self._fails(path):
            return None
        if match := _RESOLVE.fullmatch(unquote(path)):
            return self._resolve(*match.groups())
        if match := _API.fullmatch(path):
            return self._about(*match.groups())
        return self._missing("EntryNotFound")

    do_HEAD = do_GET

    def _of(self, kind: str, name: str, revision: str) -> dict[str, bytes] | None:
        """The tree of a revision; None where that was answered with what is missing."""
        repository = self.hub.repositories.get((kind, name))
        hidden = repository is not None and repository.private
        if repository is None or (hidden and "Authorization" not in self.headers):
            return self._missing("RepoNotFound")
        tree = repository.tree(revision)
        return self._missing("RevisionNotFound") if tree is None else tree

    def _resolve(self, prefix: str | None, name: str, revision: str, file: str) -> None:
        kind = "dataset" if prefix else "model"
        tree = self._of(kind, name, revision)
        if tree is None:
            return None
        if file not in tree:
            return self._missing("EntryNotFound")
        repository, data = self.hub.repositories[kind, name], tree[file]
        commit = repository.head if revision == "main" else revision
        etag = f'"{git_id(data, file in repository.lfs)}"'
        part = re.fullmatch(r"bytes=(\d+)-(\d*)", self.headers.get("Range", ""))
        headers = {"ETag": etag, "X-Repo-Commit": commit, "Accept-Ranges": "bytes"}
        if part is None:
            return self._send(200, data, **headers)
        first, end = int(part[1]), min(int(part[2]) + 1 if part[2] else len(data), len(data))
        whole = f"bytes {first}-{end - 1}/{len(data)}"
        return self._send(206, data[first:end], **headers, Content_Range=whole)

    def _about(
        self, kind: str, name: str, what: str | None, revision: str | None, below: str | None
    ) -> None:
        tree = self._of(kind, name, unquote(revision or "main"))
        if tree is None:
            return None
        repository = self.hub.repositories[kind, name]
        if what in (None, "revision"):
            sha = repository.head if revision in (None, "main") else revision
            siblings = [{"rfilename": path} for path in sorted(tree)]
            about = {"_id": "1", "id": name, "sha": sha, "siblings": siblings, "tags": []}
            return self._json(about | {"private": repository.private, "downloads": 0, "likes": 0})
        if what == "tree":
            top = f"{unquote(below)}/" if below else ""
            entries = self._entries(repository, tree, top, "recursive=true" in self.path.lower())
            return self._json(entries) if entries else self._missing("EntryNotFound")
        return self._missing("EntryNotFound")

    def _entries(
        self, repository: Repository, tree: dict[str, bytes], top: str, deep: bool
    ) -> list[dict[str, Any]]:
        """Files and folders below a folder, of which the name ends with a slash."""
        entries: dict[str, dict[str, Any]] = {}
        for path in sorted(tree):
            if not path.startswith(top):
                continue
            *folders, _ = path[len(top) :].split("/")
            for depth in range(1, len(folders) + 1 if deep else min(2, len(folders) + 1)):
                folder = top + "/".join(folders[:depth])
                oid = hashlib.sha1(folder.encode()).hexdigest()
                entries[folder] = {"type": "directory", "path": folder, "oid": oid, "size": 0}
            if deep or not folders:
                entries[path] = _file(path, tree[path], path in repository.lfs)
        return list(entries.values())

    def do_POST(self) -> None:
        path, body = self._begin()
        if self._fails(path):
            return None
        if path.endswith("/paths-info/" + path.rpartition("/")[2]):
            return self._paths_info(path, body)
        return self._missing("EntryNotFound")

    def _paths_info(self, path: str, body: bytes) -> None:
        match = _API.fullmatch(path)
        tree = self._of(match[1], match[2], match[4]) if match else None
        if match is None or tree is None:
            return None
        lfs = self.hub.repositories[match[1], match[2]].lfs
        values = re.findall(r"paths=([^&]+)", body.decode()) or json.loads(body)["paths"]
        wanted = [unquote(value) for value in values]
        return self._json([_file(p, tree[p], p in lfs) for p in wanted if p in tree])


def _file(path: str, data: bytes, lfs: bool) -> dict[str, Any]:
    about: dict[str, Any] = {"type": "file", "path": path, "size": len(data)}
    about["oid"] = git_id(data, lfs)
    if lfs:
        digest = hashlib.sha256(data).hexdigest()
        about["lfs"] = {"oid": digest, "size": len(data), "pointerSize": 134}
    return about
