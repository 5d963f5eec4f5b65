"""The Findings page: pins, verdicts on written claims, and what every study found."""
