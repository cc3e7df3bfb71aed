"""What comes in: lists, watches, decoding, and PodGroups through kopf."""
