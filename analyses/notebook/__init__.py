"""The notebook of what was pinned: pins, their file, and what they are exported as."""
