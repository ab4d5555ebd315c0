"""Tables and counts in files: bytes and checksums, checks of what was read, addresses, model cards."""
