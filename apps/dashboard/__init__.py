"""The dashboard: saved results and live forward passes in a browser, on this machine only.

Pages choose, call and draw; every number comes from `analyses`, and every view from `analyses.views`.
"""
