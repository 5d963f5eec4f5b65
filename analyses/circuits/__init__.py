"""The parts of `analyses.head_circuits`: measuring, estimates, findings, figure."""
