"""A text through the lens: its numbers as rows, and its figures."""
