"""Single FFN memories out of a saved result of `analyses.ffn_memories`: search, card, tables, examples.

All but two do without the model: `cutting` runs it on triggers, and `on_text` lays out what it did on a reader's text.
"""
