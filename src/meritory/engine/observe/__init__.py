"""Health, diagnostics, timings, telemetry and the event log."""
