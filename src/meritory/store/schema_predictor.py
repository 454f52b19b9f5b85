"""The tables of the predictor's records."""

from __future__ import annotations

PREDICTOR = (
    "ALTER TABLE sessions ADD COLUMN scorer TEXT",
    "ALTER TABLE sessions ADD COLUMN model_version INTEGER",
    """CREATE TABLE predictor_state (
        user TEXT PRIMARY KEY,
        state TEXT NOT NULL
    ) STRICT, WITHOUT ROWID""",
    """CREATE TABLE predictor_comparisons (
        comparison INTEGER PRIMARY KEY AUTOINCREMENT,
        user TEXT NOT NULL,
        session INTEGER NOT NULL UNIQUE REFERENCES sessions (session) ON DELETE CASCADE,
        at TEXT NOT NULL,
        project TEXT,
        scorer TEXT,
        model_version INTEGER,
        predictor_ndcg REAL,
        baseline_ndcg REAL,
        predictor_won REAL,
        margin REAL,
        scorer_confidence REAL NOT NULL,
        ema_updated INTEGER NOT NULL,
        reason TEXT,
        success_rate REAL NOT NULL,
        alpha REAL NOT NULL,
        predictor_top_ids TEXT NOT NULL,
        baseline_top_ids TEXT NOT NULL,
        relevance_scores TEXT NOT NULL,
        fts_overlap_score REAL,
        replay_ndcg TEXT NOT NULL,
        replay_log_rank TEXT NOT NULL
    ) STRICT""",
    "CREATE INDEX predictor_comparisons_by_time ON predictor_comparisons (user, at, comparison)",
    """CREATE TABLE predictor_training_log (
        run INTEGER PRIMARY KEY AUTOINCREMENT,
        user TEXT NOT NULL,
        at TEXT NOT NULL,
        model_version INTEGER NOT NULL,
        scorer TEXT NOT NULL,
        reason TEXT NOT NULL,
        loss REAL,
        sample_count INTEGER NOT NULL,
        skipped_count INTEGER NOT NULL,
        duration_ms REAL NOT NULL,
        accepted INTEGER NOT NULL,
        canary_ndcg REAL,
        canary_ndcg_delta REAL,
        canary_score_variance REAL,
        canary_topk_churn REAL,
        gates TEXT NOT NULL,
        train_validation_failures INTEGER NOT NULL,
        drift_resets INTEGER NOT NULL,
        error TEXT
    ) STRICT""",
    "CREATE INDEX predictor_training_by_user ON predictor_training_log (user, run)",
    """CREATE TABLE predictor_canary (
        session INTEGER PRIMARY KEY REFERENCES sessions (session) ON DELETE CASCADE,
        user TEXT NOT NULL,
        chosen_at TEXT NOT NULL,
        retired_at TEXT
    ) STRICT""",
    "CREATE INDEX predictor_canary_by_user ON predictor_canary (user, retired_at, session)",
    """CREATE TABLE predictor_calibration (
        session INTEGER NOT NULL REFERENCES sessions (session) ON DELETE CASCADE,
        memory_id TEXT NOT NULL,
        user TEXT NOT NULL,
        judge_label REAL NOT NULL,
        offered_at TEXT NOT NULL,
        human_label REAL,
        rated_at TEXT,
        PRIMARY KEY (session, memory_id)
    ) STRICT, WITHOUT ROWID""",
    "CREATE INDEX predictor_calibration_by_user ON predictor_calibration (user, offered_at)",
)
