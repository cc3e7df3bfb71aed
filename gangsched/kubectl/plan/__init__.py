"""`plan -f FILE`: whether what a manifest describes would start now."""
