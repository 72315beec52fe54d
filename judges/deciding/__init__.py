"""Judges that decide and give no text: probabilities of every option."""
