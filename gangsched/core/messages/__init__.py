"""All sentences about decisions that users read: one function per sentence."""
