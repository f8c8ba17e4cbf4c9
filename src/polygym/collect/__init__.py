"""Many episodes: concurrency, timeouts, retries, the rollout store, evaluation and its results."""
