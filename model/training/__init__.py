"""Training: data, optimisation, logs and the loop that ties them together."""
