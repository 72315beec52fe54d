"""Whether an answer keeps out what it should: personal data, advice, other domains and roles."""
