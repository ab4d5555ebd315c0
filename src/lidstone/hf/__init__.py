"""A smoothed loss inside a Trainer of Hugging Face."""
