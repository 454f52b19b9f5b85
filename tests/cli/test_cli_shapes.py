"""The shapes of `--json`, which programs rely on: a changed one must be changed here on purpose."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from cli_types import Run, Stored

MEMORY = {
    "access_count": "int",
    "agent": "str?",
    "confidence": "float",
    "content": "str",
    "created_at": "str",
    "deleted_at": "str?",
    "demotion": "int",
    "dimension": "int?",
    "embedder": "str?",
    "id": "str",
    "importance": "float",
    "kind": "str",
    "last_accessed": "str?",
    "metadata": "dict",
    "origin": "str",
    "pinned": "bool",
    "project": "str?",
    "provenance": "str",
    "sources": "list",
    "superseded_by": "str?",
    "tags": "list",
    "trust": "str",
    "updated_at": "str",
    "usefulness": "float",
    "user": "str",
    "valid_from": "str?",
    "valid_until": "str?",
}
HIT = {**MEMORY, "score": "float", "until": "str?"}
ENTITY = {"id": "str", "kind": "str", "name": "str", "memory_count": "int"}
PARTS = dict.fromkeys(
    [
        "composite",
        "relevance",
        "recency",
        "usefulness",
        "confidence",
        "frequency",
        "cosine",
        "text",
        "hybrid",
        "weight",
        "share",
        "order",
        "asked",
        "told",
        "soft",
        "condition",
    ],
    "float",
) | {"is_standing": "bool", "read_as": "str"}
CHANGE = {
    "id": "str",
    "entry": "int",
    "at": "str",
    "actor": "str",
    "action": "str",
    "why": "str",
    "undone": "bool",
    "other_id": "str?",
    "changes": "dict",
    "before": "dict?",
    "after": "dict?",
    "other": "dict?",
}
CALIBRATION = {
    "asked": "int",
    "rated": "int",
    "mean_absolute_error": "float?",
    "is_flagged": "bool",
    "sessions_since": "int",
    "is_due": "bool",
}
AUDITED = {"total": "int", "wrong": "int", "rate": "float?", "low": "float", "high": "float"}
UPKEEP_JOB = {"key": "str", "state": "str", "finished_at": "str?", "error": "str?"}
SHAPES: dict[str, dict[str, Any]] = {
    "remember new-claim": {
        "id": "str",
        "outcome": "str",
        "reason": "str",
        "other_id": "str?",
        "cosine": "float?",
        "memory": MEMORY,
    },
    "recall claim": {"results": [HIT]},
    "recall claim --explain": {"results": [{**HIT, "parts": PARTS}]},
    "list": {"results": [MEMORY], "next": "str?"},
    "show ID": {
        "id": "str",
        "memory": MEMORY,
        "retrieval_count": "int",
        "last_retrieved": "str?",
        "chain": {"earlier": "list", "later": "list"},
    },
    "edit ID --pin": {"id": "str", "changes": "dict", "memory": MEMORY},
    "confirm ID": {"id": "str", "memory": MEMORY},
    "forget ID": {"results": [{"id": "str", "purged": "bool"}]},
    "history ID": {"results": [CHANGE]},
    "undo ID": {"results": [MEMORY]},
    "merges": {"results": [CHANGE]},
    "split ID": {"results": [MEMORY]},
    "entities": {"results": [ENTITY]},
    "describe tagged": {
        "entity": ENTITY,
        "aspects": "dict",
        "constraints": "list",
        "depends_on": [ENTITY],
        "results": [MEMORY],
    },
    "stats": {
        "user": "str",
        "live": "int",
        "deleted": "int",
        "superseded": "int",
        "history": "int",
        "entities": "int",
        "kind": "dict",
        "provenance": "dict",
        "trust": "dict",
        "write": "dict",
        "sessions": "dict",
        "feedback": "dict",
        "quality": "dict",
        "other": "dict",
    },
    "gate metrics": {
        "trigger_rate": "float?",
        "writes": "int",
        "outcomes": "dict",
        "split": "int",
        "audited": AUDITED,
        "results": [{"week": "str", "outcome": "str", "count": "int"}],
    },
    "gate audit": {
        "results": [
            {
                **{name: "str" for name in ("id", "at", "why", "before", "other", "after")},
                "entry": "int",
                "is_split": "bool",
                "verdict": "str?",
            }
        ],
        "notes": "list",
    },
    "janitor": {
        "enabled": "bool",
        "cull": "bool",
        "janitor": UPKEEP_JOB,
        "retention": UPKEEP_JOB,
        "pairs": UPKEEP_JOB,
        "links_found": "int",
        "demoted": "int",
        "forgotten": "int",
        "erased": "dict",
        "notes": "list",
    },
    "janitor run": {
        **dict.fromkeys(("demoted", "forgotten", "pairs_found", "examined"), "int"),
        "erased": "dict",
    },
    "predictor status": {
        "phase": "str",
        "reason": "str?",
        "alpha": "float",
        "earned_alpha": "float",
        "success_rate": "float",
        "scorer": "str",
        "influence": "str",
        "training_sessions": "int",
        "min_training_sessions": "int",
        "excluded_sessions": "int",
        "is_cold": "bool",
        "waiting_for": "dict",
        "model_version": "int",
        "model_scorer": "str",
        "previous_version": "int?",
        "best_version": "int",
        "versions": "list",
        "parameter_count": "int?",
        "shadow_left": "int",
        "trial": "dict",
        "canaries": "int",
        "training_ordered": "str?",
        "last_trained_at": "str?",
        "last_train_loss": "float?",
        "failures": "int",
        "fallbacks": "int",
        "drift_resets": "int",
        "is_drifting": "bool",
        "scorer_drift_signal": "float?",
        "history": {
            "recency": "float",
            "usefulness": "float",
            "sessions": "int",
            "labels_valid": "bool",
            "labels_partial": "bool",
            "validity_errors": "float",
            "validity_needed": "float",
            "margin": "float",
            "full_margin": "float",
        },
        "weighings": "list",
        "surfaces": "list",
        "project_success_rates": "list",
        "entity_success_rates": "list",
        "latency": {
            "count": "int",
            "last_ms": "float?",
            "avg_ms": "float?",
            "p50_ms": "float?",
            "p95_ms": "float?",
            "timeout_ms": "int",
            "is_slow": "bool",
        },
        "calibration": CALIBRATION,
        "sidecar": {
            "alive": "bool",
            "dead": "bool",
            "pid": "int?",
            "crash_count": "int",
            "crash_disabled": "bool",
        },
        "warnings": "list",
    },
    "predictor disable": {"is_enabled": "bool", "has_changed": "bool"},
    "config show": {
        "home": "str",
        "config_file": "str",
        "results": [{"id": "str", "value": "any", "source": "str", "variable": "str"}],
    },
    "config path": {"path": "str", "exists": "bool"},
    "doctor": {
        "status": "str",
        "results": [{"id": "str", "status": "str", "detail": "str", "hint": "str"}],
    },
    "export FILE": {"file": "str", "memory_count": "int", "left_out": "str", "notes": ["str"]},
    "import IN": {
        "file": "str",
        "format": "str",
        "recognised": "str",
        "dry_run": "bool",
        "project": "str?",
        "line_count": "int",
        "resumed_at": "int",
        "outcomes": "dict",
        "problems": [{"line": "int", "reason": "str"}],
    },
    "telemetry show": {
        "training_data_opt_in": "bool?",
        "install_date": "str?",
        "last_prompted_at": "str?",
        "file": "str",
        "line_count": "int",
        "size_bytes": "int",
        "example": "str",
    },
    "telemetry on": {"training_data_opt_in": "bool"},
    "telemetry off": {"training_data_opt_in": "bool", "erased": "int"},
    "backup FILE": {"file": "str", "size_bytes": "int", "models": "int"},
    "restore BACKUP --yes": {
        "file": "str",
        "store": "str",
        "former_files": "str?",
        "models": "int",
    },
    "reembed": {"complete": "bool", "embedder": "str?", "memory_count": "int"},
    "completion bash": {"shell": "str", "script": "str"},
    "show 7zzz": {"error": {"code": "str", "message": "str", "hint": "str?"}},
}


def misfits(value: Any, shape: Any, place: str = "$") -> list[str]:
    """Where a value differs from its shape."""
    if isinstance(shape, dict):
        if not isinstance(value, dict) or value.keys() != shape.keys():
            return [f"{place} has the keys {sorted(value)}"]
        return [m for key in shape for m in misfits(value[key], shape[key], f"{place}.{key}")]
    if isinstance(shape, list):
        if not isinstance(value, list):
            return [f"{place} is no list"]
        return [
            m for at, item in enumerate(value) for m in misfits(item, shape[0], f"{place}[{at}]")
        ]
    if shape == "any" or (value is None and shape.endswith("?")):
        return []
    return [] if type(value).__name__ == shape.rstrip("?") else [f"{place} is {value!r}"]


def test_a_misfit_is_noticed() -> None:
    assert misfits({"a": 1}, {"a": "str"}) == ["$.a is 1"]
    assert misfits({"a": 1}, {"b": "int"}) == ["$ has the keys ['a']"]
    assert misfits([{"a": None}], [{"a": "int?"}]) == []


@pytest.mark.parametrize("command", SHAPES)
def test_the_shape_of_the_answer(run: Run, stored: Stored, tmp_path: Path, command: str) -> None:
    memory_id = stored("We always run the tests before a merge", "--tag", "tagged", "--keep")
    run("remember", "We always run the tests before the merge", "--tag", "tagged")
    (tmp_path / "in.jsonl").write_text('"a line"\n{"no": "content"}\n')
    if "BACKUP" in command:
        run("backup", str(tmp_path / "backup.db"))
    words = {
        "ID": memory_id,
        "FILE": str(tmp_path / "out"),
        "IN": str(tmp_path / "in.jsonl"),
        "BACKUP": str(tmp_path / "backup.db"),
        "claim": "tests before a merge",
    }
    done = run(*(words.get(word, word) for word in command.split()), "--json")
    assert misfits(done.object, SHAPES[command]) == []
    if "results" in SHAPES[command]:
        assert done.object["results"]
