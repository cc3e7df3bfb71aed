"""Gangs as objects of the API: versions and changes, watches, and the tables that kubectl prints."""
