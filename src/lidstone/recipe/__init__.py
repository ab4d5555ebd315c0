"""What a recipe may say, its defaults, and the errors for what it may not."""
