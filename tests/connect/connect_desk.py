"""A user's home folder in which harnesses are connected and disconnected."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path

from meritory.connect.desired import Document, harness_module
from meritory.connect.plan import ConnectPlan, prepare_connect, prepare_disconnect, target_for

NOW = datetime(2026, 11, 15, 12, 0, tzinfo=UTC)


@dataclass(frozen=True)
class Desk:
    """Where a user works: their home, their variables, and Meritory's data folder."""

    user_home: Path
    more: dict[str, str] = field(default_factory=dict)

    @property
    def env(self) -> dict[str, str]:
        return {"HOME": str(self.user_home), "PATH": "/nowhere", **self.more}

    @property
    def home(self) -> Path:
        return self.user_home / ".meritory"

    def documents(self, name: str) -> tuple[Document, ...]:
        return harness_module(name).setup(target_for(name, self.home, self.env)).documents

    def connect(self, name: str) -> ConnectPlan:
        plan = prepare_connect(name, self.home, self.env)
        plan.apply(NOW)
        return plan

    def disconnect(self, name: str) -> ConnectPlan:
        plan = prepare_disconnect(name, self.home, self.env)
        plan.apply(NOW)
        return plan

    def put(self, path: Path, content: str | bytes) -> bytes:
        path.parent.mkdir(parents=True, exist_ok=True)
        raw = content.encode() if isinstance(content, str) else content
        path.write_bytes(raw)
        return raw

    def everything(self) -> dict[str, bytes]:
        """Every file of the user's with its content, Meritory's own apart."""
        return {
            str(path.relative_to(self.user_home)): path.read_bytes()
            for path in sorted(self.user_home.rglob("*"))
            if path.is_file() and self.home not in path.parents
        }

    def folders(self) -> set[str]:
        return {
            str(path.relative_to(self.user_home))
            for path in self.user_home.rglob("*")
            if path.is_dir() and path != self.home and self.home not in path.parents
        }
