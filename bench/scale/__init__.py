"""A start and a day on a large cluster, before a server that only speaks lists and watches."""
