"""Input: lists and watches, decoding, and PodGroups through kopf."""
