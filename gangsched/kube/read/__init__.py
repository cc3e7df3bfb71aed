"""Input: lists, watches, decoding, and PodGroups through kopf."""
