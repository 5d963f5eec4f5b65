"""The parts of `analyses.head_importance`: measuring, findings, figure."""
