"""The methods that a recipe can train, one file each, named after the `kind` of its `regularizer` section."""
