"""Background work: the job runner, its worker thread and the schedule."""
