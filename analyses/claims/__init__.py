"""Written claims: what `analyses.hypotheses` tests.

statement   the keys of one [[claim]]; files: reading them; bounds, rules: what is in `effect` and `ablate`
checks      what is refused before anything runs
ground      the sequences of one checkpoint; ablating, paths: the two forms of a claim; controls: what stands beside
measuring   from a claim to its numbers; verdicts: from numbers to supported, refuted or undecided
wording     a verdict in a sentence; records: on disk
"""
