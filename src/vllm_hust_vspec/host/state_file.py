"""What controllers learnt, kept in a file between runs.

One JSON file holds the newest state of each identity (models, host, options). It is changed under a lock and replaced
as a whole, so that engines may share it and a crash leaves the old one. A file that is damaged, or none of ours, is
set aside under another name with one warning: memory is a help, never a reason not to serve.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import logging
import os
import tempfile
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import filelock
import platformdirs

from vllm_hust_vspec.host.identity import Identity

logger = logging.getLogger("vllm.vspec")

FORMAT = "vspec-state"
VERSION = 1
MOST_BYTES = 16 << 20
MOST_ENTRIES = 32
LOCK_TIMEOUT_S = 5.0

Entries = dict[str, dict[str, Any]]


def default_path() -> Path:
    """The file of this user."""
    return platformdirs.user_state_path("vllm-hust-vspec", appauthor=False) / "controllers.json"


class StateFile:
    """The entry of one identity in a file. Neither method raises; what goes wrong is said once."""

    def __init__(self, path: Path, identity: Identity, *, lock_timeout_s: float = LOCK_TIMEOUT_S) -> None:
        self.path = path
        self.identity = identity
        self.key = hashlib.sha256(json.dumps(identity, sort_keys=True).encode()).hexdigest()[:32]
        self._lock_timeout_s = lock_timeout_s
        self._warned = False

    def load(self) -> Mapping[str, Any] | None:
        """The snapshot that the last run of this identity left; None where there is none."""
        try:
            if not self.path.exists():
                return None
            with self._locked():
                entry = self._entries().get(self.key)
        except (OSError, filelock.Timeout) as error:
            self._warn("cannot be read", error)
            return None
        snapshot = None if entry is None or entry["identity"] != self.identity else entry["snapshot"]
        return snapshot if isinstance(snapshot, Mapping) else None

    def save(self, snapshot: Mapping[str, Any]) -> bool:
        """Put a snapshot into the file, in the place of this identity's older one. Says whether it is there now."""
        try:
            entry = {"identity": self.identity, "saved_at": time.time(), "snapshot": snapshot}
            self.path.parent.mkdir(parents=True, exist_ok=True)
            with self._locked():
                entries = self._entries() | {self.key: entry}
                newest = sorted(entries, key=lambda key: entries[key]["saved_at"], reverse=True)[:MOST_ENTRIES]
                kept = {key: entries[key] for key in newest}
                self._replace(json.dumps({"format": FORMAT, "version": VERSION, "entries": kept}, allow_nan=False))
        except (OSError, ValueError, TypeError, filelock.Timeout) as error:
            self._warn("cannot be written", error)
            return False
        return True

    def _locked(self) -> filelock.BaseFileLock:
        return filelock.FileLock(f"{self.path}.lock", timeout=self._lock_timeout_s, mode=0o600)

    def _entries(self) -> Entries:
        """What the file holds; the lock is held. A file that is not sound is set aside."""
        try:
            with self.path.open("rb") as file:
                content = file.read(MOST_BYTES + 1)
        except FileNotFoundError:
            return {}
        try:
            return _checked(content)
        except (ValueError, RecursionError) as error:
            self._set_aside(error)
            return {}

    def _set_aside(self, why: Exception) -> None:
        aside = self.path.with_name(f"{self.path.name}.bad-{time.strftime('%Y%m%d-%H%M%S')}-{os.getpid()}")
        os.replace(self.path, aside)
        logger.warning(
            "vspec: state file %s is damaged or not vSpec's (%s); it is now %s, and learning starts afresh",
            self.path,
            " ".join(str(why).split())[:200],
            aside.name,
        )

    def _replace(self, content: str) -> None:
        handle, name = tempfile.mkstemp(prefix=f".{self.path.name}.", dir=self.path.parent)
        try:
            with os.fdopen(handle, "w", encoding="utf-8") as file:
                file.write(content)
                file.flush()
                os.fsync(file.fileno())
            os.replace(name, self.path)
        except BaseException:
            with contextlib.suppress(OSError):
                os.unlink(name)
            raise

    def _warn(self, what: str, error: Exception) -> None:
        if not self._warned:
            self._warned = True
            logger.warning(
                "vspec: state file %s %s: %s; serving goes on without it (said once)", self.path, what, error
            )


def _checked(content: bytes) -> Entries:
    """The entries in a file's content. Raises ValueError for what is no state file of this version."""
    if len(content) > MOST_BYTES:
        raise ValueError(f"larger than {MOST_BYTES} bytes")
    found = json.loads(content, parse_constant=_no_constant)
    if not isinstance(found, dict) or found.get("format") != FORMAT:
        raise ValueError(f"its format is not {FORMAT}")
    if found.get("version") != VERSION:
        raise ValueError(f"its version is {found.get('version')!r}, this vSpec's is {VERSION}")
    entries = found.get("entries")
    if not isinstance(entries, dict):
        raise ValueError("it has no entries")
    for entry in entries.values():
        saved_at = entry.get("saved_at") if isinstance(entry, dict) else None
        if isinstance(saved_at, bool) or not isinstance(saved_at, (int, float)) or "identity" not in entry:
            raise ValueError("an entry lacks its time or its identity")
        if not isinstance(entry.get("snapshot"), dict):
            raise ValueError("an entry lacks its snapshot")
    return entries


def _no_constant(name: str) -> float:
    raise ValueError(f"{name} is no JSON")
