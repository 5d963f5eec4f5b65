"""The parts of `analyses.head_ablation`, and tables of an ablation's further questions."""
