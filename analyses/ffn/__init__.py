"""The parts of `analyses.ffn_memories`: what is read of every memory, the summary of every layer, findings, figure."""
