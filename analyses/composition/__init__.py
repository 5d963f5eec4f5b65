"""The parts of `analyses.ffn_composition`: measuring, sums, findings, figure."""
