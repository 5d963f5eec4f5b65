"""The parts of `analyses.memory_promotion`: memories and controls, measuring, findings, figure."""
