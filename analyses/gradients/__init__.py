"""The parts of `analyses.gradient_flow`: initialization, logged runs, a checkpoint, findings, figures."""
