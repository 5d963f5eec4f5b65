"""The parts of `analyses.self_repair`: its result, findings, figure."""
