"""Single FFN memories out of a saved result of `analyses.ffn_memories`, without the model: search, card, tables."""
