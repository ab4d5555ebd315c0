"""Models, batches and the Trainer of the pipelines; `hooks/` for users' Trainers, `baselines/` to compare with."""
