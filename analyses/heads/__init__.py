"""What all studies together say of heads: every score in one form, tables, single heads on text."""
