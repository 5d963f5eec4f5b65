"""The parts of `analyses.training_dynamics`: measuring, formation, findings, figures over training."""
