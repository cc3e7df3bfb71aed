"""The lease: who of several candidates leads, so that only one writes."""
