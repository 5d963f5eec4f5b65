"""The commands of `cutaway`, a file per group."""
