"""The operators of docs/guides/operators.md, as their own modules have them, beside the daemon."""
