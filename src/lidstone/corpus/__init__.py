"""Named and own text, from a file or a download to the ids of a prepared corpus."""
