"""The parts of `analyses.probes`: its result, findings, figure."""
