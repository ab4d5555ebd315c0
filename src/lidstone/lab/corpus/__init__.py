"""Named corpora and the user's own text: from a file or a download to the ids of a prepared corpus."""
