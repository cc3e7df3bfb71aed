"""The sentences about decisions that users read: one function per sentence, here and nowhere else."""
