"""The parts of `analyses.attention_patterns`: stimuli and readings, evidence, verdicts, findings, figure."""
